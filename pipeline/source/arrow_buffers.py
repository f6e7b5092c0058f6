"""Gathers many small ranges of decoded columns into the buffers of one Arrow column.

    binary      ends, int32, little-endian: n + 1 of them, the first is 0; value i is bytes[ends[i] : ends[i + 1]]
                validity, a bit per value, lowest first: 1 present, 0 null
                bytes, all present values one after the other
    numbers     int64, or int32 little-endian

This module is compiled by Cython, and gives the same results uncompiled. The decoder has checked the positions in the
columns; this module checks the ranges.
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
"""Indices of the columns of positions. The column after each contains the lengths."""

_LARGEST = cython.declare(cython.longlong, 2**31 - 1)
_MAX_MILLISECONDS = cython.declare(cython.longlong, (2**63 - 1) // 1000)


class ColumnRange(NamedTuple):
    """The records [start, end) of `columns`."""

    columns: Columns
    start: int
    end: int


def gather(parts: Sequence[ColumnRange], column: int) -> tuple[bytearray, bytearray | None, bytearray, int]:
    """Return all parts' keys or values: ends, validity, bytes, number of nulls. Raises IndexError, OverflowError."""
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
    """Return the timestamps of all parts in microseconds, clamped to int64. Raises IndexError."""
    return _int64s(parts, fields.TIMESTAMPS, 1000)


def gather_flags(parts: Sequence[ColumnRange], mask: int) -> tuple[int | None, bytearray]:
    """Return a flag for each record: 1 if the attributes of its batch have a bit of `mask`, else 0.

    If all flags are equal, the first result is the flag; otherwise it is None, and the second is an array of int32.
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
    """Return the number of records in all parts."""
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
                number = min(max(number, -_MAX_MILLISECONDS), _MAX_MILLISECONDS)
            target[place] = number * factor
            place += 1
    return found


@cython.cfunc
def _measure(block: memoryview, first: cython.Py_ssize_t, count: cython.Py_ssize_t) -> tuple[int, int]:
    """Return the total size of the values whose lengths begin at `first`, and the number of nulls."""
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
    """Copy the values of all parts to `octets`, and write the end of each value into `ends`."""
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
    """Copy `count` values, whose positions begin at `first`, to `target[at:]`; return the end of the last value."""
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
