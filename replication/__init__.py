"""Engines over data directories: `embedded_engine` keeps one copy of each partition, `replicas` several.

`open_directories` reopens directories as they were used before. `scrub` rereads all bytes to find damage.
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
"""Opens data directories as an engine with one copy of each partition, like `storage.manager.startup.open_logs`."""


def holds_replicas(directories: Sequence[Path]) -> bool:
    """Return whether any of the directories was used with replicas before."""
    files = NativeFileSystem(read_only=True)
    for one in directories:
        with suppress(OSError):
            if has_replicas(files, one):
                return True
    return False


def check_no_mirror(directories: Sequence[Path]) -> None:
    """Raise StorageError for a mirror's directory: a mirror refuses a directory that another program has changed."""
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
    """Open data directories, with one copy of each partition or with replicas.

    Replicas are used if the directories had replicas before, or if `replicated` is set. `may_be_mirrored` also
    accepts a mirror's directory: the caller must not change topics, settings or records. A single directory of a set
    with replicas can only be opened read-only. See `open_engine` and `replication.replicas.startup.open_replicas`.
    """
    if not (read_only or may_be_mirrored):
        check_no_mirror(directories)
    several = len(directories) + len(left_out) > 1
    if replicated or ((several or not read_only) and holds_replicas(directories)):
        from topicfs.replication.replicas.startup import open_replicas

        return open_replicas(directories, read_only=read_only, config=config, left_out=left_out)
    if left_out and not read_only:
        raise StorageError(f"{', '.join(map(str, directories))}: has no replicas; leave out --without")
    return open_engine(directories, read_only=read_only, config=config)
