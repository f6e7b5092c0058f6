"""Copying the values of batches to lines of text in one pass, from the batches' own bytes or from what they inflate to.

    61 bytes of header │ length, attributes, deltas, key │ value │ no headers │ …     →     value LF value LF …

Most logs that are read through hold nothing but batches of format v2 whose records have no headers and only small
numbers; nothing but their values is copied here, and no columns are made. Uncompressed batches are copied many at a time,
compressed ones one by one. Any other batch, and a damaged one, is left to `columns`.

This module is compiled by Cython, and runs uncompiled with the same results. Every length is checked by hand before it
is used; the buffer must not change while it is read.
"""

# ruff: noqa: PLR0913, PLR0917 -- functions over raw memory take pointers and bounds one by one

from __future__ import annotations

import cython

from storage.codec.compression.bounds import MAX_CONTENT_BYTES, MAX_RECORDS
from storage.codec.compression.codecs import inflate
from storage.codec.headers import Codec
from storage.errors import CorruptBatchError
from storage.model import Buffer

if cython.compiled:
    from cython.cimports.storage.codec.batch import sound_rows
    from cython.cimports.storage.codec.binary import fields, memory
else:
    from storage.codec.batch import sound_rows
    from storage.codec.binary import fields, memory

_MAX_CONTENT_BYTES = cython.declare(cython.longlong, MAX_CONTENT_BYTES)
_MAX_RECORDS = cython.declare(cython.longlong, MAX_RECORDS)


def begin_text(begun: Buffer, room: cython.Py_ssize_t) -> bytearray:
    """Return a buffer of `room` bytes or more that begins with what is `begun`; the rest of it is not cleared."""
    view: memoryview = memory.flat_view(begun)
    size: cython.Py_ssize_t = len(view)
    text: bytearray = memory.new_octets(max(size, room))
    memory.copy(memory.writable(text), 0, memory.octets_of(view), 0, size)
    return text


def copy_values(
    data: Buffer, text: bytearray, used: cython.Py_ssize_t, *, start_offset: int, end_offset: int
) -> int:
    """Write the values of the records with start_offset <= offset < end_offset to `text` from `used` on, an LF behind each.

    Return the position in `text` at which they end; it is extended where it must be. `data` are whole batches; a null value is empty, markers of
    transactions show nothing, and every checksum is checked. Returns -1 where not all of them are plain and sound: `columns.decode` takes
    those, and says what is wrong with them.
    """
    view: memoryview = memory.flat_view(data)
    source: cython.p_uchar = memory.octets_of(view)
    rows: memoryview = memory.new_int64s(3 * fields.ROW_SIZE + 1)
    row: cython.p_longlong = memory.int64s_of(rows)
    end: cython.Py_ssize_t = len(view)
    at: cython.Py_ssize_t = 0
    while at < end and used >= 0:
        at = sound_rows(view, at, end, row)
        found: cython.Py_ssize_t = row[3 * fields.ROW_SIZE]
        most: cython.Py_ssize_t = _most_text(row, found) if at > 0 else -1
        if most < 0:
            return -1
        if used + most > len(text):
            memory.resize(text, used + most + (used + most) // 8)
        used = _copy_batches(memory.writable(text), used, source, row, found, start_offset, end_offset)
    return used


def copy_inflated(
    data: Buffer,
    header: memoryview[int],
    text: bytearray,
    used: cython.Py_ssize_t,
    *,
    start_offset: cython.longlong,
    end_offset: cython.longlong,
    max_content_bytes: int,
) -> tuple[int, int]:
    """Do what `copy_values` does for the one batch whose row is `header`; it may be compressed, and its checksum was checked.

    Return where the values end, or -1 too where the records inflate to more than `max_content_bytes`; and how many those are.
    """
    row: cython.p_longlong = memory.int64s_of(header)
    start: cython.Py_ssize_t = row[fields.POSITION] + fields.HEADER_SIZE
    end: cython.Py_ssize_t = row[fields.POSITION] + row[fields.SIZE_BYTES]
    if row[fields.MAGIC] != fields.CURRENT_MAGIC or row[fields.SIZE_BYTES] > _MAX_CONTENT_BYTES:
        return -1, 0
    if row[fields.ATTRIBUTES] & fields.CONTROL_MASK != 0:
        return used, 0
    content: memoryview = memory.flat_view(data)[start:end]
    if row[fields.ATTRIBUTES] & fields.CODEC_MASK != 0:
        try:
            codec = Codec(row[fields.ATTRIBUTES] & fields.CODEC_MASK)
            content = memory.flat_view(inflate(codec, content, limit=max_content_bytes))
        except (ValueError, CorruptBatchError):
            return -1, 0
    count: cython.longlong = row[fields.RECORD_COUNT]
    room: cython.longlong = len(content)
    if not 0 <= count <= _MAX_RECORDS or count * fields.MIN_RECORD_SIZE > room:
        return -1, 0
    most: cython.Py_ssize_t = room - (fields.MIN_RECORD_SIZE - 1) * count
    if used + most > len(text):
        memory.resize(text, used + most + (used + most) // 8)
    used = _copy_records(
        memory.writable(text),
        used,
        memory.octets_of(content),
        0,
        room,
        count,
        row[fields.LAST_OFFSET] - row[fields.BASE_OFFSET],
        start_offset - row[fields.BASE_OFFSET],
        end_offset - row[fields.BASE_OFFSET],
    )
    return used, room if used >= 0 else 0


@cython.cfunc
@cython.exceptval(check=False)
def _most_text(row: cython.p_longlong, total: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the most bytes that the values and their LFs can take; -1 where some batch is not plain."""
    most: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    for number in range(total // fields.ROW_SIZE):
        at: cython.Py_ssize_t = fields.ROW_SIZE * number
        count: cython.longlong = row[at + fields.RECORD_COUNT]
        room: cython.longlong = row[at + fields.SIZE_BYTES] - fields.HEADER_SIZE
        # Of seven parts, each a byte or more, one is the value; an LF takes the place of another.
        if (
            row[at + fields.MAGIC] != fields.CURRENT_MAGIC
            or row[at + fields.ATTRIBUTES] & fields.CODEC_MASK != 0
        ):
            return -1
        if count < 0 or count * fields.MIN_RECORD_SIZE > room:
            return -1
        if row[at + fields.ATTRIBUTES] & fields.CONTROL_MASK == 0:
            most += room - (fields.MIN_RECORD_SIZE - 1) * count
    return most


@cython.cfunc
@cython.exceptval(check=False)
def _copy_batches(
    target: cython.p_uchar,
    written: cython.Py_ssize_t,
    source: cython.p_uchar,
    row: cython.p_longlong,
    total: cython.Py_ssize_t,
    start_offset: cython.longlong,
    end_offset: cython.longlong,
) -> cython.Py_ssize_t:
    """Write from `target[written]` on; return where that ends, or -1 where some record is not plain."""
    number: cython.Py_ssize_t
    for number in range(total // fields.ROW_SIZE):
        at: cython.Py_ssize_t = fields.ROW_SIZE * number
        if row[at + fields.ATTRIBUTES] & fields.CONTROL_MASK != 0:
            continue
        written = _copy_records(
            target,
            written,
            source,
            row[at + fields.POSITION] + fields.HEADER_SIZE,
            row[at + fields.POSITION] + row[at + fields.SIZE_BYTES],
            row[at + fields.RECORD_COUNT],
            row[at + fields.LAST_OFFSET] - row[at + fields.BASE_OFFSET],
            start_offset - row[at + fields.BASE_OFFSET],
            end_offset - row[at + fields.BASE_OFFSET],
        )
        if written < 0:
            break
    return written


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy_records(
    target: cython.p_uchar,
    written: cython.Py_ssize_t,
    source: cython.p_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    last_delta: cython.longlong,
    start_delta: cython.longlong,
    end_delta: cython.longlong,
) -> cython.Py_ssize_t:
    """Write the values of one batch's records, which are in [at, end), from `target[written]` on; return where that ends, or -1."""
    stop: cython.Py_ssize_t
    number: cython.longlong
    delta: cython.longlong
    while count > 0:
        count -= 1
        number = _small(source, at, end)
        at += number & 7
        stop = at + (number >> 4)
        # Odd numbers are negative ones: 8 is the bit of the sign behind the three of the size.
        if number & 8 or number == 0 or stop > end or stop - at < 6:
            return -1
        number = _small(source, at + 1, stop)
        at += 1 + (number & 7)
        delta = _small(source, at, stop)
        if number == 0 or delta == 0 or delta & 8:
            return -1
        at += delta & 7
        delta >>= 4
        number = _small(source, at, stop)
        if delta > last_delta or number == 0:
            return -1
        at += (number & 7) + _length(number)
        if _length(number) < 0 or at >= stop:
            return -1
        number = _small(source, at, stop)
        at += number & 7
        if number == 0 or _length(number) < 0 or at + _length(number) != stop - 1 or source[stop - 1] != 0:
            return -1
        if start_delta <= delta < end_delta:
            memory.copy(target, written, source, at, _length(number))
            written += _length(number) + 1
            target[written - 1] = ord("\n")
        at = stop
    return written if at == end else -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _length(number: cython.longlong) -> cython.longlong:
    """Return the bytes of a key or value from what `_small` returned; a null, whose length is -1, has none."""
    if number & 8 == 0:
        return number >> 4
    return 0 if number >> 4 == 0 else -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _small(source: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """Return the groups of the zigzag varint at `at`, and below them three bits that count them; 0 for more than four, or past `end`."""
    if at < end and source[at] < 0x80:
        return (cython.cast(cython.longlong, source[at]) << 3) | 1
    groups: cython.longlong = 0
    size: cython.Py_ssize_t = 0
    while size < 4 and at + size < end:
        octet: cython.longlong = source[at + size]
        groups |= (octet & 0x7F) << (7 * size)
        size += 1
        if octet < 0x80:
            return (groups << 3) | size
    return 0
