"""The data directory's offset checkpoints, read when the directory is opened and written while it is served."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple

from topicfs.storage.checkpoints.offset_checkpoint import read_offsets, write_offsets
from topicfs.storage.directories.offline_partition import loaded_logs
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.engine import Partition
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.recovery.options import Checkpointed

Offsets = Mapping[TopicPartition, Offset]

_SERVED = (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS)


class CheckpointFiles(NamedTuple):
    offsets: Mapping[str, Offsets]
    malformed: frozenset[str]
    """Names of the files that could not be read. They count as empty."""

    @classmethod
    def empty(cls) -> CheckpointFiles:
        return cls(dict.fromkeys((*_SERVED, names.CLEANER_OFFSETS), MappingProxyType({})), frozenset())

    @classmethod
    def read(cls, files: FileSystem, directory: Path, warn: ReportLine) -> CheckpointFiles:
        """Read the files. Like Kafka, warn of a malformed file and treat it as empty. Raises OSError."""
        offsets: dict[str, Offsets] = {}
        malformed: set[str] = set()
        for name in (*_SERVED, names.CLEANER_OFFSETS):
            try:
                offsets[name] = read_offsets(files, directory / name)
            except CorruptionError as error:
                warn(f"{error}; treated as empty")
                offsets[name] = {}
                malformed.add(name)
        return cls(offsets, frozenset(malformed))


class CheckpointWriter:
    """Writes the checkpoint files whose content changed. Safe from any thread.

    Lines of partitions that are not open stay. Call `forget` for removed partitions: otherwise a later topic of the
    same name would count as flushed up to the old offset.
    """

    def __init__(
        self,
        directory: Path,
        files: FileSystem,
        *,
        present: CheckpointFiles,
        lend: Callable[[Callable[[], None]], None] = lambda write: write(),
    ) -> None:
        """Make the writer. `lend` runs a write, if possible even on a full disk (`directories.reserve`)."""
        self._directory = directory
        self._files = files
        self._lend = lend
        self._written = dict(present.offsets)
        self._malformed = set(present.malformed)
        self._unknown_first_dirty = Offset(0) if names.CLEANER_OFFSETS in present.malformed else None
        self._lock = Lock()

    def write_recovery_points(self, partitions: Iterable[Partition]) -> None:
        self._write(names.RECOVERY_POINTS, partitions, lambda log: log.offsets().recovery_point)

    def write_log_start_offsets(self, partitions: Iterable[Partition]) -> None:
        """Write the high watermarks, and then the log starts.

        A log start is written only if it is above the first segment's base offset, which that segment's file name
        shows. The high watermarks come first, because loading believes a log start only if another checkpoint has
        reached it.
        """
        logs = list(partitions)
        self.write_high_watermarks(logs)
        self._write(names.LOG_START_OFFSETS, logs, _start_inside)

    def write_high_watermarks(self, partitions: Iterable[Partition]) -> None:
        self._write(names.HIGH_WATERMARKS, partitions, lambda log: log.offsets().high_watermark)

    def write_first_dirty_offsets(self, partitions: Iterable[Partition]) -> None:
        self._write(names.CLEANER_OFFSETS, partitions, lambda log: log.parts.first_dirty_offset)

    def write_all(self, partitions: Iterable[Partition]) -> None:
        """Write all four checkpoint files. Blocks. Raises OSError."""
        logs = list(partitions)
        self.write_first_dirty_offsets(logs)
        self.write_recovery_points(logs)
        self.write_log_start_offsets(logs)

    def is_fully_checkpointed(self, partition: TopicPartition) -> bool:
        """Return whether the files have the partition's recovery point and high watermark, as after a clean close."""
        with self._lock:
            written = self._written
            return partition in written[names.RECOVERY_POINTS] and partition in written[names.HIGH_WATERMARKS]

    def checkpointed(self, partition: TopicPartition) -> Checkpointed:
        """Return the files' present content for one partition."""
        with self._lock:
            recovery_point, start, high_watermark = (
                self._written[name].get(partition, Offset(0)) for name in _SERVED
            )
        reached = max(recovery_point, high_watermark)
        return Checkpointed(recovery_point, start, high_watermark, reached)

    def first_dirty_offset(self, partition: TopicPartition) -> Offset | None:
        """Return the offset from which the cleaner continues; None before the first cleaning, 0 if it is not known."""
        with self._lock:
            return self._written[names.CLEANER_OFFSETS].get(partition, self._unknown_first_dirty)

    def invalidate(self) -> None:
        """Make the next call write every file, changed or not, because the content on disk is not known."""
        with self._lock:
            self._malformed.update(self._written)

    def partitions(self) -> set[TopicPartition]:
        with self._lock:
            return {partition for offsets in self._written.values() for partition in offsets}

    def forget(self, gone: AbstractSet[TopicPartition]) -> None:
        """Drop the lines of deleted partitions from all files, including the cleaner's checkpoint. Raises OSError."""
        with self._lock:
            for name, offsets in list(self._written.items()):
                self._replace(name, {one: offset for one, offset in offsets.items() if one not in gone})

    def _write(
        self, name: str, partitions: Iterable[Partition], offset_of: Callable[[Log], Offset | None]
    ) -> None:
        with self._lock:
            written = self._written[name]
            changes = {}
            for log in loaded_logs(partitions):
                offset = offset_of(log)
                if written.get(log.parts.partition) != offset and not log.parts.life.now.is_final:
                    changes[log.parts.partition] = offset
            if changes or name in self._malformed:
                offsets = {**written, **changes}
                self._replace(name, {one: offset for one, offset in offsets.items() if offset is not None})

    def _replace(self, name: str, offsets: Offsets) -> None:
        if offsets != self._written[name] or name in self._malformed:
            self._lend(lambda: write_offsets(self._files, self._directory / name, offsets))
            self._written[name] = offsets
            self._malformed.discard(name)


def name_of(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.number)


def _start_inside(log: Log) -> Offset | None:
    """Return a log's start offset if it is above the base offset of the first segment; otherwise None."""
    start = log.log_start_offset  # Called often for every log, so it reads no file.
    return start if start > log.chain.base_offsets[0] else None
