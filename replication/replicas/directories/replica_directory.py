"""The data directories that hold replicas, each with its own engine.

A replica directory *fails* when its disk fails, disappears or is full. Its replicas are then out of sync until the
directory is opened again.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from topicfs.replication.replicas.directories.engine import ReplicaLogManager
from topicfs.replication.replicas.directories.state_file import (
    ReplicaFile,
    read_replica_file,
    write_replica_file,
)
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.checkpoints.atomic import TEMPORARY_SUFFIX
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.checkpoints.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from topicfs.storage.checkpoints.partition_metadata import topic_id_of, write_topic_id_again
from topicfs.storage.config.live_settings import LiveSettings
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.directories.contents import read_contents
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import Clock, FileSystem
from topicfs.storage.disk.native import NativeFileSystem, mountpoint_of
from topicfs.storage.errors import StorageError
from topicfs.storage.log.flush import Flusher
from topicfs.storage.log.log import Log
from topicfs.storage.manager.startup import Machine, open_logs
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import DirectoryStatus, TopicPartition

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 30.0
"""Shortest and longest pause between attempts to open a failed directory."""
NOT_OPENED = "not opened yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The options for opening replica directories: see `storage.manager.startup.open_logs`."""

    settings: LiveSettings
    files: FileSystem
    clock: Clock
    flushers: Callable[[], Flusher] | None = None
    counts: EngineCounts = field(default_factory=EngineCounts)


class ReplicaDirectory:
    """One replica directory. It is changed only under the lock of the replicated engine."""

    def __init__(self, number: ReplicaId, path: Path, opening: Opening, warn: ReportLine) -> None:
        self.number = number
        self.path = path
        self.directory_id = ""
        """The id in the directory's meta.properties, known after the first `look` or `open`."""
        self.mountpoint = ""
        """The mount point of the directory's file system, if known."""
        self.copy: ReplicaFile | None = None
        self.cluster_id: str | None = None
        self._mark = ""
        self.failure: str | None = NOT_OPENED
        """Why the directory is not online; None if it is."""
        self._engine: ReplicaLogManager | None = None
        self._opening, self.files, self.counts = opening, opening.files, opening.counts
        self._warn = warn
        self._failed_before = False
        self._pause_seconds = FIRST_RETRY_SECONDS
        self._next_attempt = 0.0

    def __str__(self) -> str:
        return str(self.path)

    @property
    def set_id(self) -> str:
        """The id of the directory's set; empty if it belongs to no set."""
        return self._mark if self.copy is None else self.copy.set_id

    @property
    def engine(self) -> ReplicaLogManager:
        """The directory's engine. Raises StorageError if the directory is not online."""
        if self._engine is None or self.failure is not None:
            raise StorageError(f"{self.path}: {self.failure}")
        return self._engine

    @property
    def serves(self) -> bool:
        return self.failure is None and self._engine is not None

    @property
    def offline(self) -> str | None:
        """Why the engine went offline; None if it is online, or if the failure is already known."""
        engine = self._engine
        return None if engine is None or self.failure is not None else engine.directories()[0].offline

    @property
    def due(self) -> bool:
        return not self.serves and time.monotonic() >= self._next_attempt

    def look(self) -> None:
        """Read the directory's identity and agreed state. Raises CorruptionError, NotALogDirectoryError, OSError."""
        self.copy = None
        self.check_mounted()
        files = self._opening.files
        try:
            self.copy = read_replica_file(files, self.path)
        finally:  # Read the identity even if the agreed state is damaged.
            meta = read_meta_properties(files, self.path)
            self.directory_id = (meta.directory_id if meta else None) or ""
            self._mark = (meta.set_id if meta else None) or ""
            self.cluster_id = meta.cluster_id if meta else None
        if meta is None and self.copy is not None:
            raise FileNotFoundError(errno.ENOENT, "is missing", str(self.path / names.META_PROPERTIES))
        if self._mark and self.copy is None:
            raise FileNotFoundError(errno.ENOENT, "is missing", str(self.path / names.REPLICAS))
        if meta is None and files.exists(self.path):
            read_contents(files.list_directory(self.path), self.path)

    def check_mounted(self) -> None:
        """Raise OSError if the directory's disk is not mounted: nothing may be written to an empty mount point."""
        if not self.mountpoint or not isinstance(self._opening.files, NativeFileSystem):
            return
        if str(mountpoint_of(self.path)) != self.mountpoint:
            raise FileNotFoundError(errno.ENOENT, f"nothing is mounted at {self.mountpoint}", str(self.path))

    def _check_exists(self) -> None:
        """Raise StorageError if the directory does not exist.

        The error has the same text as the failure of the engine that lost its directory, so that the reason in
        `status` does not change between attempts.
        """
        if not self.files.exists(self.path):
            missing = os.strerror(errno.ENOENT)
            raise StorageError(f"{self.path} failed: {missing}: {self.path / names.META_PROPERTIES}")

    def make(self) -> None:
        """Create the directory unless it exists or the disk is read-only. Blocks. Raises OSError."""
        self.check_mounted()
        if not self.files.read_only and not self.files.exists(self.path):
            self.files.make_directory(self.path, private=True)
            self.files.sync_directory(self.path.parent)

    def open(self, cluster_id: str) -> None:
        """Open the directory, after filling it if it is empty (blocking). Raises StorageError, OSError."""
        self.check_mounted()
        files, settings = self._opening.files, self._opening.settings
        if not files.read_only:
            self._fill(cluster_id)
            if self.copy is not None:
                restore_topic_ids(files, self.path, self.number, self.copy, self._warn)
        engine = open_logs(
            ReplicaLogManager,
            self.path,
            read_only=files.read_only,
            config=settings,
            machine=Machine(
                files=files,
                clock=self._opening.clock,
                flushers=self._opening.flushers,
                failed_before=self._failed_before,
                counts=self._opening.counts,
            ),
        )
        meta = read_meta_properties(files, self.path)
        self.directory_id = (meta.directory_id if meta else None) or ""
        if isinstance(files, NativeFileSystem):
            self.mountpoint = str(mountpoint_of(self.path))
        self._engine, self.failure = engine, None
        self._pause_seconds = FIRST_RETRY_SECONDS

    def _fill(self, cluster_id: str) -> None:
        files = self._opening.files
        if read_meta_properties(files, self.path) is None and self.is_blank():
            meta = MetaProperties(cluster_id, self.number, new_id())
            write_meta_properties(files, self.path, meta, written_at=self._opening.clock())

    def is_blank(self) -> bool:
        """Return whether the directory is readable and has no files, except files that a killed start left."""
        with suppress(OSError):
            entries = self.files.list_directory(self.path) if self.files.exists(self.path) else []
            return all(one.name == names.LOCK or one.name.endswith(TEMPORARY_SUFFIX) for one in entries)
        return False

    def fail(self, reason: str) -> None:
        """Mark the directory as failed; `close` closes its engine."""
        if self.failure is None:
            self.failure = reason
            self._failed_before = True
            self._next_attempt = time.monotonic() + self._pause_seconds
            self._warn(f"{self.path}: {reason}")

    def attempt(self, cluster_id: str, check: Callable[[], None]) -> bool:
        """Reopen the directory unless `check` raises an error; return whether it is online (blocking).

        A missing directory is not created, because then a user who moved it away could not move it back. After each
        failure the pause before the next attempt doubles, up to LONGEST_RETRY_SECONDS.
        """
        self.close()
        try:
            self.look()
            self._check_exists()
            check()
            self.open(cluster_id)
        except (StorageError, OSError) as error:
            reason, before = reason_of(error), self.failure
            self.failure = reason
            if isinstance(error, StorageError) and reason != before:
                self._warn(f"{self.path}: {reason}")
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_RETRY_SECONDS)
            self._next_attempt = time.monotonic() + self._pause_seconds
            return False
        return True

    def close(self) -> None:
        """Close the engine, cleanly if it is online (blocking). Raises OSError if that fails."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        if self.failure is None:
            self.failure = "closed"
            engine.close()
        else:
            with suppress(StorageError, OSError):
                engine.close()

    def write(self, content: ReplicaFile) -> None:
        """Write the agreed state, if possible even on a full disk (blocking). Raises StorageError, OSError."""
        self.engine.lend(lambda: write_replica_file(self.files, self.path, content))
        if self._mark != content.set_id:
            self.engine.lend(lambda: self._write_mark(content.set_id))

    def _write_mark(self, set_id: str) -> None:
        meta = read_meta_properties(self.files, self.path)
        if meta is not None and meta.cluster_id is not None and meta.node_id is not None:
            meta = meta._replace(set_id=set_id)
            write_meta_properties(self.files, self.path, meta, written_at=self._opening.clock())
            self._mark = set_id

    def log(self, partition: TopicPartition) -> Log | None:
        """Return the directory's log of a partition; None if it has no usable log."""
        if not self.serves or self._engine is None:
            return None
        topic = self._engine.topics().get(partition.topic)
        found = None if topic is None else topic.partitions().get(partition.partition)
        return found if isinstance(found, Log) and found.offline_reason is None else None

    def status(self) -> DirectoryStatus:
        engine = self._engine
        partitions = (
            0 if engine is None else sum(len(topic.partitions()) for topic in engine.topics().values())
        )
        return DirectoryStatus(path=str(self.path), offline=self.failure, partitions=partitions)


class ReplicaDirectories:
    def __init__(self, replica_dirs: Sequence[ReplicaDirectory]) -> None:
        self._replica_dirs = tuple(replica_dirs)
        self.files, self.counts = replica_dirs[0].files, replica_dirs[0].counts
        self._by_number = {replica_dir.number: replica_dir for replica_dir in replica_dirs}

    def __iter__(self) -> Iterator[ReplicaDirectory]:
        return iter(self._replica_dirs)

    def __getitem__(self, number: ReplicaId) -> ReplicaDirectory:
        return self._by_number[number]

    def get(self, number: ReplicaId) -> ReplicaDirectory | None:
        return self._by_number.get(number)

    def path_of(self, number: ReplicaId) -> str:
        """Return the path of a directory; its number if the directory was left out."""
        return str(self._by_number.get(number, f"replica {number}"))

    @property
    def serving(self) -> tuple[ReplicaDirectory, ...]:
        return tuple(replica_dir for replica_dir in self if replica_dir.serves)

    def paths(self) -> list[Path]:
        """Return the paths of the directories that are online."""
        return [replica_dir.path for replica_dir in self.serving]


def restore_topic_ids(
    files: FileSystem, path: Path, number: ReplicaId, copy: ReplicaFile, warn: ReportLine
) -> None:
    """Rewrite lost topic ids of partitions from the agreed state's `copy` (blocking). Raises OSError."""
    there = {entry.name for entry in files.list_directory(path) if entry.is_directory}
    for topic, entry in copy.topics.items():
        for partition, state in entry.partitions.items():
            name = str(TopicPartition(topic, partition))
            if number in state.assigned and name in there and topic_id_of(path / name, files) is None:
                write_topic_id_again(files, path / name, entry.topic_id)
                warn(f"{path / name}: its partition.metadata was missing or damaged, and was rewritten")
