"""The offset index: maps an offset to the position of a batch at or before it.

    slot (8 bytes):  int32 offset - base offset | int32 position in the .log        big-endian

Offsets ascend strictly. An entry has the *last* offset of a batch and the *start* position of the same batch. A batch
with a last offset below the target cannot contain the target, so the forward scan begins at the position of an entry
(kafka-storage.md#offset-index).
"""

from collections.abc import Iterator, MutableSequence, Sequence
from struct import Struct
from typing import NamedTuple

from topicfs.storage.disk.filesystem import File, FileEnds
from topicfs.storage.errors import CorruptionError
from topicfs.storage.indexes.search import NO_SLOT, WARM_BYTES, Key, find_floor
from topicfs.storage.indexes.slots import SlotFile
from topicfs.storage.model import Offset, Position

SLOT = Struct(">ii")
WARM_ENTRIES = WARM_BYTES // SLOT.size
_OFFSET, _POSITION = Key(SLOT.size, 0, 4), Key(SLOT.size, 4, 4)
MAX_RELATIVE_OFFSET = 2**31 - 1


class OffsetPosition(NamedTuple):
    """An index entry; its offset is absolute."""

    offset: Offset
    position: Position


class OffsetIndex:
    """A segment's `.index` file. Changed under the log's lock; any thread may read it."""

    __slots__ = ("_base_offset", "last_offset", "slots")

    def __init__(self, file: File, base_offset: Offset, *, new_bytes: int | None = None) -> None:
        """Open `file` as it is; with `new_bytes`, make a new index preallocated to that size."""
        self.slots = SlotFile(file, SLOT, new_bytes=new_bytes)
        self._base_offset = base_offset
        self.last_offset = self._last_offset()
        """Offset of the last entry; the base offset if there is no entry."""

    @property
    def entries(self) -> int:
        return self.slots.entries

    @property
    def full(self) -> bool:
        return self.slots.entries >= self.slots.capacity

    def entry(self, slot: int) -> OffsetPosition:
        """Return one entry. Raises IndexError if the slot is not used."""
        if not 0 <= slot < self.slots.entries:
            raise IndexError(f"{self.slots.path}: slot {slot} of {self.slots.entries}")
        return self._read(slot, self.slots.used()[0])

    def __iter__(self) -> Iterator[OffsetPosition]:
        return map(self.entry, range(self.slots.entries))

    def append(self, offset: Offset, position: Position) -> None:
        """Add an entry. Raises ValueError if the index is full, or if `offset` is not above that of the last entry."""
        if self.full:
            raise ValueError(f"{self.slots.path}: full with {self.slots.entries} entries")
        if self.slots.entries and offset <= self.last_offset:
            raise ValueError(f"{self.slots.path}: offset {offset} is not above {self.last_offset}")
        self.slots.append(relative(offset, self._base_offset), position)
        self.last_offset = offset

    @property
    def room(self) -> int:
        return self.slots.capacity - self.slots.entries

    def extend(self, entries: Sequence[tuple[int, int]]) -> None:
        """Add entries (last offset, position) that ascend and fit into the index, for a rebuild."""
        base_offset = self._base_offset
        self.slots.extend([(offset - base_offset, position) for offset, position in entries])
        if entries:
            self.last_offset = Offset(entries[-1][0])

    def lookup(self, offset: Offset, probes: MutableSequence[int] | None = None) -> OffsetPosition:
        """Return the last entry not above `offset`; (base offset, 0) if there is no such entry."""
        mapping, _ = self.slots.used()
        relative_offset = offset - self._base_offset
        slot = find_floor(mapping, _OFFSET, relative_offset, warm_entries=WARM_ENTRIES, probes=probes)
        return (
            self._read(slot, mapping) if slot != NO_SLOT else OffsetPosition(self._base_offset, Position(0))
        )

    def last_batch_up_to(self, position: int) -> OffsetPosition | None:
        """Return the entry of the last batch that begins at `position` or before; None if there is no such entry."""
        mapping, _ = self.slots.used()
        slot = find_floor(mapping, _POSITION, position, warm_entries=WARM_ENTRIES)
        return self._read(slot, mapping) if slot != NO_SLOT else None

    def truncate_to(self, offset: Offset) -> None:
        mapping, _ = self.slots.used()
        slot = find_floor(mapping, _OFFSET, offset - 1 - self._base_offset, warm_entries=WARM_ENTRIES)
        self.slots.truncate(slot + 1)
        self.last_offset = self._last_offset()

    def reset(self, size: int) -> None:
        self.slots.reset(size)
        self.last_offset = self._base_offset

    def check(self) -> None:
        """Raise CorruptionError unless the file has whole slots and a plausible last entry. Only tools call this."""
        size = self.slots.file_bytes()
        if size % SLOT.size:
            raise CorruptionError(self.slots.path, size, f"size is not a multiple of {SLOT.size}")
        if self.entries and self.last_offset < self._base_offset:
            raise CorruptionError(
                self.slots.path,
                (self.entries - 1) * SLOT.size,
                f"last offset {self.last_offset} is below the base offset {self._base_offset}",
            )

    def _read(self, slot: int, mapping: memoryview) -> OffsetPosition:
        relative_offset, position = SLOT.unpack_from(mapping, slot * SLOT.size)
        return OffsetPosition(Offset(self._base_offset + relative_offset), Position(position))

    def _last_offset(self) -> Offset:
        last = self.slots.read(self.entries - 1)[0] if self.entries else 0
        return Offset(self._base_offset + last)


def may_end(ends: FileEnds, log_bytes: int) -> bool:
    """Return whether an inactive segment's index may have this size and last slot. Position 0 means an unused slot."""
    if not ends.size or ends.size % SLOT.size:
        return not ends.size
    relative_offset, position = SLOT.unpack(ends.last)
    return bool(relative_offset >= 0 and 0 < position < log_bytes)


def relative(offset: int, base_offset: int) -> int:
    """Return an offset relative to the base offset, as a slot stores it. Raises ValueError outside [0, 2^31-1]."""
    value = offset - base_offset
    if not 0 <= value <= MAX_RELATIVE_OFFSET:
        raise ValueError(f"offset {offset} does not fit a segment based at {base_offset}")
    return value
