"""The time index: maps a timestamp to an offset that is not after the first record with that timestamp or a later one.

    slot (12 bytes):  int64 timestamp | int32 offset - base offset                  big-endian

Timestamps ascend strictly, offsets never descend. An entry gives the largest timestamp of all records up to and
including its offset, which is the last offset of a batch. The last slot is reserved for the entry that every segment
gets when it becomes inactive, so the index counts as full one entry early (kafka-storage.md#time-index).
"""

from collections.abc import Callable, Iterator, MutableSequence, Sequence
from struct import Struct
from typing import NamedTuple

from topicfs.storage.disk.filesystem import File, FileEnds
from topicfs.storage.errors import CorruptionError
from topicfs.storage.indexes.offset_index import relative
from topicfs.storage.indexes.search import NO_SLOT, WARM_BYTES, Key, find_floor
from topicfs.storage.indexes.slots import SlotFile
from topicfs.storage.model import NO_TIMESTAMP, Offset, Timestamp

SLOT = Struct(">qi")
WARM_ENTRIES = WARM_BYTES // SLOT.size
_TIMESTAMP, _OFFSET = Key(SLOT.size, 0, 8), Key(SLOT.size, 8, 4)


class TimeEntry(NamedTuple):
    """An index entry; its offset is absolute."""

    timestamp: Timestamp
    offset: Offset


UNUSED = TimeEntry(Timestamp(0), Offset(0))
"""The content of an unused slot."""


class TimeIndex:
    """A segment's `.timeindex` file. Changed under the log's lock; any thread may read it."""

    __slots__ = ("_base_offset", "last", "slots")

    def __init__(self, file: File, base_offset: Offset, *, new_bytes: int | None = None) -> None:
        """Open `file` as it is; with `new_bytes`, make a new index preallocated to that size."""
        self.slots = SlotFile(file, SLOT, new_bytes=new_bytes)
        self._base_offset = base_offset
        self.last = self._last()
        """The last entry; (-1, base offset) if there is no entry."""

    @property
    def entries(self) -> int:
        return self.slots.entries

    @property
    def full(self) -> bool:
        """True if only the slot for the final entry is left."""
        return self.slots.entries >= self.slots.capacity - 1

    def entry(self, slot: int) -> TimeEntry:
        """Return one entry. Raises IndexError if the slot is not used."""
        if not 0 <= slot < self.slots.entries:
            raise IndexError(f"{self.slots.path}: slot {slot} of {self.slots.entries}")
        return self._read(slot, self.slots.used()[0])

    def __iter__(self) -> Iterator[TimeEntry]:
        return map(self.entry, range(self.slots.entries))

    def append(self, timestamp: Timestamp, offset: Offset, *, final: bool = False) -> None:
        """Add an entry if it is the latest; only a `final` one may take the last slot. Raises ValueError if full."""
        if self.full and not final:
            raise ValueError(f"{self.slots.path}: full with {self.slots.entries} entries")
        if self.slots.entries and (offset < self.last.offset or timestamp < self.last.timestamp):
            raise ValueError(
                f"{self.slots.path}: entry ({timestamp}, {offset}) is below the last one {tuple(self.last)}"
            )
        if timestamp > self.last.timestamp:
            self.slots.append(timestamp, relative(offset, self._base_offset))
            self.last = TimeEntry(timestamp, offset)

    @property
    def room(self) -> int:
        """Number of entries that still fit, except the final entry."""
        return max(0, self.slots.capacity - 1 - self.slots.entries)

    def extend(self, entries: Sequence[TimeEntry]) -> None:
        """Add ascending entries that fit into the index, for a rebuild."""
        base_offset = self._base_offset
        self.slots.extend([(timestamp, offset - base_offset) for timestamp, offset in entries])
        if entries:
            self.last = entries[-1]

    def lookup(self, timestamp: Timestamp, probes: MutableSequence[int] | None = None) -> TimeEntry:
        """Return the last entry not above `timestamp`; (-1, base offset) if there is no such entry."""
        mapping, _ = self.slots.used()
        slot = find_floor(mapping, _TIMESTAMP, timestamp, warm_entries=WARM_ENTRIES, probes=probes)
        return self._read(slot, mapping) if slot != NO_SLOT else TimeEntry(NO_TIMESTAMP, self._base_offset)

    def truncate_to(self, offset: Offset) -> None:
        """Drop all entries with offsets at or above `offset`, whatever their timestamps are."""
        mapping, _ = self.slots.used()
        slot = find_floor(mapping, _OFFSET, offset - 1 - self._base_offset, warm_entries=WARM_ENTRIES)
        # Several entries may have the same offset, because only timestamps ascend strictly: take the last of
        # them.
        while slot != NO_SLOT and slot + 1 < self.entries and self.entry(slot + 1).offset < offset:
            slot += 1
        self.slots.truncate(slot + 1)
        self.last = self._last()

    def reset(self, size: int) -> None:
        self.slots.reset(size)
        self.last = self._last()

    def check(self) -> None:
        """Raise CorruptionError unless the file has whole slots and a plausible last entry. Only tools call this."""
        size = self.slots.file_bytes()
        if size % SLOT.size:
            raise CorruptionError(self.slots.path, size, f"size is not a multiple of {SLOT.size}")
        if not self.entries:
            return
        position = (self.entries - 1) * SLOT.size
        if self.last.timestamp < self.entry(0).timestamp:
            cause = f"last timestamp {self.last.timestamp} is below the first {self.entry(0).timestamp}"
            raise CorruptionError(self.slots.path, position, cause)
        if self.last.offset < self._base_offset:
            cause = f"last offset {self.last.offset} is below the base offset {self._base_offset}"
            raise CorruptionError(self.slots.path, position, cause)

    def _read(self, slot: int, mapping: memoryview) -> TimeEntry:
        timestamp, relative_offset = SLOT.unpack_from(mapping, slot * SLOT.size)
        return TimeEntry(Timestamp(timestamp), Offset(self._base_offset + relative_offset))

    def _last(self) -> TimeEntry:
        if not self.entries:
            return TimeEntry(NO_TIMESTAMP, self._base_offset)
        timestamp, relative_offset = self.slots.read(self.entries - 1)
        return TimeEntry(Timestamp(timestamp), Offset(self._base_offset + relative_offset))


def may_end(ends: FileEnds, first_batch: Callable[[], TimeEntry], *, has_later: Callable[[], bool]) -> bool:
    """Return whether an inactive segment may have this index, judged by its size and its first and last slots.

    `first_batch` reads the largest timestamp and the last offset, relative to the base offset, of the segment's first
    batch. `has_later` looks for a later timestamp in the other batches. An index may be empty only if no batch has a
    timestamp. A slot of zeros may also be an entry. It counts as an entry only if the first batch has the timestamp
    and offset of this entry, and no other batch has a later timestamp.
    """
    if not ends.size:
        return first_batch().timestamp < 0 and not has_later()
    if ends.size % SLOT.size:
        return False
    last_timestamp, last_offset = SLOT.unpack(ends.last)
    if (last_timestamp, last_offset) == UNUSED:
        return ends.size == SLOT.size and first_batch() == UNUSED and not has_later()
    first_timestamp, _ = SLOT.unpack(ends.first)
    return bool(last_offset >= 0 and last_timestamp >= first_timestamp)
