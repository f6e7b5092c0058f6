"""Slices: the parts of segments that a task reads. The planner finds them once, so that tasks need not search."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.source.query.ranges import OffsetRange
from topicfs.storage.checkpoints.partition_metadata import topic_id_of
from topicfs.storage.codec.aborted_filter import still_aborted
from topicfs.storage.codec.columns import Columns, decode, decode_each
from topicfs.storage.disk.filesystem import File, FileSystem
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import CorruptBatchError, CorruptionError
from topicfs.storage.log.log import Log
from topicfs.storage.model import AbortedTransaction, Isolation, Offset
from topicfs.storage.segment.chain import overlapping
from topicfs.storage.segment.scan import Window, windows

_LOGGER = logging.getLogger(__name__)

NO_INODE = -1
"""Stands for the unknown inode of a file that appeared after its directory was listed.

A task that reads such a file has to be planned again.
"""
SLICE_WINDOW_BYTES = 4 << 20
"""Bytes that are read and decoded at a time: about 40,000 small records."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a segment's file that begins at a batch."""

    file: str
    position: int
    end_position: int
    """Position, at the time of planning, after the last batch to read."""
    inode: int
    """Inode of the file. A different inode shows that compaction has replaced the file, perhaps by a larger file."""
    base_offset: int
    """Base offset of the batch at `position`."""
    checksum: int
    """Checksum of the batch at `position`. The inode is not enough: a new file may get the inode of a removed file."""


@dataclass(frozen=True, slots=True)
class Task:
    """A range of a partition, and the slices that contain it."""

    range: OffsetRange
    slices: tuple[Slice, ...]
    aborted: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions, by ascending first offset. Their records are left out."""
    topic_id: str | None = None
    """ID that identifies the topic even if its name is used again; None if no file has the ID."""


def plan_task(
    log: Log, wanted: OffsetRange, isolation: Isolation, *, topic_id: str | None, inodes: Mapping[str, int]
) -> Task:
    """Find the slices for `wanted` (blocking). The `inodes` were read before the log. Raises StorageError."""
    aborted: tuple[AbortedTransaction, ...] = ()
    if isolation is Isolation.READ_COMMITTED:
        aborted = overlapping(log.aborted, wanted.start_offset, wanted.end_offset)
    slices = tuple(_slices(log, wanted.start_offset, wanted.end_offset, inodes))
    return Task(wanted, slices, aborted, topic_id)


def _slices(log: Log, start_offset: int, end_offset: int, inodes: Mapping[str, int]) -> Iterator[Slice]:
    if start_offset >= end_offset:
        return
    for segment in log.chain.segments[log.chain.floor(Offset(start_offset)) :]:
        if segment.base_offset >= end_offset:
            return
        first = segment.find_batch(start_offset, segment.size)
        if first is None or first.base_offset >= end_offset:
            continue
        last = segment.find_batch(end_offset - 1, segment.size)
        end_position = segment.size if last is None else last.end_position
        path, position = segment.log.path, first.position
        inode = inodes.get(path.name, NO_INODE)
        yield Slice(str(path), position, end_position, inode, first.base_offset, first.checksum)


class SegmentChangedError(PipelineError):
    """A file has changed since the task was planned, so that the task must be planned again."""


class SliceReader:
    """Reads a task's records as columns, and counts the corrupt batches that it skipped."""

    def __init__(self, task: Task, *, skip_corrupt: bool, create_times: bool = False) -> None:
        """Prepare to read. With `create_times`, batches that the broker stamped also get the producers' timestamps."""
        self._task = task
        self._skip_corrupt = skip_corrupt
        self._create_times = create_times
        self._aborted = task.aborted
        self.skipped_batches = 0
        self.next_offset = task.range.start_offset
        """Every record below this offset was returned, or does not exist."""

    def __iter__(self) -> Iterator[tuple[Columns, int, int]]:
        """Yield columns and the range of records to read. Raises CorruptionError, SegmentChangedError, OSError."""
        files = NativeFileSystem(read_only=True)
        for one in self._task.slices:
            try:
                with closing(files.open(Path(one.file), read_only=True)) as file:
                    self._check_identity(one, files)
                    yield from self._read(one, file)
            except FileNotFoundError:
                raise SegmentChangedError(f"{one.file}: removed since it was planned") from None
        self.next_offset = self._task.range.end_offset

    def _check_identity(self, one: Slice, files: FileSystem) -> None:
        """Check inode and topic ID of a file against the plan. Raises FileNotFoundError, SegmentChangedError."""
        path = Path(one.file)
        if path.stat().st_ino != one.inode:
            raise SegmentChangedError(f"{path}: replaced since it was planned")
        if self._task.topic_id is not None and topic_id_of(path.parent, files) != self._task.topic_id:
            raise SegmentChangedError(f"{path.parent}: belongs to another topic since it was planned")

    def _read(self, one: Slice, file: File) -> Iterator[tuple[Columns, int, int]]:
        begun = False
        for window in windows(file, one.position, one.end_position, window_bytes=SLICE_WINDOW_BYTES):
            if not begun:
                begun = True
                self._check_same(one, file, window)
            for columns in self._decode(one, window):
                start = columns.find(self.next_offset)
                end = columns.find(self._task.range.end_offset)
                if start < end:
                    yield columns, start, end
            if len(window.batches):
                self.next_offset = max(self.next_offset, window.batches[-1].end_offset)
            if window.problem is not None:
                self._skip(one, window.position + window.problem.position, window.problem.cause)

    def _check_same(self, one: Slice, file: File, window: Window) -> None:
        first = window.batches[0] if len(window.batches) else one
        same = (first.base_offset, first.checksum) == (one.base_offset, one.checksum)
        if file.size() < one.end_position or not same:
            raise SegmentChangedError(f"{one.file}: rewritten since it was planned")

    def _decode(self, one: Slice, window: Window) -> Iterator[Columns]:
        batches, at = window.batches, 0
        try:
            for columns in decode_each(
                window.data, 0, batches.stop, aborted=self._aborted, create_times=self._create_times
            ):
                yield columns
                at = columns.batches.stop
        except CorruptBatchError as error:
            if not self._skip_corrupt:
                raise _corrupt(one, window.position + error.position, error.cause) from None
        else:
            self._aborted = still_aborted(self._aborted, batches) if self._aborted else ()
            return
        yield from self._decode_one_by_one(one, window, at)

    def _decode_one_by_one(self, one: Slice, window: Window, at: int) -> Iterator[Columns]:
        """Decode the batches of a window from the position `at` on, and skip corrupt batches."""
        for batch in window.batches:
            if batch.position < at:
                self._aborted = still_aborted(self._aborted, [batch])
                continue
            try:
                found = decode(
                    window.data,
                    batch.position,
                    batch.end_position,
                    aborted=self._aborted,
                    create_times=self._create_times,
                )
            except CorruptBatchError as error:
                self._skip(one, window.position + error.position, error.cause)
                continue
            yield from found
            self._aborted = still_aborted(self._aborted, [batch])

    def _skip(self, one: Slice, position: int, cause: str) -> None:
        """Count and log a corrupt batch, or raise CorruptionError."""
        if not self._skip_corrupt:
            raise _corrupt(one, position, cause)
        self.skipped_batches += 1
        error = CorruptionError(one.file, position, cause)
        _LOGGER.warning("%s: skipped a corrupt batch: %s", self._task.range.partition, error)


def _corrupt(one: Slice, position: int, cause: str) -> CorruptionError:
    return CorruptionError(one.file, position, f"{cause}; corruptBatches=skip leaves such batches out")
