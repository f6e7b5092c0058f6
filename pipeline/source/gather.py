"""Keys and values of columns as Arrow's variable-size binary: one flat run of bytes, 32-bit ends, bits for nulls.

    ends      int32, little-endian: n + 1 of them, the first 0; the value i is bytes[ends[i] : ends[i + 1]]
    validity  a bit a value, lowest first: 1 present, 0 null
    bytes     all present values, one after the other

This module is compiled by Cython, and runs uncompiled with the same results. What columns say of their buffer was
checked when they were decoded; the range asked for is checked here.
"""

# ruff: noqa: PLR0913, PLR0917 -- functions over raw memory take pointers and bounds one by one

from __future__ import annotations

import cython

from storage.codec.columns import Columns

if cython.compiled:
    from cython.cimports.storage.codec.memory import (
        copy,
        flat_view,
        int64s_of,
        new_octets,
        octets_of,
        writable,
    )
else:
    from storage.codec.memory import copy, flat_view, int64s_of, new_octets, octets_of, writable

KEYS = 2
VALUES = 4
"""Which of the eight columns has the positions; the one behind it has the lengths."""

_LARGEST = cython.declare(cython.longlong, 2**31 - 1)


def gather(
    columns: Columns, column: int, start: int, end: int
) -> tuple[bytearray, bytearray | None, bytearray, int]:
    """The keys or values (`column`) of records [start, end): ends, validity (None: no nulls), bytes, null count.

    Raises IndexError for a range that is none, OverflowError for 2 GiB and more.
    """
    total: cython.Py_ssize_t = len(columns)
    if column not in {KEYS, VALUES} or not 0 <= start <= end <= total:
        raise IndexError(f"column {column}, records [{start}, {end}) of {total}")
    block: memoryview = columns.block
    data: memoryview = flat_view(columns.data)
    first: cython.Py_ssize_t = column * total + start
    count: cython.Py_ssize_t = end - start
    size: cython.longlong = 0
    nulls: cython.Py_ssize_t = 0
    if count:
        size, nulls = _measure(block, first + total, count)
    if size > _LARGEST:
        raise OverflowError(f"{size} bytes in one column")
    ends: bytearray = new_octets(4 * count + 4)
    octets: bytearray = new_octets(size)
    validity: bytearray | None = _validity(block, first + total, count) if nulls else None
    _fill(block, first, total, count, data, writable(ends), writable(octets))
    return ends, validity, octets, nulls


@cython.cfunc
def _measure(block: memoryview, first: cython.Py_ssize_t, count: cython.Py_ssize_t) -> tuple[int, int]:
    """Bytes of the values whose lengths begin at `first`, and how many are null."""
    lengths: cython.p_longlong = int64s_of(block)
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
def _validity(block: memoryview, first: cython.Py_ssize_t, count: cython.Py_ssize_t) -> bytearray:
    lengths: cython.p_longlong = int64s_of(block)
    bits: bytearray = bytearray((count + 7) // 8)
    octets: cython.p_uchar = writable(bits)
    index: cython.Py_ssize_t
    for index in range(count):
        if lengths[first + index] >= 0:
            octets[index >> 3] |= 1 << (index & 7)
    return bits


@cython.cfunc
def _fill(
    block: memoryview,
    first: cython.Py_ssize_t,
    stride: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    data: memoryview,
    ends: cython.p_uchar,
    octets: cython.p_uchar,
) -> None:
    columns: cython.p_longlong = int64s_of(block)
    source: cython.p_uchar = octets_of(data)
    at: cython.Py_ssize_t = 0
    place: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    ends[0] = ends[1] = ends[2] = ends[3] = 0
    for index in range(first, first + count):
        length: cython.longlong = columns[stride + index]
        if length > 0:
            copy(octets, at, source, columns[index], length)
            at += length
        place += 4
        ends[place] = at & 0xFF
        ends[place + 1] = (at >> 8) & 0xFF
        ends[place + 2] = (at >> 16) & 0xFF
        ends[place + 3] = (at >> 24) & 0xFF
