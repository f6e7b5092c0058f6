"""Records as columns: what a reader makes of record batches, without an object a record.

A record of format v2 (kafka-storage.md §2.2), every number a zigzag varint of 7-bit groups, lowest first:

    length of what follows │ attributes 0 (one byte) │ timestamp delta │ offset delta
    key length (-1: null) │ key │ value length (-1: null) │ value
    header count │ { key length │ key │ value length (-1: null) │ value } …

This module is compiled by Cython, and runs uncompiled with the same results. Array bounds are not checked by the
compiled code, so that every length read from a batch is checked here, by hand, before it is used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import cython

from storage.codec.batch import CODEC_MASK, Batches, Buffer, octet_view, scan
from storage.errors import CorruptBatchError
from storage.model import Header, Offset, Record, Timestamp

if cython.compiled:
    from cython.cimports.storage.codec.memory import (
        int64s_of,
        new_int64s,
        octets_of,
    )
else:
    from storage.codec.memory import (
        int64s_of,
        new_int64s,
        octets_of,
    )

SMALLEST_RECORD = 7
"""Bytes: each of its seven parts takes at least one."""

_CAUSES = (
    "",
    "a record's length fits neither its batch nor its content",
    "a record ends inside a number",
    "a record's offset is outside its batch",
    "a record's key does not fit",
    "a record's value does not fit",
    "a record's headers do not fit",
    "bytes remain after the last record",
)
"""What `_decode_records` found, by the number it returns."""


class Columns:
    """Records of adjacent batches: eight columns of int64, and the bytes they point into.

    A length of -1 is a null key or value. Headers are kept as they stand on the wire, their count included; a
    length of 0 means none. Columns are views: they cost nothing to take and stay valid as long as they are held.
    """

    __slots__ = ("_block", "_count", "batches", "data")

    def __init__(self, data: memoryview[int], block: memoryview[int], count: int, batches: Batches) -> None:
        self.data = data
        """The buffer all positions count in: the caller's, or an inflated one."""
        self._block = block
        self._count = count
        self.batches = batches
        """The batches these records came in, those without records included; see `BatchHeader.record_end`."""

    def __len__(self) -> int:
        return self._count

    @property
    def block(self) -> memoryview[int]:
        """All eight columns, one after the other in the order of the properties below: for compiled readers."""
        return self._block

    @property
    def offsets(self) -> memoryview[int]:
        return self._column(0)

    @property
    def timestamps(self) -> memoryview[int]:
        """Milliseconds; the batch's max timestamp where the broker stamped it (LogAppendTime)."""
        return self._column(1)

    @property
    def key_positions(self) -> memoryview[int]:
        return self._column(2)

    @property
    def key_lengths(self) -> memoryview[int]:
        return self._column(3)

    @property
    def value_positions(self) -> memoryview[int]:
        return self._column(4)

    @property
    def value_lengths(self) -> memoryview[int]:
        return self._column(5)

    @property
    def header_positions(self) -> memoryview[int]:
        """Of the header count, which the headers follow."""
        return self._column(6)

    @property
    def header_lengths(self) -> memoryview[int]:
        """Bytes of the header count and the headers together; 0 where there are none."""
        return self._column(7)

    def _column(self, number: int) -> memoryview[int]:
        start = number * self._count
        return self._block[start : start + self._count]

    def key(self, index: int) -> bytes | None:
        return self._part(2, index)

    def value(self, index: int) -> bytes | None:
        return self._part(4, index)

    def _part(self, column: int, index: int) -> bytes | None:
        index = self._checked(index)
        start = self._block[column * self._count + index]
        length = self._block[(column + 1) * self._count + index]
        return None if length < 0 else bytes(self.data[start : start + length])

    def _checked(self, index: int) -> int:
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return index % self._count

    def headers(self, index: int) -> tuple[Header, ...]:
        """The record's headers, in order; names may repeat."""
        spans = self.header_spans(index)
        data = self.data
        found = []
        for at in range(0, len(spans), 4):
            start, length = spans[at + 2], spans[at + 3]
            name = bytes(data[spans[at] : spans[at] + spans[at + 1]])
            found.append(Header(name, None if length < 0 else bytes(data[start : start + length])))
        return tuple(found)

    def header_spans(self, index: int) -> memoryview[int]:
        """Four int64 a header: position and length of its name, position and length (-1: null) of its value."""
        index = self._checked(index)
        position = self._block[6 * self._count + index]
        length = self._block[7 * self._count + index]
        return _header_spans(self.data, position, position + length)

    def record(self, index: int) -> Record:
        """One record as a value."""
        index = self._checked(index)
        return Record(
            Offset(self._block[index]),
            Timestamp(self._block[self._count + index]),
            self.key(index),
            self.value(index),
            self.headers(index),
        )

    def __iter__(self) -> Iterator[Record]:
        for index in range(self._count):
            yield self.record(index)

    def find(self, offset: int) -> int:
        """Index of the first record at or after `offset`; the number of records where there is none."""
        return bisect_left(self._block, offset, 0, self._count)


def decode(
    data: Buffer, start: int = 0, end: int | None = None, *, check_crc: bool = True, control: bool = False
) -> list[Columns]:
    """The records of the whole batches in `data[start:end]`.

    A run of uncompressed batches becomes one `Columns` over `data` itself; a compressed batch one of its own over
    its inflated bytes. Control batches are listed without records, unless `control` asks for theirs.

    Raises TornBatchError or CorruptBatchError, with the batch's position in `data`, if any of them is not whole
    and sound: checksum (unless `check_crc` is off), record count, lengths and offsets.
    """
    view: memoryview = octet_view(data)
    batches = scan(view, start, end, check_crc=check_crc)
    if batches.problem is not None:
        raise batches.problem
    rows: memoryview = batches.rows
    row: cython.p_longlong = int64s_of(rows)
    total: cython.Py_ssize_t = len(rows) // 15
    found: list[Columns] = []
    first: cython.Py_ssize_t = 0
    while first < total:
        if row[first * 15 + 5] < 2 or row[first * 15 + 7] & 7:
            found.append(_decode_wrapped(view, batches, first, control))
            first += 1
            continue
        last: cython.Py_ssize_t = first + 1
        while last < total and row[last * 15 + 5] == 2 and not row[last * 15 + 7] & 7:
            last += 1
        found.append(_decode_span(view, view, rows[first * 15 : last * 15], control))
        first = last
    return found


@cython.cfunc
def _decode_wrapped(view: memoryview, batches: Batches, index: cython.Py_ssize_t, control: bool) -> Columns:
    """One compressed batch, or one entry of an old format."""
    header = batches[index]
    raise CorruptBatchError(
        header.position, f"magic {header.magic} with codec {header.attributes & CODEC_MASK}"
    )


@cython.cfunc
def _decode_span(data: memoryview, whole: memoryview, rows: memoryview, control: cython.bint) -> Columns:
    """The records of adjacent batches whose headers are `rows`.

    `data` is what positions count in. Where it is `whole` itself the records follow each header; else `data` is
    the inflated content of the one batch there is.
    """
    row: cython.p_longlong = int64s_of(rows)
    batches: cython.Py_ssize_t = len(rows) // 15
    octets: cython.p_uchar = octets_of(data)
    inflated: cython.bint = data is not whole
    total: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    for index in range(batches):
        count: cython.longlong = row[index * 15 + 13]
        room: cython.longlong = len(data) if inflated else row[index * 15 + 1] - 61
        # A record takes seven bytes or more: so what is allocated below is bounded by what is there.
        if count < 0 or count * 7 > room:
            raise CorruptBatchError(row[index * 15], f"{count} records declared in {room} bytes")
        if control or not row[index * 15 + 7] & 0x20:
            total += count
        row[index * 15 + 14] = total
    block: memoryview = new_int64s(8 * total)
    columns: cython.p_longlong = int64s_of(block)
    done: cython.Py_ssize_t = 0
    for index in range(batches):
        if row[index * 15 + 14] == done and row[index * 15 + 13] != 0:
            continue
        start = 0 if inflated else row[index * 15] + 61
        end = len(data) if inflated else row[index * 15] + row[index * 15 + 1]
        cause: cython.int = _decode_records(octets, start, end, row, index * 15, columns, total, done)
        if cause != 0:
            raise CorruptBatchError(row[index * 15], _CAUSES[cause])
        done = row[index * 15 + 14]
    index = batches - 1
    return Columns(data, block, total, Batches(rows, row[index * 15] + row[index * 15 + 1]))


@cython.cfunc
@cython.exceptval(check=False)
def _decode_records(
    octets: cython.p_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    row: cython.p_longlong,
    header: cython.Py_ssize_t,
    columns: cython.p_longlong,
    stride: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
) -> cython.int:
    """Fill the columns from `first` on with a batch's records in [start, end); 0, or the cause's number."""
    base_offset: cython.longlong = row[header + 2]
    last_delta: cython.longlong = row[header + 3] - base_offset
    base_timestamp: cython.longlong = row[header + 8]
    append_time: cython.bint = row[header + 7] & 8 != 0
    at: cython.Py_ssize_t = start
    index: cython.Py_ssize_t
    size: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    value: cython.longlong
    for index in range(first, first + row[header + 13]):
        size = _varint_size(octets, at, end, 5)
        value = _varint(octets, at, size)
        at += size
        if size == 0 or value < 6 or value > end - at:
            return 1
        stop = at + value
        at += 1

        size = _varint_size(octets, at, stop, 10)
        if size == 0:
            return 2
        if append_time:
            columns[stride + index] = row[header + 9]
        else:
            columns[stride + index] = _wrapping_sum(base_timestamp, _varint(octets, at, size))
        at += size

        size = _varint_size(octets, at, stop, 5)
        value = _varint(octets, at, size)
        at += size
        if size == 0 or value < 0 or value > last_delta:
            return 3
        columns[index] = base_offset + value

        size = _varint_size(octets, at, stop, 5)
        value = _varint(octets, at, size)
        at += size
        if size == 0 or value < -1 or value > stop - at:
            return 4
        columns[2 * stride + index] = at
        columns[3 * stride + index] = value
        if value > 0:
            at += value

        size = _varint_size(octets, at, stop, 5)
        value = _varint(octets, at, size)
        at += size
        if size == 0 or value < -1 or value > stop - at:
            return 5
        columns[4 * stride + index] = at
        columns[5 * stride + index] = value
        if value > 0:
            at += value

        columns[6 * stride + index] = at
        if stop - at == 1 and octets[at] == 0:
            columns[7 * stride + index] = 0
        elif _headers_fit(octets, at, stop):
            columns[7 * stride + index] = stop - at
        else:
            return 6
        at = stop
    return 0 if at == end else 7


@cython.cfunc
@cython.exceptval(check=False)
def _headers_fit(octets: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
    """Whether a header count and exactly that many headers fill [start, stop)."""
    size: cython.Py_ssize_t = _varint_size(octets, start, stop, 5)
    count: cython.longlong = _varint(octets, start, size)
    at: cython.Py_ssize_t = start + size
    if size == 0 or count < 0 or count * 2 > stop - at:
        return False
    length: cython.longlong
    while count > 0:
        size = _varint_size(octets, at, stop, 5)
        length = _varint(octets, at, size)
        at += size
        if size == 0 or length < 0 or length > stop - at:
            return False
        at += length
        size = _varint_size(octets, at, stop, 5)
        length = _varint(octets, at, size)
        at += size
        if size == 0 or length < -1 or length > stop - at:
            return False
        if length > 0:
            at += length
        count -= 1
    return at == stop


def _header_spans(data: memoryview, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> memoryview:
    """The headers whose count stands at `start`; none where it is `stop`. `_headers_fit` has seen them."""
    octets: cython.p_uchar = octets_of(data)
    at: cython.Py_ssize_t = start
    size: cython.Py_ssize_t = _varint_size(octets, at, stop, 5)
    count: cython.Py_ssize_t = _varint(octets, at, size)
    spans: memoryview = new_int64s(4 * count)
    span: cython.p_longlong = int64s_of(spans)
    at += size
    index: cython.Py_ssize_t
    for index in range(2 * count):
        size = _varint_size(octets, at, stop, 5)
        length: cython.longlong = _varint(octets, at, size)
        at += size
        span[2 * index] = at
        span[2 * index + 1] = length
        if length > 0:
            at += length
    return spans


def read_varint(
    data: Buffer, position: int = 0, end: int | None = None, *, max_size: int = 5
) -> tuple[int, int]:
    """The zigzag varint at `position`, and the position after it; a varlong with a `max_size` of 10.

    Raises CorruptBatchError where it is longer, or runs past the end.
    """
    view: memoryview = octet_view(data)
    stop: cython.Py_ssize_t = len(view) if end is None else min(end, len(view))
    size: cython.Py_ssize_t = _varint_size(octets_of(view), position, stop, max_size) if position >= 0 else 0
    if size == 0:
        raise CorruptBatchError(position, f"no number of at most {max_size} bytes")
    return _varint(octets_of(view), position, size), position + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(
    octets: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, longest: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Bytes of the varint at `at`; 0 where it is longer than `longest` or runs past `end`."""
    if at < end and octets[at] < 0x80:
        return 1
    size: cython.Py_ssize_t = 1
    while size < longest and at + size < end:
        if octets[at + size] < 0x80:
            return size + 1
        size += 1
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint(octets: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
    """The number in the `size` bytes at `at`; 0 where there are none.

    Bits beyond the 32 (five bytes) or 64 (ten) of the number are dropped, as Kafka's reader does.
    """
    if size == 1:
        first: cython.int = octets[at]
        return (first >> 1) ^ -(first & 1)
    groups: cython.ulonglong = 0
    index: cython.Py_ssize_t
    for index in range(size):
        groups |= cython.cast(cython.ulonglong, octets[at + index] & 0x7F) << (7 * index)
    if size == 5:
        groups &= 0xFFFFFFFF
    elif size == 10:
        groups &= 0xFFFFFFFFFFFFFFFF
    return cython.cast(cython.longlong, groups >> 1) ^ -cython.cast(cython.longlong, groups & 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _wrapping_sum(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    """Sixty-four bits of the sum, as Java adds: bytes on disk may hold any two numbers."""
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, left) + cython.cast(cython.ulonglong, right)
        )
    return (left + right + 2**63) % 2**64 - 2**63
