"""Checks index entries: each must point to the batch that it names, and their order must be ascending.

An entry is compared when the chunk with its batch is read, so memory stays flat. Brokers up to 3.9 wrote entries with
the last offset of an append's *last* batch and the position of its first batch. Lookups are right with such entries,
too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from struct import Struct

from topicfs.storage.codec.headers import Batches
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError, Finding
from topicfs.storage.indexes import offset_index, time_index, transaction_index
from topicfs.storage.model import Offset, Position


class ChunkColumns:
    """The batches of one chunk, in the form that the checks of the indexes use."""

    def __init__(self, batches: Batches, latest_before: int, position: int = 0) -> None:
        """Store adjacent batches; their positions count from `position` in the file."""
        self.positions: Sequence[int] = [position + at for at in batches.column("position").tolist()]
        self.last_offsets: Sequence[int] = batches.column("last_offset").tolist()
        self.max_timestamps: Sequence[int] = batches.column("max_timestamp").tolist()
        self.latest_timestamps = list(accumulate(self.max_timestamps, max, initial=latest_before))[1:]
        """For each batch, the largest timestamp up to and including it."""
        self.end_position = position + batches.stop

    def ending_at(self, offset: int) -> int | None:
        """Return the index of the batch whose last offset is `offset`; None if there is no such batch."""
        index = bisect_left(self.last_offsets, offset)
        return index if index < len(self.last_offsets) and self.last_offsets[index] == offset else None

    def starting_at(self, position: int) -> int | None:
        """Return the index of the batch that begins at `position`; None if there is no such batch."""
        index = bisect_left(self.positions, position)
        return index if index < len(self.positions) and self.positions[index] == position else None


class Slots:
    """The used slots of an index file, and the number of unused slots (zeros) after them."""

    def __init__(self, file: Path, data: bytes, slot: Struct) -> None:
        self._file = file
        self._data = data
        self._slot = slot
        whole = len(data) // slot.size
        self.used = min(whole, -(-len(data.rstrip(b"\0")) // slot.size))
        self.unused = whole - self.used
        self.stray_bytes = len(data) % slot.size

    def __getitem__(self, slot: int) -> tuple[int, int]:
        first, second = self._slot.unpack_from(self._data, slot * self._slot.size)
        return first, second

    def finding(self, slot: int, cause: str) -> Finding:
        return Finding(self._file, Position(slot * self._slot.size), cause)

    def shape(self, *, trimmed: bool) -> Iterator[Finding]:
        """Check the file's size; if `trimmed`, the file must have no preallocated space left."""
        if self.stray_bytes:
            size = len(self._data)
            yield self.finding(self.used + self.unused, f"size {size} is not a multiple of {self._slot.size}")
        if trimmed and self._slot is time_index.SLOT and (self.used, self.unused) == (0, 1):
            # One slot of zeros is a valid entry if the largest timestamp is 0, at the first offset.
            self.used, self.unused = 1, 0
        if trimmed and self.unused:
            cause = f"{self.unused} unused slots, which a broker takes for entries"
            yield self.finding(self.used, cause)


class OffsetEntries:
    """The entries of an `.index` file; each is compared when its batch is read."""

    def __init__(self, file: Path, data: bytes, base_offset: Offset) -> None:
        self.slots = Slots(file, data, offset_index.SLOT)
        self._base_offset = base_offset
        self._by_position = 0
        self._by_offset = 0

    def ascend(self) -> Iterator[Finding]:
        for slot in range(1, self.slots.used):
            before, entry = self.slots[slot - 1], self.slots[slot]
            if entry[0] <= before[0] or entry[1] <= before[1]:
                cause = f"relative offset {entry[0]} at {entry[1]} after {before[0]} at {before[1]}"
                yield self.slots.finding(slot, cause)

    def compare(self, chunk: ChunkColumns) -> Iterator[Finding]:
        """Compare the entries that point into `chunk`, by position and by offset."""
        while self._by_position < self.slots.used:
            relative, position = self.slots[self._by_position]
            if position >= chunk.end_position:
                break
            batch = chunk.starting_at(position)
            if batch is None:
                yield self.slots.finding(self._by_position, f"no batch begins at position {position}")
            elif chunk.last_offsets[batch] > self._base_offset + relative:
                cause = (
                    f"offset {self._base_offset + relative}, but the batch at {position} "
                    f"ends with offset {chunk.last_offsets[batch]}"
                )
                yield self.slots.finding(self._by_position, cause)
            self._by_position += 1
        while self._by_offset < self.slots.used:
            offset = self._base_offset + self.slots[self._by_offset][0]
            if offset > chunk.last_offsets[-1]:
                break
            if chunk.ending_at(offset) is None:
                yield self.slots.finding(self._by_offset, f"no batch ends with offset {offset}")
            self._by_offset += 1

    def finish(self) -> Iterator[Finding]:
        """Report the entries that point beyond the last batch."""
        for slot in range(min(self._by_position, self._by_offset), self.slots.used):
            relative, position = self.slots[slot]
            cause = f"offset {self._base_offset + relative} at {position} leads beyond the last batch"
            yield self.slots.finding(slot, cause)


class TimeEntries:
    """The entries of a `.timeindex` file; each is compared when the batch that ends at its offset is read."""

    def __init__(self, file: Path, data: bytes, base_offset: Offset) -> None:
        self.slots = Slots(file, data, time_index.SLOT)
        self._base_offset = base_offset
        self._next = 0

    def ascend(self) -> Iterator[Finding]:
        for slot in range(1, self.slots.used):
            before, entry = self.slots[slot - 1], self.slots[slot]
            if entry[0] <= before[0] or entry[1] < before[1]:
                cause = f"timestamp {entry[0]} at relative offset {entry[1]} after {before[0]} at {before[1]}"
                yield self.slots.finding(slot, cause)

    def compare(self, chunk: ChunkColumns) -> Iterator[Finding]:
        """Compare the entries whose offsets are in `chunk`."""
        while self._next < self.slots.used:
            timestamp, relative = self.slots[self._next]
            offset = self._base_offset + relative
            if offset > chunk.last_offsets[-1]:
                break
            batch = chunk.ending_at(offset)
            if batch is None:
                yield self.slots.finding(self._next, f"no batch ends with offset {offset}")
            elif chunk.latest_timestamps[batch] != timestamp:
                latest = chunk.latest_timestamps[batch]
                cause = f"timestamp {timestamp} up to offset {offset}, but the latest one there is {latest}"
                yield self.slots.finding(self._next, cause)
            self._next += 1

    def finish(self) -> Iterator[Finding]:
        """Report the entries that point beyond the last batch."""
        for slot in range(self._next, self.slots.used):
            timestamp, relative = self.slots[slot]
            cause = (
                f"timestamp {timestamp} at offset {self._base_offset + relative} leads beyond the last batch"
            )
            yield self.slots.finding(slot, cause)


def check_transactions(files: FileSystem, path: Path, base_offset: Offset) -> Iterator[Finding]:
    """Check that the entries of a `.txnindex` file ascend by marker, from the segment's base offset on.

    Raises FileNotFoundError.
    """
    try:
        spans = transaction_index.decode(files.read_bytes(path), path)
    except CorruptionError as error:
        yield Finding.of(error)
        return
    before = Offset(base_offset - 1)
    for slot, span in enumerate(spans):
        if span.last_offset <= before or span.first_offset > span.last_offset:
            cause = f"transaction at {span.first_offset} to {span.last_offset} after marker {before}"
            yield Finding(path, Position(slot * transaction_index.SLOT.size), cause)
        before = span.last_offset
