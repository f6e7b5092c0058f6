"""A segment: one range of a log, in files named after its first offset (kafka-storage.md#segment-files).

    <base offset>.log          record batches, one after the other
    <base offset>.index        sparse: offsets with their positions
    <base offset>.timeindex    sparse: timestamps with their offsets
    <base offset>.txnindex     the aborted transactions whose markers are here, if there are any

Sparse means: a batch gets index entries if more than index.interval.bytes of batches are between it and the last
batch with entries (kafka-storage.md#sparse-entries). An index file is made when it is first needed.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.codec.headers import Batches, BatchHeader
from topicfs.storage.disk.filesystem import File
from topicfs.storage.disk.memory import MemoryFile
from topicfs.storage.disk.names import SegmentFileKind, SegmentFileState, segment_file
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.indexes.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex, relative
from topicfs.storage.indexes.slots import SlotFile
from topicfs.storage.indexes.time_index import TimeEntry, TimeIndex
from topicfs.storage.indexes.transaction_index import AbortedSpan, TransactionIndex
from topicfs.storage.model import MAX_OFFSET, NO_TIMESTAMP, Buffer, Offset, Position, Timestamp, later
from topicfs.storage.segment.roll import SegmentDirectory, SegmentSettings
from topicfs.storage.segment.scan import LOOKUP_WINDOW_BYTES, SCAN_WINDOW_BYTES, FoundBatch, windows
from topicfs.storage.segment.sparse import Placed, SparseState, due_entries, fitting

if TYPE_CHECKING:
    from topicfs.storage.segment.trace import LookupTrace

LARGEST_SLOT_BYTES = 12

_Index = TypeVar("_Index", OffsetIndex, TimeIndex)


class Segment:
    """A segment. Changed under the log's lock; any thread may read the batches below the log's published end."""

    def __init__(
        self,
        directory: SegmentDirectory,
        base_offset: Offset,
        settings: SegmentSettings,
        *,
        log: File | None = None,
        state: SegmentFileState = SegmentFileState.LIVE,
    ) -> None:
        """Open the segment whose `.log` is in `directory`, or whose batches are in `log`. Raises FileNotFoundError."""
        self.base_offset = base_offset
        self.state = state
        """The temporary suffix of the segment's files."""
        self.settings = settings
        self._directory, self._files, self._clock = directory
        self.log = log or self._files.open(self._path(SegmentFileKind.LOG))
        self.size = self.log.size()
        """Size of the batches. A preallocated file is larger."""
        self.created_ms = self._clock()
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        self.may_have_aborted = True
        """False if there is no transaction index, so that readers need not open it."""
        self._opening = threading.Lock()
        self._largest: TimeEntry | None = None
        self._first_timestamp: Timestamp | None = None
        self.counted_from = self.size
        """Position from which bytes count toward the next index entries: the last batch with entries, or the start."""
        self.bytes_until_due = 0
        """Number of bytes that can be appended before an index entry or a roll may be due. Only for batches that are
        not later than `latest_timestamp`.
        """
        self.latest_timestamp: int = NO_TIMESTAMP
        self._names: tuple[str, ...] | None = None
        self.removed = False
        """True if the segment was removed from the log. Its files are then named `.deleted`, or are gone."""
        self.active = False
        """True if the segment's indexes have their full size."""
        self.index_full = False
        """True if an index accepts no more entries. Only kept up to date while the segment is active."""

    @classmethod
    def create(
        cls,
        directory: SegmentDirectory,
        base_offset: Offset,
        settings: SegmentSettings,
        state: SegmentFileState = SegmentFileState.LIVE,
    ) -> Segment:
        """Make a new, empty segment, which has only a `.log`. Raises OSError, and then leaves no file behind."""
        name = segment_file(base_offset, SegmentFileKind.LOG, state)
        file = directory.files.open(directory.path / name, create=True)
        file.truncate(settings.preallocated_bytes)
        segment = cls(directory, base_offset, settings, log=file, state=state)
        segment.size = 0
        segment.active = True
        return segment

    # Properties.

    @property
    def offset_index(self) -> OffsetIndex:
        return self._offset_index or self._open_offset_index()

    @property
    def time_index(self) -> TimeIndex:
        return self._time_index or self._open_time_index()

    @property
    def transaction_index(self) -> TransactionIndex:
        """The segment's transaction index. Raises CorruptionError if its file is invalid."""
        if self._transaction_index is None:
            path = self._path(SegmentFileKind.TRANSACTION_INDEX)
            self._transaction_index = TransactionIndex(self._files, path, self.base_offset)
        return self._transaction_index

    def add_aborted(self, span: AbortedSpan) -> None:
        """Add an abort marker's entry to the transaction index; the first entry makes the file."""
        self.may_have_aborted = True
        with self._opening:
            self._names = None
            self.transaction_index.append(span)

    @property
    def largest(self) -> TimeEntry:
        """The largest timestamp, and the last offset of the batch that has it; (-1, base offset) if there is none."""
        if self._largest is None:
            self._largest = self.time_index.last if self.size else TimeEntry(NO_TIMESTAMP, self.base_offset)
        return self._largest

    @property
    def largest_timestamp(self) -> Timestamp:
        """Largest timestamp of the records, or else the file's modification time (kafka-storage.md#time-lookups)."""
        timestamp = (self._largest or self.largest).timestamp
        return timestamp if timestamp >= 0 else self.modified_time

    @property
    def first_timestamp(self) -> Timestamp:
        """Max timestamp of the first batch, from which segment.ms counts; -1 if there is no batch."""
        if self._first_timestamp is None:
            first = self.read_first_batch()
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    @property
    def modified_time(self) -> Timestamp:
        return self._files.modified_time_ms(self.log.path)

    def set_modified_time(self, modified_time: Timestamp) -> None:
        """Set the log file's modification time, which retention may use. A compacted segment gets its sources' time."""
        self._files.set_modified_time(self.log.path, modified_time)

    def file_names(self) -> tuple[str, ...]:
        """Return the names of the segment's existing files, `.log` first."""
        with self._opening:  # Otherwise the cached names could lack a file that a reader is making.
            if self._names is None:
                names = (segment_file(self.base_offset, kind, self.state) for kind in SegmentFileKind)
                self._names = tuple(name for name in names if self._files.exists(self._directory / name))
            return self._names

    # Searching.

    def find_batch(self, offset: int, end: int, trace: LookupTrace | None = None) -> BatchHeader | None:
        """Return the first batch before position `end` that ends at or above `offset`. Raises CorruptionError."""
        found = self.read_batch(offset, end, trace)
        return found and found[1]._replace(position=Position(found[0].position + found[1].position))

    def read_batch(self, offset: int, end: int, trace: LookupTrace | None = None) -> FoundBatch | None:
        """Do what `find_batch` does, but also return the window of the batch.

        The position in the returned header counts from the start of the window.
        """
        index, target = self.offset_index, Offset(offset)
        start = trace.find_position(index, target) if trace else index.lookup(target).position
        if trace:
            trace.begin_scan(self.log.path.name, start)
        first = None if trace else offset
        for window in windows(self.log, start, end, window_bytes=LOOKUP_WINDOW_BYTES, offset=first):
            found = bisect_left(window.batches.column("last_offset"), offset)
            if trace:
                for batch in list(window.batches)[:found]:
                    trace.pass_batch(window.position, batch)
            if found < len(window.batches):
                batch = window.batches[found]
                if trace:
                    trace.take_batch(window.position, batch)
                return window, batch
            window.raise_problem(self.log)
        return None

    def read_first_batch(self) -> BatchHeader | None:
        """Return the header of the first batch; None if there is no batch."""
        if not self.size:
            return None
        window = next(windows(self.log, 0, self.size, window_bytes=HEADER_SIZE))
        return window.batches[0] if len(window.batches) else None

    # Appending.

    def append(self, data: Buffer, batches: Sequence[Placed]) -> None:
        """Write whole batches and index entries, all or none. Raises ValueError (offsets), PartitionOfflineError."""
        relative(batches[-1][1], self.base_offset)
        counted_from, largest = self.counted_from, self._largest or self.largest
        position = self.size
        self._write(data)
        try:
            self._index_batches(batches, position, largest.timestamp)
        except BaseException:
            self.counted_from, self._largest = counted_from, largest
            self._cut_back(position, Offset(batches[0][1]))
            raise

    def extend(self, batch: bytearray, last_offset: int, max_timestamp: int) -> None:
        """Do what `append` does, for a batch that fits `bytes_until_due` and is not later than `latest_timestamp`."""
        position = self.size
        try:  # The code of `_write`, repeated here because most appends come here, once per replica.
            self.log.pwrite(batch, Position(position))
        except OSError:
            self._cut_back(position)
            raise
        size = len(batch)
        self.size = position + size
        self.bytes_until_due -= size
        if max_timestamp > (self._largest or self.largest).timestamp:
            self._largest = TimeEntry(Timestamp(max_timestamp), Offset(last_offset))

    def _write(self, batches: Buffer) -> None:
        position = self.size
        try:
            self.log.pwrite(batches, Position(position))
        except OSError:
            self._cut_back(position)
            raise
        self.size = position + len(batches)
        self.bytes_until_due -= len(batches)

    def look_ahead(self, max_bytes: int, max_ms: int, last_offset: int) -> None:
        """Note how many bytes may be appended before an index entry, or a roll by these limits, can be due."""
        next_entry = self.counted_from + self.settings.index_interval_bytes
        # A limit on bytes also limits the offsets, because a record takes more than one byte.
        offsets = min(self.base_offset + MAX_RELATIVE_OFFSET, MAX_OFFSET) - last_offset
        if self.index_full or self.first_timestamp < 0:
            offsets = 0
        self.bytes_until_due = min(next_entry - self.size, max_bytes - self.size, offsets)
        self.latest_timestamp = later(self.first_timestamp, max_ms - self.settings.jitter_ms)

    def _cut_back(self, position: int, indexed_from: Offset | None = None) -> None:
        """Undo an append that began at `position`; with `indexed_from`, also its index entries from that offset on."""
        self.size = position
        try:
            self.log.truncate(position)
            if indexed_from is not None:
                for (
                    index
                ) in self._indexes():  # An index that could not be opened has no entries of this append.
                    index.truncate_to(indexed_from)
        except OSError as error:
            raise PartitionOfflineError(
                f"{self.log.path}: a failed write could not be undone: {error}"
            ) from error

    def _index_batches(self, batches: Sequence[Placed], position: int, largest: Timestamp) -> None:
        interval_bytes = self.settings.index_interval_bytes
        if not position:
            self._first_timestamp = Timestamp(batches[0][2])
        for size_bytes, last_offset, max_timestamp in batches:
            if max_timestamp > largest:
                largest = Timestamp(max_timestamp)
                self._largest = TimeEntry(largest, Offset(last_offset))
            if position - self.counted_from > interval_bytes:
                self._add_entries(Offset(last_offset), Position(position))
            position += size_bytes

    def index_window(self, batches: Batches, count: int, position: int) -> None:
        """Make the index entries of `count` adjacent batches that the log has from `position` on. For recovery."""
        if count and not position + batches[0].position:
            self._first_timestamp = batches[0].max_timestamp
        interval = self.settings.index_interval_bytes
        state = SparseState(self.counted_from, self.largest)
        due = due_entries(state, batches, count, position=position, interval_bytes=interval)
        self.counted_from, self._largest = due.state
        offsets, times = self.offset_index, self.time_index
        entries, maxima = fitting(due, last=times.last, offset_room=offsets.room, time_room=times.room)
        offsets.extend(entries)
        times.extend(maxima)
        self.index_full = offsets.full or times.full

    def _add_entries(self, last_offset: Offset, position: Position) -> None:
        # An index is full only if an append, or a rebuild with smaller settings, has more entries than fit.
        # It then stays too sparse, which only makes lookups slower.
        offsets, times = self.offset_index, self.time_index
        if not (offsets.full or times.full):
            offsets.append(last_offset, position)
            times.append(*self.largest)
        self.index_full = offsets.full or times.full
        self.counted_from = position

    # Closing, opening, truncating.

    def create_indexes(self) -> None:
        """Make the index files that do not exist, because after a clean close every segment has them."""
        self._open_offset_index(create=True)
        self._open_time_index(create=True)

    def activate(self, *, reserve: bool = False) -> None:
        """Prepare for appends: extend the index files to their full size.

        With `reserve`, each index file is extended only when its next entry is written.
        """
        self.active, self.bytes_until_due = True, 0
        for slots in (self.offset_index.slots, self.time_index.slots):
            (slots.reserve if reserve else slots.resize)(self.settings.index_bytes)
        self.index_full = self.offset_index.full or self.time_index.full

    def deactivate(self) -> None:
        """Add the final time entry and trim all files, as a roll and a clean close do."""
        self.create_indexes()
        if self.size:
            self.time_index.append(*self.largest, final=True)
        self.active = False
        for index in self._indexes():
            index.slots.trim()
        if self.log.size() != self.size:
            self.log.truncate(self.size)

    def reset(self) -> None:
        """Start again as a new, empty segment at the same base offset. Only for a segment that never had a batch."""
        assert self.size == 0, f"{self.log.path} holds {self.size} bytes"
        self.created_ms = self._clock()
        self.truncate_indexes()
        self.activate()

    def truncate_to(self, offset: Offset) -> None:
        """Drop the batch with `offset` (after a gap: the next one) and all later batches; the segment stays active."""
        found = self.find_batch(offset, self.size)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.activate()
        if found is not None:
            self.cut(found.position)
        self.counted_from = self.size
        self._largest = self._read_largest()

    def cut(self, position: int) -> None:
        """Cut the log file at `position`."""
        self.log.truncate(position)
        self.size = position
        if not position:
            self.created_ms = self._clock()
            self._first_timestamp = None

    def truncate_indexes(self) -> None:
        """Drop all index entries and the values derived from them, before they are rebuilt."""
        self.create_indexes()
        self.offset_index.reset(self.settings.index_bytes)
        self.time_index.reset(self.settings.index_bytes)
        self._forget()

    def count_like(self, other: Segment) -> None:
        """Count bytes toward the next index entries from the same position as `other`, which has the same batches."""
        self.counted_from, self._largest = other.counted_from, other.largest

    def _forget(self) -> None:
        self._largest = TimeEntry(NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None
        self.counted_from = 0

    def forget_indexes(self) -> None:
        """Note that other files replaced the index files; the next lookup opens them."""
        self._offset_index = self._time_index = self._names = None
        self._largest = self._first_timestamp = None

    def begin_rebuild(self) -> None:
        """Forget the indexes and treat the log as empty; on a read-only disk, the new indexes are in memory."""
        if self._files.read_only:
            self._offset_index = self._in_memory(OffsetIndex, SegmentFileKind.OFFSET_INDEX)
            self._time_index = self._in_memory(TimeIndex, SegmentFileKind.TIME_INDEX)
            self._forget()
        else:
            self.truncate_indexes()
        path = self._path(SegmentFileKind.TRANSACTION_INDEX)
        self._transaction_index = TransactionIndex(self._files, path, self.base_offset, empty=True)
        self._names = None
        self.size = 0

    def use_offset_index(self, file: File) -> None:
        """Write the offset index of a rebuild into `file`, which gets its final name later."""
        self._offset_index = OffsetIndex(file, self.base_offset, new_bytes=self.settings.index_bytes)

    def end_rebuild(self) -> None:
        """Add the final time entry; unless the disk is read-only, cut every file to its valid part."""
        if self._files.read_only:
            if self.size:
                self.time_index.append(*self.largest, final=True)
        else:
            self.deactivate()

    def sync(self) -> None:
        self.log.sync()
        for file in self._index_files():
            file.sync()

    def end_activity(self) -> None:
        """Stop readers from making files for the segment, and wait until a file that is being made is complete."""
        with self._opening:
            self.active = False

    def retired(self) -> None:
        """Note that the segment's files were renamed to `.deleted`. Readers that have the segment can continue."""
        self.removed = True
        self._rename(SegmentFileState.DELETED)
        self._names = ()

    def renamed(self, state: SegmentFileState) -> None:
        """Note that the segment's files were renamed to the temporary suffix of `state`, or to no suffix."""
        self._rename(state)
        self._names = None

    def _rename(self, state: SegmentFileState) -> None:
        old, self.state = self.state, state
        self._move(lambda path: path.with_name(path.name.removesuffix(old.value) + state.value))

    def moved(self, directory: Path) -> None:
        self._directory = directory
        self._move(lambda path: directory / path.name)

    def close(self) -> None:
        self.log.close()
        for file in self._index_files():
            file.close()

    def _move(self, new_path: Callable[[Path], Path]) -> None:
        self.log.moved(new_path(self.log.path))
        for file in self._index_files():
            file.moved(new_path(file.path))

    def _path(self, kind: SegmentFileKind) -> Path:
        return self._directory / segment_file(self.base_offset, kind, self.state)

    def _index_files(self) -> Iterator[SlotFile | TransactionIndex]:
        yield from (index.slots for index in self._indexes())
        if self._transaction_index is not None:
            yield self._transaction_index

    def _indexes(self) -> Iterator[OffsetIndex | TimeIndex]:
        yield from (index for index in (self._offset_index, self._time_index) if index is not None)

    def _read_largest(self) -> TimeEntry:
        """Return the last time entry, or the largest timestamp of the batches after it if that is larger."""
        largest = self.time_index.last
        start = self.offset_index.lookup(largest.offset).position
        for window in windows(self.log, start, self.size, window_bytes=SCAN_WINDOW_BYTES):
            for batch in window.batches:
                if batch.max_timestamp > largest.timestamp:
                    largest = TimeEntry(batch.max_timestamp, batch.last_offset)
        return largest

    def _open_offset_index(self, *, create: bool = False) -> OffsetIndex:
        with self._opening:
            if self._offset_index is None:
                kind = SegmentFileKind.OFFSET_INDEX
                self._offset_index = self._open_index(OffsetIndex, kind, create=create)
            return self._offset_index

    def _open_time_index(self, *, create: bool = False) -> TimeIndex:
        with self._opening:
            if self._time_index is None:
                self._time_index = self._open_index(TimeIndex, SegmentFileKind.TIME_INDEX, create=create)
            return self._time_index

    def _open_index(self, index: Callable[..., _Index], kind: SegmentFileKind, *, create: bool) -> _Index:
        path = self._path(kind)
        if self._files.exists(path):
            opened = index(self._files.open(path), self.base_offset)
            if (
                self.active and not self._files.read_only
            ):  # The file may be incomplete, because the disk is full.
                opened.slots.resize(self.settings.index_bytes)
            return opened
        if self._files.read_only:
            return self._in_memory(index, kind)
        # A reader of a segment that is being removed must not take a missing index for an empty index.
        file = self._files.open(path, create=create or self.active)
        self._names = None
        return index(file, self.base_offset, new_bytes=self.settings.index_bytes if self.active else 0)

    def _in_memory(self, index: Callable[..., _Index], kind: SegmentFileKind) -> _Index:
        file = MemoryFile(self._path(kind))
        # Entries are at least index.interval.bytes apart, and a file preallocated to full size would take
        # memory.
        max_entries = self.size // max(1, self.settings.index_interval_bytes) + 2
        new_bytes = min(self.settings.index_bytes, max_entries * LARGEST_SLOT_BYTES)
        return index(file, self.base_offset, new_bytes=new_bytes)
