"""Each key's newest offset, in a table of bounded size: a slot has 126 bits of MD5 and an offset.

    slot (24 bytes)   63 bits of MD5(key) int64 · 63 more bits int64 · offset + 1 as int64 (0: the slot is free)

A key whose slot is taken goes into the next slot. Once nine tenths of the slots are used, the table refuses new keys
and the pass ends there, so memory is bounded for a log of any size. Two keys with the same digest count as one key,
as in Kafka. Compiled by Cython; also runs uncompiled. Source: kafka-storage.md#offset-map, Kafka's SkimpyOffsetMap.
"""

from __future__ import annotations

from mmap import mmap

import cython

from topicfs.storage.codec.columns import Columns
from topicfs.storage.compaction.digests import digest_of, digests_of_keys
from topicfs.storage.compaction.survivors import BEYOND_MAP, NULL_VALUE, STAYS

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
    from cython.cimports.topicfs.storage.compaction.prefetch import prefetch_word
else:
    from topicfs.storage.codec.binary import fields, memory

SLOT_BYTES = 24
LOAD_FACTOR = 0.9
DEFAULT_BYTES = 134_217_728
"""Default of log.cleaner.dedupe.buffer.size; only pages that the map touches take memory."""
GROWTH = 8
"""Factor by which a half-full table grows, up to its largest size, so that few keys take little memory."""
LARGEST_FIRST_SLOTS = 16_384
_AHEAD = cython.declare(cython.Py_ssize_t, 16)
"""While a record is handled, the slot of the record this many records later is prefetched."""


_STAYS = cython.declare(cython.int, STAYS)
_NULL_VALUE = cython.declare(cython.int, NULL_VALUE)
_BEYOND_MAP = cython.declare(cython.int, BEYOND_MAP)


@cython.final
@cython.cclass
class OffsetMap:
    """The newest offset of each key, for as many keys as nine tenths of `memory_bytes` hold at 24 bytes each."""

    _table: memoryview
    _words: cython.p_longlong
    _slots: cython.Py_ssize_t
    _most_slots: cython.Py_ssize_t
    _capacity: cython.Py_ssize_t
    _size: cython.Py_ssize_t

    def __init__(self, memory_bytes: int = DEFAULT_BYTES) -> None:
        self._most_slots = max(memory_bytes // SLOT_BYTES, 2)
        self._capacity = max(int(self._most_slots * LOAD_FACTOR), 1)
        self._size = 0
        self._slots = self._most_slots
        while self._slots > LARGEST_FIRST_SLOTS:
            self._slots //= GROWTH
        self._table = _free_slots(self._slots)
        self._words = memory.int64s_of(self._table)

    @property
    def capacity(self) -> int:
        """Largest number of keys."""
        return self._capacity

    @property
    def size(self) -> int:
        """Number of keys."""
        return self._size

    @property
    def full(self) -> bool:
        """True if a new key would be refused."""
        return self._size >= self._capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Store `offset` for `key` unless a larger offset is stored. Return False if there is no room for a new key."""
        digest: memoryview = digest_of(key)
        return self._put(memory.int64s_of(digest), 0, offset)

    def get(self, key: bytes) -> int:
        """Return the newest offset of `key`; -1 if the map does not have the key."""
        digest: memoryview = digest_of(key)
        return self._get(memory.int64s_of(digest), 0)

    @cython.cfunc
    @cython.exceptval(check=True)
    def _put(
        self, digests: cython.p_longlong, word: cython.Py_ssize_t, offset: cython.longlong
    ) -> cython.bint:
        """Set the offset of the digest at index `word` of `digests`. Other methods use `word` in the same way."""
        at: cython.Py_ssize_t = _find(self._words, self._slots, digests, word)
        if self._words[at + 2] == 0:
            if self._size >= self._capacity:
                return False
            self._words[at] = digests[word]
            self._words[at + 1] = digests[word + 1]
            self._size += 1
        self._words[at + 2] = max(self._words[at + 2], offset + 1)
        if 2 * self._size > self._slots and self._slots < self._most_slots:
            self._grow()
        return True

    @cython.cfunc
    def _grow(self) -> object:
        """Move to a larger table. Both exist for a moment, so the last growth takes an eighth more than the limit."""
        table: memoryview = self._table
        words: cython.p_longlong = memory.int64s_of(table)
        end: cython.Py_ssize_t = 3 * self._slots
        slots: cython.Py_ssize_t = self._most_slots
        while slots // GROWTH > self._slots:
            slots //= GROWTH
        self._table = _free_slots(slots)
        self._words = memory.int64s_of(self._table)
        self._slots = slots
        at: cython.Py_ssize_t
        for at in range(0, end, 3):
            if words[at + 2] != 0:
                to: cython.Py_ssize_t = _find(self._words, slots, words, at)
                self._words[to] = words[at]
                self._words[to + 1] = words[at + 1]
                self._words[to + 2] = words[at + 2]
        return None

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _get(self, digests: cython.p_longlong, word: cython.Py_ssize_t) -> cython.longlong:
        known: cython.longlong = self._words[_find(self._words, self._slots, digests, word) + 2]
        return known - 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _prefetch(
        self, digests: cython.p_longlong, word: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.void:
        if cython.compiled and word + 2 * _AHEAD < end:
            prefetch_word(self._words, 3 * (digests[word + 2 * _AHEAD] % self._slots))

    def put_records(self, columns: Columns, first: int, last: int, *, start_offset: int) -> int:
        """Store the offset of each record that has a key and an offset at or above `start_offset`.

        Return the index of the first record for which there is no room, or `last`.
        """
        view: memoryview = columns.block
        block: cython.p_longlong = memory.int64s_of(view)
        stride: cython.Py_ssize_t = len(columns)
        begin: cython.Py_ssize_t = first
        digests_view: memoryview = digests_of_keys(columns, first, last)
        digests: cython.p_longlong = memory.int64s_of(digests_view)
        count: cython.Py_ssize_t = last - first
        start: cython.longlong = start_offset
        index: cython.Py_ssize_t
        for index in range(count):
            self._prefetch(digests, 2 * index, fields.KEY_POSITIONS * count)
            offset: cython.longlong = block[begin + index]
            if block[fields.KEY_LENGTHS * stride + begin + index] < 0 or offset < start:
                continue
            if not self._put(digests, 2 * index, offset):
                return begin + index
        return last

    def marks_of(self, columns: Columns, *, end_offset: int) -> bytearray:
        """Return the marks of all records of `columns` (see `survivors`; kafka-storage.md#retained-records).

        The map covers offsets below `end_offset`. A record stays if the map knows no newer record of its key, or if
        it is at or above `end_offset`. Records without a key cannot be distinguished, so they are removed.
        """
        view: memoryview = columns.block
        block: cython.p_longlong = memory.int64s_of(view)
        count: cython.Py_ssize_t = len(columns)
        digests_view: memoryview = digests_of_keys(columns, 0, count)
        digests: cython.p_longlong = memory.int64s_of(digests_view)
        marks: bytearray = bytearray(count)
        mark: cython.p_uchar = memory.writable(marks)
        end: cython.longlong = end_offset
        index: cython.Py_ssize_t
        for index in range(count):
            self._prefetch(digests, 2 * index, fields.KEY_POSITIONS * count)
            null: cython.int = _NULL_VALUE if block[fields.VALUE_LENGTHS * count + index] < 0 else 0
            if block[index] >= end:
                mark[index] = _STAYS | _BEYOND_MAP | null
            elif block[fields.KEY_LENGTHS * count + index] < 0 or block[index] < self._get(
                digests, 2 * index
            ):
                mark[index] = null
            else:
                mark[index] = _STAYS | null
        return marks


@cython.cfunc
def _free_slots(count: cython.Py_ssize_t) -> memoryview:
    """Return zeroed slots, in an anonymous mapping that takes no memory until it is touched."""
    return memoryview(mmap(-1, count * SLOT_BYTES)).cast("q")


@cython.cfunc
@cython.exceptval(check=False)
def _find(
    table: cython.p_longlong, slots: cython.Py_ssize_t, digests: cython.p_longlong, word: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the index of the first word of the key's slot, or of the free slot for the key."""
    first: cython.longlong = digests[word]
    second: cython.longlong = digests[word + 1]
    slot: cython.Py_ssize_t = first % slots
    while True:
        at: cython.Py_ssize_t = slot * 3
        if table[at + 2] == 0 or (table[at] == first and table[at + 1] == second):
            return at
        slot += 1
        if slot == slots:
            slot = 0
