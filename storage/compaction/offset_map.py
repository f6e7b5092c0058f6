"""Each key's newest offset, in a table of fixed size: 126 bits of MD5 and an offset a slot.

    slot (24 bytes)   63 bits of MD5(key) int64 · 63 others int64 · offset + 1 as int64 (0: the slot is free)

Collisions go to the next slot. The table refuses new keys once nine tenths are taken, and the pass then ends there;
so memory is bounded whatever the log's size. Two keys with one digest are taken for one key, as Kafka takes them.
Compiled; also runs as it stands. Source: kafka-storage.md §8, Kafka's SkimpyOffsetMap.
"""

from __future__ import annotations

from functools import partial
from hashlib import md5
from mmap import mmap

import cython

from storage.codec.columns import Columns
from storage.compaction.survivors import BEYOND_MAP, NULL_VALUE, STAYS

if cython.compiled:
    from cython.cimports.storage.codec.memory import int64s_of, octets_of, part_of, writable
else:
    from storage.codec.memory import int64s_of, octets_of, part_of, writable

SLOT_BYTES = 24
LOAD_FACTOR = 0.9
DEFAULT_BYTES = 134_217_728
"""log.cleaner.dedupe.buffer.size, of which only touched pages take memory."""

_MD5 = partial(md5, usedforsecurity=False)
_STAYS = cython.declare(cython.int, STAYS)
_NULL_VALUE = cython.declare(cython.int, NULL_VALUE)
_BEYOND_MAP = cython.declare(cython.int, BEYOND_MAP)


@cython.final
@cython.cclass
class OffsetMap:
    """As many keys as nine tenths of `memory_bytes` hold at 24 bytes each."""

    _table: memoryview
    _slots: cython.Py_ssize_t
    _capacity: cython.Py_ssize_t
    _size: cython.Py_ssize_t

    def __init__(self, memory_bytes: int = DEFAULT_BYTES) -> None:
        self._slots = max(memory_bytes // SLOT_BYTES, 2)
        # An anonymous mapping begins as zeros that take no memory until they are touched.
        self._table = memoryview(mmap(-1, self._slots * SLOT_BYTES)).cast("q")
        self._capacity = max(int(self._slots * LOAD_FACTOR), 1)
        self._size = 0

    @property
    def capacity(self) -> int:
        """How many keys it takes."""
        return self._capacity

    @property
    def size(self) -> int:
        """How many keys it has."""
        return self._size

    @property
    def full(self) -> bool:
        """Whether a new key would be refused."""
        return self._size >= self._capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Remember `offset` for `key` unless a larger one is known; False if there is no room for a new key."""
        return self._put(_MD5(key).digest(), offset)

    def get(self, key: bytes) -> int:
        """The newest offset of `key`, or -1."""
        return self._get(_MD5(key).digest())

    @cython.cfunc
    def _put(self, digest: bytes, offset: cython.longlong) -> cython.bint:
        first: cython.longlong = _half(digest, 0)
        second: cython.longlong = _half(digest, 8)
        table: cython.p_longlong = int64s_of(self._table)
        at: cython.Py_ssize_t = _find(table, first, second, self._slots)
        if table[at + 2] == 0:
            if self._size >= self._capacity:
                return False
            table[at] = first
            table[at + 1] = second
            self._size += 1
        table[at + 2] = max(table[at + 2], offset + 1)
        return True

    @cython.cfunc
    def _get(self, digest: bytes) -> cython.longlong:
        table: cython.p_longlong = int64s_of(self._table)
        known: cython.longlong = table[_find(table, _half(digest, 0), _half(digest, 8), self._slots) + 2]
        return known - 1

    def put_records(self, columns: Columns, first: int, last: int, *, start_offset: int) -> int:
        """Remember the keyed records `first` to `last` (exclusive) from `start_offset` on.

        The index of the first record for which there was no room; `last` where all went in.
        """
        view: memoryview = columns.block
        block: cython.p_longlong = int64s_of(view)
        count: cython.Py_ssize_t = len(columns)
        data: memoryview = columns.data
        index: cython.Py_ssize_t
        for index in range(first, last):
            length: cython.Py_ssize_t = block[3 * count + index]
            if length < 0 or block[index] < start_offset:
                continue
            at: cython.Py_ssize_t = block[2 * count + index]
            if not self._put(_MD5(part_of(data, at, at + length)).digest(), block[index]):
                return index
        return last

    def judge(self, columns: Columns, *, end_offset: int) -> bytearray:
        """The marks of all records of `columns` (see `survivors`); the map knows what lies below `end_offset`.

        A record stays if no newer one of its key is known; beyond `end_offset` every one stays. Records without
        a key cannot be told apart and go.
        """
        view: memoryview = columns.block
        block: cython.p_longlong = int64s_of(view)
        count: cython.Py_ssize_t = len(columns)
        data: memoryview = columns.data
        marks: bytearray = bytearray(count)
        mark: cython.p_uchar = writable(marks)
        end: cython.longlong = end_offset
        index: cython.Py_ssize_t
        for index in range(count):
            null: cython.int = _NULL_VALUE if block[5 * count + index] < 0 else 0
            length: cython.Py_ssize_t = block[3 * count + index]
            at: cython.Py_ssize_t = block[2 * count + index]
            if block[index] >= end:
                mark[index] = _STAYS | _BEYOND_MAP | null
            elif length < 0 or block[index] < self._get(_MD5(part_of(data, at, at + length)).digest()):
                mark[index] = null
            else:
                mark[index] = _STAYS | null
        return marks


@cython.cfunc
@cython.inline
def _half(digest: bytes, at: cython.Py_ssize_t) -> cython.longlong:
    """63 bits of a digest, so that they fit an int64 and are never negative."""
    view: memoryview = memoryview(digest)
    octets: cython.p_uchar = octets_of(view)
    value: cython.longlong = octets[at] & 0x7F
    index: cython.Py_ssize_t
    for index in range(at + 1, at + 8):
        value = (value << 8) | octets[index]
    return value


@cython.cfunc
@cython.exceptval(check=False)
def _find(
    table: cython.p_longlong, first: cython.longlong, second: cython.longlong, slots: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The first word of the key's slot, or of the free slot where it belongs."""
    slot: cython.Py_ssize_t = first % slots
    while True:
        at: cython.Py_ssize_t = slot * 3
        if table[at + 2] == 0 or (table[at] == first and table[at + 1] == second):
            return at
        slot += 1
        if slot == slots:
            slot = 0
