"""Engines over data directories: `embedded_engine` has each partition once, `replicas` has copies in several directories.

`open_directories` opens directories as they were opened before; `scrub` reads everything again and finds damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from topicfs.replication.embedded_engine import EmbeddedEngine
from topicfs.storage.checkpoints.meta_properties import has_replicas
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.names import MIRROR
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import StorageError
from topicfs.storage.manager.startup import open_logs

if TYPE_CHECKING:
    from topicfs.replication.replicas.engine import ReplicatedEngine


open_engine = partial(open_logs, EmbeddedEngine)
"""Opens data directories as `storage.manager.startup.open_logs` does, each partition in one of them."""


def holds_replicas(directories: Sequence[Path]) -> bool:
    """Return whether any of the directories was opened with replicas before."""
    files = NativeFileSystem(read_only=True)
    for one in directories:
        with suppress(OSError):
            if has_replicas(files, one):
                return True
    return False


def check_no_mirror(directories: Sequence[Path]) -> None:
    """Raise StorageError for a directory that a mirror keeps: after any other change the mirror would refuse it."""
    disk = NativeFileSystem(read_only=True)
    for directory in directories:
        if disk.exists(directory / MIRROR):
            raise StorageError(
                f"{directory}: a mirror keeps this copy and would refuse the directory after a change; change the "
                f"cluster, mount the copy with --read-only, or end the copy for good: rm {directory / MIRROR}"
            )


def open_directories(
    directories: Sequence[Path],
    *,
    read_only: bool = False,
    config: EngineConfig | None = None,
    replicated: bool = False,
    left_out: Sequence[Path] = (),
    may_be_mirrored: bool = False,
) -> EmbeddedEngine | ReplicatedEngine:
    """Open data directories as they were before: as one engine, or as replicas, which `replicated` makes them.

    `may_be_mirrored`: the caller changes no topic, setting or record, so that a mirror may go on. One directory of
    several with replicas can only be opened to be read. See `open_engine` and
    `replication.replicas.startup.open_replicas`.
    """
    if not (read_only or may_be_mirrored):
        check_no_mirror(directories)
    several = len(directories) + len(left_out) > 1
    if replicated or ((several or not read_only) and holds_replicas(directories)):
        from topicfs.replication.replicas.startup import open_replicas

        return open_replicas(directories, read_only=read_only, config=config, left_out=left_out)
    if left_out and not read_only:
        raise StorageError(f"{', '.join(map(str, directories))}: keeps no replicas; leave out --without")
    return open_engine(directories, read_only=read_only, config=config)
