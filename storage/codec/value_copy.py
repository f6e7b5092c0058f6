"""Copies the values of batches to lines of text in one pass, from the batches or from their inflated content.

    61 bytes of header │ length, attributes, deltas, key │ value │ no headers │ …     →     value LF value LF …

Most logs that are read as a whole have only v2 batches whose records have no headers and only small numbers. For such
batches this module copies the values, and makes no columns. One call copies many batches, and inflates compressed
batches without the interpreter's lock. Any other batch, and a damaged batch, is left to `columns`.

This module is compiled by Cython, and runs uncompiled with the same results. Every length is checked by hand before
it is used; the buffer must not change while it is read.
"""

# ruff: noqa: PLR0913, PLR0917 -- functions over raw memory take pointers and bounds one by one

from __future__ import annotations

import cython

from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES, MAX_RECORDS
from topicfs.storage.codec.compression.codecs import inflate, parts_within
from topicfs.storage.codec.compression.unlocked import give_back, take_workspace
from topicfs.storage.codec.headers import Codec
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import Buffer

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.batch import sound_rows
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
    from cython.cimports.topicfs.storage.codec.compression import unlocked
else:
    from topicfs.storage.codec.batch import sound_rows
    from topicfs.storage.codec.binary import fields, memory
    from topicfs.storage.codec.compression import unlocked

_MAX_CONTENT_BYTES = cython.declare(cython.longlong, MAX_CONTENT_BYTES)
_MAX_RECORDS = cython.declare(cython.longlong, MAX_RECORDS)
CALL_BYTES = cython.declare(cython.longlong, 2 * 2**20)
"""A call ends once it has inflated this many bytes, which takes some milliseconds."""


def begin_text(begun: Buffer, room: cython.Py_ssize_t) -> bytearray:
    """Return a buffer of at least `room` bytes that begins with `begun`; the bytes after it are not cleared."""
    view: memoryview = memory.flat_view(begun)
    size: cython.Py_ssize_t = len(view)
    text: bytearray = memory.new_octets(max(size, room))
    memory.copy(memory.writable(text), 0, memory.octets_of(view), 0, size)
    return text


def copy_values(
    data: Buffer, text: bytearray, used: cython.Py_ssize_t, *, start_offset: int, end_offset: int
) -> int:
    """Write the values of records in [start_offset, end_offset), each with an LF, to `text` from `used` on.

    Return where the values end in `text`, which is extended if needed. `data` has whole batches. A null value becomes
    an empty line, transaction markers are left out, and every checksum is verified. Return -1 if a batch is not plain
    and valid; `columns.decode` reads such batches and reports what is wrong with them.
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
    rows: memoryview[int],
    text: bytearray,
    used: cython.Py_ssize_t,
    *,
    first: cython.Py_ssize_t = 0,
    size: cython.Py_ssize_t,
    start_offset: cython.longlong,
    end_offset: cython.longlong,
    max_content_bytes: cython.longlong,
) -> tuple[int, int, int]:
    """Copy the values of batches of `rows`, from number `first` on, as `copy_values` does.

    The batches may be compressed; their checksums were verified before. The call ends after the batch with which the
    text reaches `size` bytes, or the inflated bytes reach CALL_BYTES. It also ends after a batch that only `codecs`
    could inflate. It ends before a batch that is not plain and valid, or that inflates to more than
    `max_content_bytes`. Return the number of batches copied, the position in `text` where their values end, and their
    inflated size.
    """
    view: memoryview = memory.flat_view(data)
    source: cython.p_uchar = memory.octets_of(view)
    row: cython.p_longlong = memory.int64s_of(rows)
    count: cython.Py_ssize_t = len(rows) // fields.ROW_SIZE
    max_parts: cython.Py_ssize_t = parts_within(max_content_bytes)
    number: cython.Py_ssize_t = first
    taken: cython.longlong = 0
    workspace: unlocked.Workspace = take_workspace()
    space: cython.p_void = unlocked.space_of(workspace)
    at: cython.Py_ssize_t = 0
    made: cython.longlong = 0
    stop: cython.Py_ssize_t = used
    while stop >= 0 and number < count and used < size and taken < CALL_BYTES:
        target: cython.p_uchar = memory.writable(text)
        room: cython.Py_ssize_t = len(text)
        with cython.nogil:
            while number < count and used < size and taken < CALL_BYTES:
                at = fields.ROW_SIZE * number
                made = _inflate_at(space, source, row, at, max_content_bytes, max_parts)
                if not 0 <= made <= room - used:
                    break
                stop = _copy_at(target, used, space, source, row, at, made, start_offset, end_offset)
                if stop < 0:
                    break
                used = stop
                taken += made
                number += 1
        if made > room - used:
            memory.resize(text, used + made + (used + made) // 8)
        elif made == _LEFT:  # Inflating took long: the caller checks the clock now.
            content = _inflated(view, row, at, max_content_bytes)
            stop = _copy_content(text, used, content, row, at, start_offset, end_offset)
            if stop >= 0:
                used = stop
                taken += len(content)
                number += 1
            break
        elif made < 0:
            break
    give_back(workspace)
    return number - first, used, taken


_LEFT = cython.declare(cython.longlong, -1)
"""Result of `_inflate_at` for content that `codecs` must inflate. Smaller results mean: the batch cannot be copied."""


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _inflate_at(
    space: cython.p_void,
    source: cython.p_uchar,
    row: cython.p_longlong,
    at: cython.Py_ssize_t,
    max_content_bytes: cython.longlong,
    max_parts: cython.Py_ssize_t,
) -> cython.longlong:
    """Inflate the content of a row's batch if it is compressed; return its size, or a negative number."""
    start: cython.Py_ssize_t = row[at + fields.POSITION] + fields.HEADER_SIZE
    end: cython.Py_ssize_t = row[at + fields.POSITION] + row[at + fields.SIZE_BYTES]
    codec: cython.int = row[at + fields.ATTRIBUTES] & fields.CODEC_MASK
    if row[at + fields.MAGIC] != fields.CURRENT_MAGIC or row[at + fields.SIZE_BYTES] > _MAX_CONTENT_BYTES:
        return _LEFT - 1
    if row[at + fields.ATTRIBUTES] & fields.CONTROL_MASK != 0:
        return 0
    if codec == 0:
        return end - start
    return unlocked.inflate_in(space, codec, source, start, end, max_content_bytes, max_parts)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy_at(
    target: cython.p_uchar,
    used: cython.Py_ssize_t,
    space: cython.p_void,
    source: cython.p_uchar,
    row: cython.p_longlong,
    at: cython.Py_ssize_t,
    made: cython.Py_ssize_t,
    start_offset: cython.longlong,
    end_offset: cython.longlong,
) -> cython.Py_ssize_t:
    """Write the values of a row's batch to `target[used:]`; return the end or -1. `made`: size of its content."""
    if row[at + fields.ATTRIBUTES] & fields.CONTROL_MASK != 0:
        return used
    if row[at + fields.ATTRIBUTES] & fields.CODEC_MASK != 0:
        content: cython.p_uchar = unlocked.content_of(space)
        return _copy_batch(target, used, content, 0, made, row, at, start_offset, end_offset)
    start: cython.Py_ssize_t = row[at + fields.POSITION] + fields.HEADER_SIZE
    return _copy_batch(target, used, source, start, start + made, row, at, start_offset, end_offset)


@cython.cfunc
def _copy_content(
    text: bytearray,
    used: cython.Py_ssize_t,
    content: memoryview,
    row: cython.p_longlong,
    at: cython.Py_ssize_t,
    start_offset: cython.longlong,
    end_offset: cython.longlong,
) -> cython.Py_ssize_t:
    """Write the values of a row's batch from its inflated `content`, growing `text` if needed; return the end."""
    room: cython.Py_ssize_t = used + len(content)
    if room > len(text):
        memory.resize(text, room + room // 8)
    octets: cython.p_uchar = memory.octets_of(content)
    return _copy_batch(
        memory.writable(text), used, octets, 0, len(content), row, at, start_offset, end_offset
    )


@cython.cfunc
def _inflated(
    view: memoryview, row: cython.p_longlong, at: cython.Py_ssize_t, max_content_bytes: int
) -> memoryview:
    """Return the inflated content of a row's batch; if inflating fails, return empty content, which has no records."""
    start: cython.Py_ssize_t = row[at + fields.POSITION] + fields.HEADER_SIZE
    end: cython.Py_ssize_t = row[at + fields.POSITION] + row[at + fields.SIZE_BYTES]
    try:
        codec = Codec(row[at + fields.ATTRIBUTES] & fields.CODEC_MASK)
        return memory.flat_view(inflate(codec, view[start:end], limit=max_content_bytes))
    except (ValueError, CorruptBatchError):
        return memory.flat_view(b"")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy_batch(
    target: cython.p_uchar,
    used: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    row: cython.p_longlong,
    at: cython.Py_ssize_t,
    start_offset: cython.longlong,
    end_offset: cython.longlong,
) -> cython.Py_ssize_t:
    """Write the values of a row's batch to `target[used:]`; its records are in [start, end). Return the end, or -1."""
    count: cython.longlong = row[at + fields.RECORD_COUNT]
    if not 0 <= count <= _MAX_RECORDS or count * fields.MIN_RECORD_SIZE > end - start:
        return -1
    return _copy_records(
        target,
        used,
        source,
        start,
        end,
        count,
        row[at + fields.LAST_OFFSET] - row[at + fields.BASE_OFFSET],
        start_offset - row[at + fields.BASE_OFFSET],
        end_offset - row[at + fields.BASE_OFFSET],
    )


def find_value(data: Buffer, offset: cython.longlong) -> tuple[bytes, int] | None:
    """Return the value and timestamp of the record at `offset`; `data` is the batch that contains it.

    A null value is returned as empty. Return None if there is no such record, or if the batch is compressed, not
    plain or damaged; `columns.decode` reports what is wrong with such a batch.
    """
    view: memoryview = memory.flat_view(data)
    source: cython.p_uchar = memory.octets_of(view)
    rows: memoryview = memory.new_int64s(3 * fields.ROW_SIZE + 1)
    row: cython.p_longlong = memory.int64s_of(rows)
    end: cython.Py_ssize_t = len(view)
    if sound_rows(view, 0, end, row) != end or row[3 * fields.ROW_SIZE] != fields.ROW_SIZE:
        return None
    if _most_text(row, fields.ROW_SIZE) < 0 or row[fields.ATTRIBUTES] & fields.CONTROL_MASK != 0:
        return None
    if not _is_found(source, end, row, offset - row[fields.BASE_OFFSET]):
        return None
    base: cython.longlong = row[fields.BASE_TIMESTAMP]
    if not -_TIME_END < base < _TIME_END:
        return None
    start: cython.Py_ssize_t = row[fields.ROW_SIZE]
    value: bytes = bytes(view[start : start + row[fields.ROW_SIZE + 1]])
    if row[fields.ATTRIBUTES] & fields.TIMESTAMP_TYPE_MASK != 0:
        return value, row[fields.MAX_TIMESTAMP]
    return value, base + row[fields.ROW_SIZE + 2]


_TIME_END = cython.declare(cython.longlong, 2**62)
"""From this time on, a sum of a time and a delta might overflow int64."""


@cython.cfunc
@cython.exceptval(check=False)
def _is_found(
    source: cython.p_uchar, end: cython.Py_ssize_t, row: cython.p_longlong, wanted: cython.longlong
) -> cython.bint:
    """Find the record with offset delta `wanted`. Return False if it is missing, or if a record is not plain.

    If the record is found, write its value's position, its value's length and its time delta after the end of `row`.
    """
    at: cython.Py_ssize_t = fields.HEADER_SIZE
    count: cython.longlong = row[fields.RECORD_COUNT]
    last_delta: cython.longlong = row[fields.LAST_OFFSET] - row[fields.BASE_OFFSET]
    before: cython.longlong = -1
    found: cython.bint = False
    while count > 0:
        count -= 1
        number: cython.longlong = _small(source, at, end)
        at += number & 7
        stop: cython.Py_ssize_t = at + (number >> 4)
        # `_copy_records` explains these steps.
        if number & 8 or number == 0 or stop > end or stop - at < 6:
            return False
        time: cython.longlong = _small(source, at + 1, stop)
        at += 1 + (time & 7)
        delta: cython.longlong = _small(source, at, stop)
        if time == 0 or delta == 0 or delta & 8:
            return False
        at += delta & 7
        delta >>= 4
        number = _small(source, at, stop)
        if delta > last_delta or delta <= before or number == 0:
            return False
        at += (number & 7) + _length(number)
        if _length(number) < 0 or at >= stop:
            return False
        number = _small(source, at, stop)
        at += number & 7
        if number == 0 or _length(number) < 0 or at + _length(number) != stop - 1 or source[stop - 1] != 0:
            return False
        if delta == wanted:
            row[fields.ROW_SIZE] = at
            row[fields.ROW_SIZE + 1] = _length(number)
            row[fields.ROW_SIZE + 2] = -(time >> 4) - 1 if time & 8 else time >> 4
            found = True
        before = delta
        at = stop
    return found and at == end


@cython.cfunc
@cython.exceptval(check=False)
def _most_text(row: cython.p_longlong, total: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the largest size that the values and their LFs can have; -1 if a batch is not plain."""
    most: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    for number in range(total // fields.ROW_SIZE):
        at: cython.Py_ssize_t = fields.ROW_SIZE * number
        count: cython.longlong = row[at + fields.RECORD_COUNT]
        room: cython.longlong = row[at + fields.SIZE_BYTES] - fields.HEADER_SIZE
        # A record takes at least seven bytes besides its value. In the text, one LF replaces these bytes.
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
    """Write the values of the rows' batches to `target[written:]`; return the end, or -1 if a record is not plain."""
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
@cython.nogil
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
    """Write the values of one batch's records in [at, end) to `target[written:]`; return the end, or -1."""
    stop: cython.Py_ssize_t
    number: cython.longlong
    delta: cython.longlong
    while count > 0:
        count -= 1
        number = _small(source, at, end)
        at += number & 7
        stop = at + (number >> 4)
        # Odd zigzag numbers are negative: bit 3 is the sign, above the three bits of the size.
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
@cython.nogil
@cython.exceptval(check=False)
def _length(number: cython.longlong) -> cython.longlong:
    """Return the length of a key or value from `_small`'s result: 0 for a null, -1 for an invalid length."""
    if number & 8 == 0:
        return number >> 4
    return 0 if number >> 4 == 0 else -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _small(source: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """Return the varint at `at`, times eight, plus its size in bytes; 0 if it is torn or has more than four bytes."""
    if at < end and source[at] < 0x80:
        return (cython.cast(cython.longlong, source[at]) << 3) | 1
    groups: cython.longlong = 0
    if at + 1 < end and source[at + 1] < 0x80:  # Most lengths have one or two bytes.
        groups = (source[at + 1] << 7) | (source[at] & 0x7F)
        return (groups << 3) | 2
    size: cython.Py_ssize_t = 0
    while size < 4 and at + size < end:
        octet: cython.longlong = source[at + size]
        groups |= (octet & 0x7F) << (7 * size)
        size += 1
        if octet < 0x80:
            return (groups << 3) | size
    return 0
