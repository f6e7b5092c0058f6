"""The parts of a record in a batch: this module reads every number and checks every length.

A record of format v2 (kafka-storage.md#records); every number is a zigzag varint of 7-bit groups, lowest first
(kafka-storage.md#varints):

    length of the bytes after it │ attributes 0 (one byte) │ timestamp delta │ offset delta
    key length (-1: null) │ key │ value length (-1: null) │ value
    header count │ { key length │ key │ value length (-1: null) │ value } …

This module is compiled by Cython, and runs uncompiled with the same results. Compiled code does not check array bounds,
so every length read from a batch is checked by hand before it is used. A buffer must not change while it is read.
"""

# ruff: noqa: PLR0913, PLR0917 -- functions over raw memory take pointers and bounds one by one

from __future__ import annotations

import cython

from topicfs.storage.codec.compression.bounds import MAX_HEADERS
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import Buffer

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.storage.codec.binary import fields, memory

_LOW_32_BITS = cython.declare(cython.ulonglong, 2**32 - 1)

CAUSES = {
    fields.LENGTH_MISFIT: "a record's length fits neither its batch nor its content",
    fields.NUMBER_CUT_OFF: "a record ends inside a number",
    fields.OFFSET_MISFIT: "a record's offset is outside its batch",
    fields.KEY_MISFIT: "a record's key does not fit",
    fields.VALUE_MISFIT: "a record's value does not fit",
    fields.HEADERS_MISFIT: "a record's headers do not fit",
    fields.BYTES_REMAIN: "bytes remain after the last record",
    fields.TOO_MANY_HEADERS: f"more than {MAX_HEADERS} headers in a record",
}
"""Why `decode_records` refuses a batch. The last cause is a limit of this codec, not a fault of the batch."""

_MAX_HEADERS = cython.declare(cython.longlong, MAX_HEADERS)


@cython.cfunc
@cython.exceptval(check=False)
def decode_records(
    octets: cython.p_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    row: cython.p_longlong,
    header: cython.Py_ssize_t,
    columns: cython.p_longlong,
    stride: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    create_times: cython.bint,
) -> cython.int:
    """Decode a batch's records in [start, end) into columns from index `first` on. Return RECORDS_FIT or the cause."""
    base_offset: cython.longlong = row[header + fields.BASE_OFFSET]
    last_delta: cython.longlong = row[header + fields.LAST_OFFSET] - base_offset
    append_time: cython.bint = (
        row[header + fields.ATTRIBUTES] & fields.TIMESTAMP_TYPE_MASK != 0 and not create_times
    )
    base_timestamp: cython.longlong = row[header + fields.BASE_TIMESTAMP]
    max_timestamp: cython.longlong = row[header + fields.MAX_TIMESTAMP]
    at: cython.Py_ssize_t = start
    index: cython.Py_ssize_t
    for index in range(first, first + row[header + fields.RECORD_COUNT]):
        size: cython.Py_ssize_t = _varint_size(octets, at, end, 5)
        length: cython.longlong = _varint(octets, at, size)
        at += size
        if size == 0 or length < 6 or length > end - at:
            return fields.LENGTH_MISFIT
        columns[index] = base_offset
        columns[fields.TIMESTAMPS * stride + index] = base_timestamp
        cause: cython.int = _decode_record(octets, at + 1, at + length, columns, stride, index, last_delta)
        if cause != fields.RECORDS_FIT:
            return cause
        if append_time:
            columns[fields.TIMESTAMPS * stride + index] = max_timestamp
        at += length
    return fields.RECORDS_FIT if at == end else fields.BYTES_REMAIN


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _decode_record(
    octets: cython.p_uchar,
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    columns: cython.p_longlong,
    stride: cython.Py_ssize_t,
    index: cython.Py_ssize_t,
    last_delta: cython.longlong,
) -> cython.int:
    """Decode one record's parts in [at, stop). Its columns must already have the batch's base offset and timestamp."""
    size: cython.Py_ssize_t = _varint_size(octets, at, stop, 10)
    if size == 0:
        return fields.NUMBER_CUT_OFF
    columns[fields.TIMESTAMPS * stride + index] = _wrapping_sum(
        columns[fields.TIMESTAMPS * stride + index], _varlong(octets, at, size)
    )
    at += size
    size = _varint_size(octets, at, stop, 5)
    delta: cython.longlong = _varint(octets, at, size)
    if size == 0 or delta < 0 or delta > last_delta:
        return fields.OFFSET_MISFIT
    columns[index] += delta
    at = _take_span(octets, at + size, stop, columns, fields.KEY_POSITIONS * stride + index, stride)
    if at < 0:
        return fields.KEY_MISFIT
    at = _take_span(octets, at, stop, columns, fields.VALUE_POSITIONS * stride + index, stride)
    if at < 0:
        return fields.VALUE_MISFIT
    columns[fields.HEADER_POSITIONS * stride + index] = at
    columns[fields.HEADER_LENGTHS * stride + index] = 0
    if stop - at != 1 or octets[at] != 0:
        columns[fields.HEADER_LENGTHS * stride + index] = stop - at
        return _check_headers(octets, at, stop)
    return fields.RECORDS_FIT


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _check_headers(octets: cython.p_uchar, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
    """Return RECORDS_FIT, or the cause for which the headers in [at, stop) are refused."""
    if not _headers_fit(octets, at, stop):
        return fields.HEADERS_MISFIT
    if _varint(octets, at, _varint_size(octets, at, stop, 5)) > _MAX_HEADERS:
        return fields.TOO_MANY_HEADERS
    return fields.RECORDS_FIT


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _take_span(
    octets: cython.p_uchar,
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    columns: cython.p_longlong,
    place: cython.Py_ssize_t,
    stride: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Store position and length of the key or value with its length at `at`. Return its end; -1 if it does not fit."""
    size: cython.Py_ssize_t = _varint_size(octets, at, stop, 5)
    length: cython.longlong = _varint(octets, at, size)
    at += size
    if size == 0 or length < -1 or length > stop - at:
        return -1
    columns[place] = at
    columns[place + stride] = length
    return at + length if length > 0 else at


@cython.cfunc
@cython.exceptval(check=False)
def _headers_fit(octets: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
    """Return whether a header count and exactly that many headers fill [start, stop)."""
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


@cython.cfunc
def header_spans(data: memoryview, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> memoryview:
    """Return four integers for each header; the header count is at `start`. Empty if `start` is `stop`."""
    if start == stop:
        return memory.new_int64s(0)
    octets: cython.p_uchar = memory.octets_of(data)
    if not _headers_fit(octets, start, stop):
        raise CorruptBatchError(start, "the headers have changed since they were read")
    size: cython.Py_ssize_t = _varint_size(octets, start, stop, 5)
    count: cython.Py_ssize_t = _varint(octets, start, size)
    spans: memoryview = memory.new_int64s(fields.VALUE_POSITIONS * count)
    span: cython.p_longlong = memory.int64s_of(spans)
    at: cython.Py_ssize_t = start + size
    index: cython.Py_ssize_t
    for index in range(fields.KEY_POSITIONS * count):
        size = _varint_size(octets, at, stop, 5)
        length: cython.longlong = _varint(octets, at, size)
        at += size
        span[2 * index] = at
        span[2 * index + 1] = length
        if length > 0:
            at += length
    return spans


def read_varint(data: Buffer, *, max_size: int = 5) -> tuple[int, int]:
    """Return the zigzag varint at the start of `data`, and its size; with `max_size` 10, read a varlong.

    Raises CorruptBatchError if the varint is longer than `max_size`, or the data ends inside it.
    """
    view: memoryview = memory.flat_view(data)
    octets: cython.p_uchar = memory.octets_of(view)
    size: cython.Py_ssize_t = _varint_size(octets, 0, len(view), max_size)
    if size == 0:
        raise CorruptBatchError(0, f"no number of at most {max_size} bytes")
    return (_varint(octets, 0, size) if max_size == 5 else _varlong(octets, 0, size)), size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(
    octets: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, longest: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the size of the varint at `at`; 0 if it is longer than `longest` or extends beyond `end`."""
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
    """Return the number in the `size` bytes at `at`; 0 if `size` is 0. Bits above 32 are dropped, as by Kafka."""
    if size == 1:
        first: cython.int = octets[at]
        return (first >> 1) ^ -(first & 1)
    groups: cython.ulonglong = _groups(octets, at, size)
    if size == 5:
        groups &= _LOW_32_BITS
    return cython.cast(cython.longlong, groups >> 1) ^ -cython.cast(cython.longlong, groups & 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varlong(octets: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
    """Return the number in up to ten bytes; bits above 64 are dropped."""
    groups: cython.ulonglong = _groups(octets, at, size)
    if not cython.compiled:
        groups &= 2**64 - 1
    return cython.cast(cython.longlong, groups >> 1) ^ -cython.cast(cython.longlong, groups & 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _groups(octets: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the seven-bit groups of `size` bytes, lowest first."""
    groups: cython.ulonglong = 0
    index: cython.Py_ssize_t
    for index in range(size):
        groups |= cython.cast(cython.ulonglong, octets[at + index] & 0x7F) << (7 * index)
    return groups


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _wrapping_sum(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    """Return the sum modulo 2^64, as Java adds. Damaged bytes may hold numbers whose sum overflows."""
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, left) + cython.cast(cython.ulonglong, right)
        )
    return (left + right + 2**63) % 2**64 - 2**63
