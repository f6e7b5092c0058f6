"""Records as the buffers of Arrow columns: many small ranges of columns become one run of values each.

    binary      ends, int32, little-endian: n + 1 of them, the first 0; the value i is bytes[ends[i] : ends[i + 1]]
                validity, a bit a value, lowest first: 1 present, 0 null
                bytes, all present values one after the other
    numbers     int64, or int32 little-endian

This module is compiled by Cython, and runs uncompiled with the same results. What columns say of their buffer was
checked when they were decoded; the ranges asked for are checked here.
"""

# ruff: noqa: PLR0913, PLR0917 -- functions over raw memory take pointers and bounds one by one

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import cython

from topicfs.storage.codec.columns import Columns

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.storage.codec.binary import fields, memory

KEYS = fields.KEY_POSITIONS
VALUES = fields.VALUE_POSITIONS
"""Numbers of the columns with positions; the column behind each has the lengths."""

_LARGEST = cython.declare(cython.longlong, 2**31 - 1)
_MOST_MILLISECONDS = cython.declare(cython.longlong, (2**63 - 1) // 1000)


class ColumnRange(NamedTuple):
    """The records [start, end) of some columns."""

    columns: Columns
    start: int
    end: int


def gather(parts: Sequence[ColumnRange], column: int) -> tuple[bytearray, bytearray | None, bytearray, int]:
    """Return the keys or values (`column`) of all parts: ends, validity (None: no nulls), bytes, null count.

    Raises IndexError for a range that is none, OverflowError for 2 GiB and more.
    """
    if column not in {KEYS, VALUES}:
        raise IndexError(f"column {column} has no positions")
    count: cython.Py_ssize_t = _count(parts)
    size: cython.longlong = 0
    nulls: cython.Py_ssize_t = 0
    for columns, start, end in parts:
        stride: cython.Py_ssize_t = len(columns)
        if start < end:
            part: tuple[int, int] = _measure(columns.block, (column + 1) * stride + start, end - start)
            size += part[0]
            nulls += part[1]
    if size > _LARGEST:
        raise OverflowError(f"{size} bytes in one column")
    ends: bytearray = memory.new_octets(4 * count + 4)
    octets: bytearray = memory.new_octets(size)
    validity: bytearray | None = bytearray((count + 7) // 8) if nulls else None
    _fill(parts, column, ends, octets)
    if validity is not None:
        _fill_validity(parts, column, validity)
    return ends, validity, octets, nulls


def gather_offsets(parts: Sequence[ColumnRange]) -> memoryview[int]:
    """Return the offsets of all parts, as int64. Raises IndexError."""
    return _int64s(parts, fields.OFFSETS, 1)


def gather_timestamps(parts: Sequence[ColumnRange]) -> memoryview[int]:
    """Return the timestamps of all parts in microseconds, as int64. Raises IndexError.

    A time that 64 bits of microseconds do not hold becomes the nearest that they do.
    """
    return _int64s(parts, fields.TIMESTAMPS, 1000)


def gather_flags(parts: Sequence[ColumnRange], mask: int) -> tuple[int | None, bytearray]:
    """Return flags of the records, 1 where the batch's attributes have a bit of `mask`: one flag for all, or an array of int32.

    Raises IndexError.
    """
    count: cython.Py_ssize_t = _count(parts)
    flags: bytearray = bytearray(4 * count)
    octets: cython.p_uchar = memory.writable(flags)
    place: cython.Py_ssize_t = 0
    ones: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    number: cython.Py_ssize_t
    for columns, start, end in parts:
        rows: memoryview = columns.batches.rows
        row: cython.p_longlong = memory.int64s_of(rows)
        below: cython.Py_ssize_t = start
        bits: cython.longlong = mask
        for number in range(len(rows) // fields.ROW_SIZE):
            header: cython.Py_ssize_t = fields.ROW_SIZE * number
            upto: cython.Py_ssize_t = min(end, row[header + fields.RECORD_END])
            if upto <= below:
                continue
            if row[header + fields.ATTRIBUTES] & bits:
                ones += upto - below
                for index in range(place, place + upto - below):
                    octets[4 * index] = 1
            place += upto - below
            below = upto
    if ones in {0, count}:
        return (1 if ones else 0), bytearray()
    return None, flags


def has_headers(parts: Sequence[ColumnRange]) -> bool:
    """Return whether any record has headers. Raises IndexError."""
    _count(parts)
    index: cython.Py_ssize_t
    for columns, start, end in parts:
        block: memoryview = columns.block
        lengths: cython.p_longlong = memory.int64s_of(block)
        first: cython.Py_ssize_t = fields.HEADER_LENGTHS * len(columns)
        last: cython.Py_ssize_t = first + end
        for index in range(first + start, last):
            if lengths[index]:
                return True
    return False


@cython.cfunc
def _count(parts: Sequence[ColumnRange]) -> cython.Py_ssize_t:
    """Return the number of records of all parts."""
    count: cython.Py_ssize_t = 0
    for columns, start, end in parts:
        if not 0 <= start <= end <= len(columns):
            raise IndexError(f"records [{start}, {end}) of {len(columns)}")
        count += end - start
    return count


@cython.cfunc
def _int64s(parts: Sequence[ColumnRange], column: cython.Py_ssize_t, factor: cython.longlong) -> memoryview:
    found: memoryview = memory.new_int64s(_count(parts))
    target: cython.p_longlong = memory.int64s_of(found)
    place: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for columns, start, end in parts:
        block: memoryview = columns.block
        source: cython.p_longlong = memory.int64s_of(block)
        first: cython.Py_ssize_t = column * len(columns)
        last: cython.Py_ssize_t = first + end
        for index in range(first + start, last):
            number: cython.longlong = source[index]
            if factor != 1:
                number = min(max(number, -_MOST_MILLISECONDS), _MOST_MILLISECONDS)
            target[place] = number * factor
            place += 1
    return found


@cython.cfunc
def _measure(block: memoryview, first: cython.Py_ssize_t, count: cython.Py_ssize_t) -> tuple[int, int]:
    """Return the bytes of the values whose lengths begin at `first`, and how many are null."""
    lengths: cython.p_longlong = memory.int64s_of(block)
    size: cython.longlong = 0
    nulls: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(first, first + count):
        if lengths[index] < 0:
            nulls += 1
        else:
            size += lengths[index]
    return size, nulls


@cython.cfunc
def _fill_validity(parts: Sequence[ColumnRange], column: cython.Py_ssize_t, validity: bytearray) -> None:
    octets: cython.p_uchar = memory.writable(validity)
    place: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for columns, start, end in parts:
        block: memoryview = columns.block
        lengths: cython.p_longlong = memory.int64s_of(block)
        first: cython.Py_ssize_t = (column + 1) * len(columns)
        last: cython.Py_ssize_t = first + end
        for index in range(first + start, last):
            if lengths[index] >= 0:
                octets[place >> 3] |= 1 << (place & 7)
            place += 1


@cython.cfunc
def _fill(
    parts: Sequence[ColumnRange], column: cython.Py_ssize_t, ends: bytearray, octets: bytearray
) -> None:
    """Copy the bytes of all parts' values, and note where each ends."""
    places: cython.p_uchar = memory.writable(ends)
    target: cython.p_uchar = memory.writable(octets)
    at: cython.Py_ssize_t = 0
    place: cython.Py_ssize_t = 4
    places[0] = places[1] = places[2] = places[3] = 0
    for columns, start, end in parts:
        block: memoryview = columns.block
        data: memoryview = memory.flat_view(columns.data)
        stride: cython.Py_ssize_t = len(columns)
        count: cython.Py_ssize_t = end - start
        at = _fill_part(
            memory.int64s_of(block),
            column * stride + start,
            stride,
            count,
            memory.octets_of(data),
            places,
            place,
            target,
            at,
        )
        place += 4 * count


@cython.cfunc
@cython.exceptval(check=False)
def _fill_part(
    columns: cython.p_longlong,
    first: cython.Py_ssize_t,
    stride: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    source: cython.p_uchar,
    ends: cython.p_uchar,
    place: cython.Py_ssize_t,
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy `count` values, whose positions begin at `first`, to `target[at:]`; where the last of them ends."""
    index: cython.Py_ssize_t
    for index in range(first, first + count):
        length: cython.longlong = columns[stride + index]
        if length > 0:
            memory.copy(target, at, source, columns[index], length)
            at += length
        ends[place] = at & 0xFF
        ends[place + 1] = (at >> 8) & 0xFF
        ends[place + 2] = (at >> 16) & 0xFF
        ends[place + 3] = (at >> 24) & 0xFF
        place += 4
    return at
