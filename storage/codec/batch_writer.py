"""Batches made from columns or from lines of text: measured first, then written into memory of that size.

`record_parts` shows the layout of a record, `headers` the layout of a header. This module is compiled by Cython, and
runs uncompiled with the same results. Nothing checks the bounds of its writes, so the measured sizes must be right.
"""

# ruff: noqa: PLR0913, PLR0917 -- functions over raw memory take pointers and bounds one by one

from __future__ import annotations

import cython

from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.headers import PLAIN, BatchStamp, sequence_plus
from topicfs.storage.errors import RecordTooLargeError
from topicfs.storage.model import Buffer

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, header_writer, memory
else:
    from topicfs.storage.codec.binary import fields, header_writer, memory

DEFAULT_MAX_BATCH_BYTES = 1048588
"""Kafka's default max.message.bytes: the largest size of a batch, including its header."""


def encode_columns(
    columns: Columns,
    stamp: BatchStamp = PLAIN,
    *,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    unit: str = "record",
) -> list[bytearray]:
    """Return batches of all records of `columns`, each at most `max_batch_bytes` before compression.

    As a producer does, give each batch base offset 0 and dense offsets; the offsets in `columns` are ignored. Raises
    RecordTooLargeError if a record is too large for a batch of its own. `unit` is what the error's message calls a
    record; the message counts from 1.
    """
    found: list[bytearray] = []
    view: memoryview = columns.block
    block: cython.p_longlong = memory.int64s_of(view)
    count: cython.Py_ssize_t = len(columns)
    first: cython.Py_ssize_t = 0
    sequence = stamp.base_sequence
    while first < count:
        last: cython.Py_ssize_t = _batch_end(block, count, first, max_batch_bytes)
        if last == first:
            raise RecordTooLargeError(f"{unit} {first + 1} does not fit a batch of {max_batch_bytes} bytes")
        if first and sequence >= 0:
            stamp = stamp._replace(base_sequence=sequence_plus(sequence, first))
        found.append(encode_span(columns, first, last, stamp, None, None))
        first = last
    return found


def encode_lines(
    text: Buffer, *, timestamp: int, max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
) -> list[bytearray]:
    """Return batches with one record per line: the value is the line without its LF, the key is null.

    Base offsets are 0. Raises RecordTooLargeError, with the line's number from 1, if a line is too large for a batch
    of its own; ValueError if the last line has no LF.
    """
    view: memoryview = memory.flat_view(text)
    if len(view) == 0:
        return []
    if view[len(view) - 1] != ord("\n"):
        raise ValueError("the last line has no LF")
    lines: _LineReader = _LineReader(view, timestamp, max_batch_bytes)
    found: list[bytearray] = []
    while lines.position < lines.end:
        found.append(lines.next_batch())
    return found


@cython.final
@cython.cclass
class _LineReader:
    """Lines that are being written to batches, and the position of the next line."""

    view: memoryview
    position: cython.Py_ssize_t
    end: cython.Py_ssize_t
    line: cython.Py_ssize_t
    timestamp: cython.longlong
    limit: cython.Py_ssize_t

    def __init__(self, view: memoryview, timestamp: int, limit: int) -> None:
        self.view = view
        self.position = 0
        self.end = len(view)
        self.line = 1
        self.timestamp = timestamp
        self.limit = limit

    @cython.cfunc
    def next_batch(self) -> bytearray:
        """Return a batch of as many of the next lines as fit into it."""
        source: cython.p_uchar = memory.octets_of(self.view)
        position: cython.Py_ssize_t = self.position
        # Large enough if lines have at least about seventy bytes; for shorter lines the batch has to grow.
        rest: cython.Py_ssize_t = self.end - position
        capacity: cython.Py_ssize_t = max(
            fields.HEADER_SIZE, min(self.limit, fields.HEADER_SIZE + rest + rest // 8 + 32)
        )
        batch: bytearray = memory.new_octets(capacity)
        target: cython.p_uchar = memory.writable(batch)
        at: cython.Py_ssize_t = fields.HEADER_SIZE
        delta: cython.longlong = 0
        while position < self.end:
            length: cython.Py_ssize_t = memory.position_of(ord("\n"), source, position, self.end) - position
            body: cython.Py_ssize_t = _body_size(0, delta, -1, length, 0)
            size: cython.Py_ssize_t = _varint_length(body) + body
            if at + size > self.limit:
                if delta == 0:
                    raise RecordTooLargeError(f"line {self.line} does not fit a batch of {self.limit} bytes")
                break
            if at + size > capacity:
                capacity = min(self.limit, 2 * capacity + size)
                memory.resize(batch, capacity)
                target = memory.writable(batch)
            at = _put_prefix(target, at, body, 0, delta)
            target[at] = 1
            at = _put_octets(target, at + 1, source, position, length)
            target[at] = 0
            at += 1
            position += length + 1
            delta += 1
        self.position = position
        self.line += delta
        memory.resize(batch, at)
        header_writer.put_header(
            memory.writable(batch), at, 0, delta - 1, self.timestamp, self.timestamp, delta
        )
        header_writer.put_stamp(memory.writable(batch), -1, 0, -1, -1, -1)
        header_writer.seal(memoryview(batch))
        return batch


def varint(value: int) -> bytes:
    """Return `value`, a signed 64-bit integer, as a zigzag varint."""
    octets: bytearray = bytearray(10)
    end: cython.Py_ssize_t = _put_varint(memory.writable(octets), 0, value)
    return bytes(octets[:end])


def encode_span(
    columns: Columns,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    stamp: BatchStamp,
    bounds: tuple[int, int, int] | None,
    max_timestamp: int | None,
) -> bytearray:
    """Return the batch of records [first, last).

    `bounds`: base offset, the offset from which deltas count, and last offset. None: deltas are dense and begin at 0.
    """
    view: memoryview = columns.block
    data: memoryview = columns.data
    block: cython.p_longlong = memory.int64s_of(view)
    stride: cython.Py_ssize_t = len(columns)
    base_timestamp: cython.longlong = block[fields.TIMESTAMPS * stride + first] if first < last else -1
    if stamp.delete_horizon_ms is not None:
        base_timestamp = stamp.delete_horizon_ms
    zero: cython.longlong = -1 if bounds is None else bounds[1]
    size: cython.Py_ssize_t = fields.HEADER_SIZE + _span_size(
        block, stride, first, last, zero, base_timestamp
    )
    if size - fields.LOG_OVERHEAD > 0x7FFFFFFF:
        raise RecordTooLargeError(f"a batch of {size} bytes exceeds the format's 2 GiB limit")
    batch: bytearray = memory.new_octets(size)
    _put_span(
        memory.writable(batch), memory.octets_of(data), block, stride, first, last, zero, base_timestamp
    )
    largest: cython.longlong = (
        _largest(block, stride, first, last) if max_timestamp is None else max_timestamp
    )
    base_offset: cython.longlong = 0 if bounds is None else bounds[0]
    last_delta: cython.longlong = last - first - 1 if bounds is None else bounds[2] - bounds[0]
    if stamp.codec and first < last:
        batch = _compressed(batch, stamp)
    header_writer.put_header(
        memory.writable(batch), len(batch), base_offset, last_delta, base_timestamp, largest, last - first
    )
    header_writer.put_stamp(
        memory.writable(batch),
        stamp.leader_epoch,
        stamp.attributes & (-1 if first < last else ~fields.CODEC_MASK),
        stamp.producer_id,
        stamp.producer_epoch,
        stamp.base_sequence,
    )
    header_writer.seal(memoryview(batch))
    return batch


def encode_batches(columns: Columns) -> bytearray:
    """Encode the batches of `columns` again, with the records and offsets that they have in `columns`.

    All batches are uncompressed v2 without flags for transactions or compaction, and have records. Only size, record
    count and timestamps are computed again.
    """
    view: memoryview = columns.batches.rows
    rows: cython.p_longlong = memory.int64s_of(view)
    block_view: memoryview = columns.block
    block: cython.p_longlong = memory.int64s_of(block_view)
    data: memoryview = columns.data
    stride: cython.Py_ssize_t = len(columns)
    sizes_view: memoryview = memory.new_int64s(len(view) // fields.ROW_SIZE)
    sizes: cython.p_longlong = memory.int64s_of(sizes_view)
    batches: bytearray = memory.new_octets(_measure_batches(rows, len(view), block, stride, sizes))
    room: memoryview = memoryview(batches)
    at: cython.Py_ssize_t = 0
    first: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    for number in range(len(view) // fields.ROW_SIZE):
        row: cython.Py_ssize_t = fields.ROW_SIZE * number
        last: cython.Py_ssize_t = rows[row + fields.RECORD_END]
        size: cython.Py_ssize_t = sizes[number]
        batch: memoryview = room[at : at + size]
        target: cython.p_uchar = memory.octets_of(batch)
        base: cython.longlong = block[fields.TIMESTAMPS * stride + first]
        by_broker: cython.bint = rows[row + fields.ATTRIBUTES] & fields.TIMESTAMP_TYPE_MASK != 0
        largest: cython.longlong = rows[row + fields.MAX_TIMESTAMP]
        if not by_broker:
            largest = _largest(block, stride, first, last)
        offset: cython.longlong = rows[row + fields.BASE_OFFSET]
        _put_span(target, memory.octets_of(data), block, stride, first, last, offset, base)
        header_writer.put_header(
            target, size, offset, rows[row + fields.LAST_OFFSET] - offset, base, largest, last - first
        )
        header_writer.put_stamp(
            target,
            rows[row + fields.LEADER_EPOCH],
            by_broker * fields.TIMESTAMP_TYPE_MASK,
            rows[row + fields.PRODUCER_ID],
            rows[row + fields.PRODUCER_EPOCH],
            rows[row + fields.BASE_SEQUENCE],
        )
        header_writer.seal(batch)
        at += size
        first = last
    return batches


@cython.cfunc
def _measure_batches(
    rows: cython.p_longlong,
    end: cython.Py_ssize_t,
    block: cython.p_longlong,
    stride: cython.Py_ssize_t,
    sizes: cython.p_longlong,
) -> cython.Py_ssize_t:
    """Write the size of each batch to `sizes`; return the total."""
    total: cython.Py_ssize_t = 0
    first: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    for number in range(end // fields.ROW_SIZE):
        row: cython.Py_ssize_t = fields.ROW_SIZE * number
        last: cython.Py_ssize_t = rows[row + fields.RECORD_END]
        size: cython.longlong = fields.HEADER_SIZE + _span_size(
            block,
            stride,
            first,
            last,
            rows[row + fields.BASE_OFFSET],
            block[fields.TIMESTAMPS * stride + first],
        )
        if size - fields.LOG_OVERHEAD > 0x7FFFFFFF:
            raise RecordTooLargeError(f"a batch of {size} bytes exceeds the format's 2 GiB limit")
        sizes[number] = size
        total += size
        first = last
    return total


def _compressed(batch: bytearray, stamp: BatchStamp) -> bytearray:
    """Return the batch with its records compressed and its header not yet written."""
    with memoryview(batch) as view:
        records = deflate(stamp.codec, view[fields.HEADER_SIZE :], level=stamp.compression_level)
    return bytearray(fields.HEADER_SIZE) + records


@cython.cfunc
@cython.exceptval(check=False)
def _batch_end(
    block: cython.p_longlong, count: cython.Py_ssize_t, first: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the index after the last record, from `first` on, that fits into one batch of `limit` bytes."""
    size: cython.longlong = fields.HEADER_SIZE
    index: cython.Py_ssize_t = first
    while index < count:
        size += _record_size(block, count, index, index - first, block[fields.TIMESTAMPS * count + first])
        if size > limit:
            break
        index += 1
    return index


@cython.cfunc
@cython.exceptval(check=False)
def _span_size(
    block: cython.p_longlong,
    stride: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    zero: cython.longlong,
    base_timestamp: cython.longlong,
) -> cython.longlong:
    """Return the size of records [first, last). Offset deltas count from `zero`; if `zero` is -1, they are dense."""
    size: cython.longlong = 0
    index: cython.Py_ssize_t
    for index in range(first, last):
        delta: cython.longlong = index - first if zero < 0 else block[index] - zero
        size += _record_size(block, stride, index, delta, base_timestamp)
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _put_span(
    target: cython.p_uchar,
    source: cython.p_uchar,
    block: cython.p_longlong,
    stride: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    zero: cython.longlong,
    base_timestamp: cython.longlong,
) -> cython.Py_ssize_t:
    """Write records [first, last) after the header; they take the size that `_span_size` returned."""
    at: cython.Py_ssize_t = fields.HEADER_SIZE
    index: cython.Py_ssize_t
    for index in range(first, last):
        delta: cython.longlong = index - first if zero < 0 else block[index] - zero
        time_delta: cython.longlong = _wrapping_difference(
            block[fields.TIMESTAMPS * stride + index], base_timestamp
        )
        key: cython.Py_ssize_t = block[fields.KEY_LENGTHS * stride + index]
        value: cython.Py_ssize_t = block[fields.VALUE_LENGTHS * stride + index]
        headers: cython.Py_ssize_t = block[fields.HEADER_LENGTHS * stride + index]
        body: cython.Py_ssize_t = _body_size(time_delta, delta, key, value, headers)
        at = _put_prefix(target, at, body, time_delta, delta)
        at = _put_octets(target, at, source, block[fields.KEY_POSITIONS * stride + index], key)
        at = _put_octets(target, at, source, block[fields.VALUE_POSITIONS * stride + index], value)
        if headers == 0:
            target[at] = 0
            at += 1
        else:
            memory.copy(target, at, source, block[fields.HEADER_POSITIONS * stride + index], headers)
            at += headers
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _largest(
    block: cython.p_longlong, stride: cython.Py_ssize_t, first: cython.Py_ssize_t, last: cython.Py_ssize_t
) -> cython.longlong:
    """Return the greatest timestamp of records [first, last); -1 if there are no records."""
    if first == last:
        return -1
    largest: cython.longlong = block[fields.TIMESTAMPS * stride + first]
    index: cython.Py_ssize_t
    for index in range(first + 1, last):
        largest = max(largest, block[fields.TIMESTAMPS * stride + index])
    return largest


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _record_size(
    block: cython.p_longlong,
    stride: cython.Py_ssize_t,
    index: cython.Py_ssize_t,
    delta: cython.longlong,
    base_timestamp: cython.longlong,
) -> cython.longlong:
    """Return the size of one record, including its length field."""
    body: cython.longlong = _body_size(
        _wrapping_difference(block[fields.TIMESTAMPS * stride + index], base_timestamp),
        delta,
        block[fields.KEY_LENGTHS * stride + index],
        block[fields.VALUE_LENGTHS * stride + index],
        block[fields.HEADER_LENGTHS * stride + index],
    )
    return _varint_length(body) + body


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _body_size(
    time_delta: cython.longlong,
    delta: cython.longlong,
    key: cython.longlong,
    value: cython.longlong,
    headers: cython.longlong,
) -> cython.longlong:
    """Return the value of a record's length field; `key`, `value` and `headers` are lengths as in `Columns`."""
    size: cython.longlong = 1 + _varint_length(time_delta) + _varint_length(delta)
    size += _varint_length(key) + _varint_length(value)
    if key > 0:
        size += key
    if value > 0:
        size += value
    return size + (headers if headers > 0 else 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_prefix(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    body: cython.longlong,
    time_delta: cython.longlong,
    delta: cython.longlong,
) -> cython.Py_ssize_t:
    at = _put_varint(target, at, body)
    target[at] = 0
    at = _put_varint(target, at + 1, time_delta)
    return _put_varint(target, at, delta)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_octets(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write `length` and the `length` bytes from `start` on; for a null, write only the length -1."""
    at = _put_varint(target, at, length)
    if length <= 0:
        return at
    memory.copy(target, at, source, start, length)
    return at + length


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zigzag(value: cython.longlong) -> cython.ulonglong:
    return (cython.cast(cython.ulonglong, value) << 1) ^ cython.cast(cython.ulonglong, value >> 63)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_length(value: cython.longlong) -> cython.Py_ssize_t:
    groups: cython.ulonglong = _zigzag(value)
    size: cython.Py_ssize_t = 1
    while groups >= 0x80:
        groups >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(target: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    groups: cython.ulonglong = _zigzag(value)
    while groups >= 0x80:
        target[at] = (groups & 0x7F) | 0x80
        groups >>= 7
        at += 1
    target[at] = groups
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _wrapping_difference(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    """Return the difference modulo 2^64, as Java subtracts; a reader's sum wraps back to the same value."""
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, left) - cython.cast(cython.ulonglong, right)
        )
    return (left - right + 2**63) % 2**64 - 2**63
