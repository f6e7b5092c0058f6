"""The places where a command finds topics: data directories, or a Kafka cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from topicfs.cluster.place import AddressError, ClusterAddress, cluster_address, is_cluster
from topicfs.data_directory import (
    opened_for_reading,
    opened_for_writing,
    option_of_data,
    parse_directories,
    suggesting,
    warn_of_ignored,
)

if TYPE_CHECKING:
    from topicfs.cluster.protocol.security import Security
    from topicfs.storage.config.broker import EngineConfig
    from topicfs.storage.engine import Engine

CLUSTER_METAVAR = "kafka://HOST:PORT[,HOST:PORT]"


class Place(NamedTuple):
    """The place of topics: data directories, or a cluster."""

    directories: tuple[Path, ...] = ()
    """Empty for a cluster."""
    cluster: ClusterAddress | None = None
    client_config: Path | None = None
    """Settings of the connections to the cluster."""
    left_out: tuple[Path, ...] = ()
    """Replica directories that are lost, and that a change does without."""

    @contextmanager
    def opened(self, *, config: EngineConfig | None = None) -> Iterator[Engine]:
        """Open the topics to be read. Raises StorageError, OSError."""
        if self.cluster is None:
            with opened_for_reading(self.directories, config=config) as engine:
                yield engine
        else:
            with (
                closing(open_cluster(self.cluster, security_of(self.client_config))) as engine,
                suggesting(engine),
            ):
                yield engine

    @contextmanager
    def opened_for_writing(self, *, through_mount: str, make: bool = False) -> Iterator[Engine]:
        """Open the topics to be changed; `through_mount` does the same while a daemon owns the directory.

        With `make` a directory that is not there is made.

        Raises StorageError, OSError.
        """
        if self.cluster is None:
            with opened_for_writing(
                self.directories, through_mount=through_mount, make=make, left_out=self.left_out
            ) as engine:
                yield engine
        else:
            security = security_of(self.client_config)
            with (
                closing(open_cluster(self.cluster, security, read_only=False)) as cluster,
                suggesting(cluster),
            ):
                yield cluster


def open_cluster(
    address: ClusterAddress,
    security: Security,
    *,
    read_only: bool = True,
    cache: tuple[Path, int] | None = None,
    compression: str | None = None,
) -> Engine:
    """Open a cluster; `cache` is a directory for what was read, and its bytes, `compression` a codec's name.

    Raises ClusterError, OSError.
    """
    from topicfs.cluster.engine import CachePlace, open_engine
    from topicfs.storage.codec.headers import Codec

    codec = None if compression is None else Codec[compression.upper()]
    kept = None if cache is None else CachePlace(*cache)
    return open_engine(address, security, read_only=read_only, cache=kept, codec=codec)


def security_of(client_config: Path | None) -> Security:
    """Read how connections are secured; what has no meaning is named once. Raises StorageError, OSError."""
    from topicfs.cluster.protocol.security import PLAINTEXT, read_security

    if client_config is None:
        return PLAINTEXT
    security = read_security(client_config)
    warn_of_ignored(client_config, list(security.ignored))
    return security


def parse_cluster(text: str) -> ClusterAddress:
    """Read a cluster's address; a usage error where it is none."""
    try:
        return cluster_address(text)
    except AddressError as error:
        raise click.BadParameter(str(error)) from None


def parse_place(text: str) -> Place:
    """Read `DIR[,DIR]` or a cluster's address; a usage error where it is neither."""
    return Place(cluster=parse_cluster(text)) if is_cluster(text) else Place(parse_directories(text))


client_config_option = click.option(
    "--client-config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Settings of the connection, by the names of Kafka's Java clients: security.protocol, ssl.*, sasl.*.",
)


def place_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--data DIR[,DIR]|kafka://HOST:PORT` and `--client-config FILE` to a command: `place`."""

    @functools.wraps(command)
    def with_place(*arguments: Any, place: Place, client_config: Path | None, **options: Any) -> None:
        if client_config is not None and place.cluster is None:
            raise click.UsageError("--client-config is for a cluster: --data kafka://HOST:PORT")
        given = Place(place.directories, place.cluster, client_config)
        command(*arguments, place=given, **options)

    text = (
        f"Data directory, or several (a broker's log.dirs, to read alone); or a cluster: {CLUSTER_METAVAR}."
    )
    option = option_of_data("place", parse_place, metavar="DIR[,DIR]", text=text)
    return option(client_config_option(with_place))
