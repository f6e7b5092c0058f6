"""Each key's newest offset, in a table of fixed size: 16 bytes of MD5 and 8 of offset a slot.

    slot (24 bytes)   first half of MD5(key) uint64 · second half uint64 · offset + 1 as uint64 (0: the slot is free)

Collisions go to the next slot. The table refuses new keys once nine tenths are taken, and the pass then ends there;
so memory is bounded whatever the log's size. Two keys with one MD5 are taken for one key, as Kafka takes them.
Compiled; also runs as it stands. Source: kafka-storage.md §8, Kafka's SkimpyOffsetMap.
"""

from __future__ import annotations

from hashlib import md5
from mmap import mmap
from struct import Struct

import cython

from storage.codec.columns import Columns

if cython.compiled:
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER

SLOT_BYTES = 24
WORDS = 3
LOAD_FACTOR = 0.9
DEFAULT_BYTES = 134_217_728
"""log.cleaner.dedupe.buffer.size, of which only touched pages take memory."""

_HALVES = Struct("=qq")


class OffsetMap:
    """As many keys as nine tenths of `memory_bytes` hold at 24 bytes each."""

    __slots__ = ("_slots", "_table", "capacity", "size")

    def __init__(self, memory_bytes: int = DEFAULT_BYTES) -> None:
        self._slots = max(memory_bytes // SLOT_BYTES, 2)
        # An anonymous mapping begins as zeros that take no memory until they are touched.
        self._table = memoryview(mmap(-1, self._slots * SLOT_BYTES)).cast("q")
        self.capacity = max(int(self._slots * LOAD_FACTOR), 1)
        """How many keys it takes."""
        self.size = 0
        """How many keys it has."""

    @property
    def full(self) -> bool:
        """Whether a new key would be refused."""
        return self.size >= self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Remember `offset` for `key` unless a larger one is known; False if there is no room for a new key."""
        first, second = _HALVES.unpack(md5(key, usedforsecurity=False).digest())
        slot = _find(self._table, first, second, self._slots)
        if self._table[slot + 2] == 0:
            if self.full:
                return False
            self._table[slot] = first
            self._table[slot + 1] = second
            self.size += 1
        self._table[slot + 2] = max(self._table[slot + 2], offset + 1)
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of `key`, or -1."""
        first, second = _HALVES.unpack(md5(key, usedforsecurity=False).digest())
        return self._table[_find(self._table, first, second, self._slots) + 2] - 1

    def put_records(self, columns: Columns, first: int, last: int, *, start_offset: int) -> bool:
        """Remember the keyed records `first` to `last` (exclusive) from `start_offset` on; False when full."""
        data = columns.data
        offsets, positions, lengths = columns.offsets, columns.key_positions, columns.key_lengths
        for index in range(first, last):
            if lengths[index] < 0 or offsets[index] < start_offset:
                continue
            at: cython.Py_ssize_t = positions[index]
            if not self.put(bytes(data[at : at + lengths[index]]), offsets[index]):
                return False
        return True

    def newest(self, columns: Columns, first: int, last: int) -> list[int]:
        """Indexes of the keyed records in [first, last) than which no newer one of the same key is known."""
        data = columns.data
        offsets, positions, lengths = columns.offsets, columns.key_positions, columns.key_lengths
        kept: list[int] = []
        for index in range(first, last):
            if lengths[index] < 0:
                continue
            at: cython.Py_ssize_t = positions[index]
            if offsets[index] >= self.get(bytes(data[at : at + lengths[index]])):
                kept.append(index)
        return kept


@cython.cfunc
@cython.exceptval(check=False)
def _find(
    view: memoryview, first: cython.longlong, second: cython.longlong, slots: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The first word of the key's slot, or of the free slot where it belongs."""
    table: cython.p_longlong = _int64s(view)
    slot: cython.Py_ssize_t = (first & 0x7FFFFFFFFFFFFFFF) % slots
    while True:
        at: cython.Py_ssize_t = slot * WORDS
        if table[at + 2] == 0 or (table[at] == first and table[at + 1] == second):
            return at
        slot += 1
        if slot == slots:
            slot = 0


@cython.cfunc
@cython.inline
def _int64s(view: memoryview) -> cython.p_longlong:
    if cython.compiled:
        return cython.cast(cython.p_longlong, PyMemoryView_GET_BUFFER(view).buf)
    return view
