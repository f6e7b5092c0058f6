"""A place of topics: data directories, or a Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from topicfs.cluster.place import ClusterAddress, cluster_address, is_cluster
from topicfs.data_directory import opened_for_reading, opened_for_writing, parse_directories, suggesting

if TYPE_CHECKING:
    from topicfs.cluster.protocol.security import Security
    from topicfs.coordination.engine import Engine
    from topicfs.storage.config.broker import EngineConfig

THROUGH_LISTENER = "--data kafka://HOST:PORT"
"""The option with which a command goes through the listener of the process that owns the directory."""


class Place(NamedTuple):
    directories: tuple[Path, ...] = ()
    """The data directories; empty for a cluster."""
    cluster: ClusterAddress | None = None
    client_config: Path | None = None
    """Connection settings for the cluster."""
    left_out: tuple[Path, ...] = ()
    """Replica directories that are lost. A change does not wait for them."""

    def opened(self, *, config: EngineConfig | None = None) -> AbstractContextManager[Engine]:
        """Open the topics for reading. Raises StorageError, OSError."""
        if self.cluster is None:
            return opened_for_reading(self.directories, config=config)
        return self._opened_cluster(self.cluster, read_only=True)

    def opened_for_writing(
        self, *, through_mount: str, through_listener: str = THROUGH_LISTENER, make: bool = False
    ) -> AbstractContextManager[Engine]:
        """Open the topics for writing. With `make`, a missing directory is created.

        While another process owns the directory, the error suggests `through_mount` and `through_listener`.

        Raises StorageError, OSError.
        """
        if self.cluster is not None:
            return self._opened_cluster(self.cluster, read_only=False)
        return opened_for_writing(
            self.directories,
            through_mount=through_mount,
            make=make,
            left_out=self.left_out,
            through_listener=through_listener,
        )

    @contextmanager
    def _opened_cluster(self, address: ClusterAddress, *, read_only: bool) -> Iterator[Engine]:
        opened = open_cluster(address, security_of(self.client_config), read_only=read_only)
        with closing(opened) as engine, suggesting(engine):
            yield engine


def open_cluster(
    address: ClusterAddress,
    security: Security,
    *,
    read_only: bool = True,
    cache: tuple[Path, int] | None = None,
    compression: str | None = None,
) -> Engine:
    """Open a cluster; `cache` is a directory and size, `compression` a codec's name. Raises ClusterError, OSError."""
    from topicfs.cluster.engine import CacheSettings, open_engine
    from topicfs.storage.codec.headers import Codec

    codec = None if compression is None else Codec[compression.upper()]
    kept = None if cache is None else CacheSettings(*cache)
    return open_engine(address, security, read_only=read_only, cache=kept, codec=codec)


def security_of(client_config: Path | None) -> Security:
    """Read the security settings of connections. Raises StorageError, OSError."""
    from topicfs.cluster.protocol.security import PLAINTEXT, read_security

    return PLAINTEXT if client_config is None else read_security(client_config)


def parse_place(text: str) -> Place:
    """Parse `DIR[,DIR]` or a cluster's address. Raises PlaceError, AddressError."""
    if is_cluster(text):
        return Place(cluster=cluster_address(text))
    return Place(parse_directories(text))
