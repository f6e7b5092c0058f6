"""Writes a batch's header; `storage.codec.headers` shows its layout and reads it."""

# ruff: noqa: PLR0913, PLR0917 -- functions over raw memory take each field by itself

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.storage.codec.binary import fields, memory


@cython.cfunc
@cython.exceptval(check=False)
def put_header(
    target: cython.p_uchar,
    size: cython.longlong,
    base_offset: cython.longlong,
    last_delta: cython.longlong,
    base_timestamp: cython.longlong,
    max_timestamp: cython.longlong,
    count: cython.longlong,
) -> cython.void:
    """Write the header fields that are computed from the records."""
    _put_integer(target, fields.BASE_OFFSET_POSITION, base_offset, 8)
    _put_integer(target, fields.LENGTH_POSITION, size - fields.LOG_OVERHEAD, 4)
    target[fields.MAGIC_POSITION] = fields.CURRENT_MAGIC
    _put_integer(target, fields.LAST_OFFSET_DELTA_POSITION, last_delta, 4)
    _put_integer(target, fields.BASE_TIMESTAMP_POSITION, base_timestamp, 8)
    _put_integer(target, fields.MAX_TIMESTAMP_POSITION, max_timestamp, 8)
    _put_integer(target, fields.RECORD_COUNT_POSITION, count, 4)


@cython.cfunc
@cython.exceptval(check=False)
def put_stamp(
    target: cython.p_uchar,
    leader_epoch: cython.longlong,
    attributes: cython.longlong,
    producer_id: cython.longlong,
    producer_epoch: cython.longlong,
    base_sequence: cython.longlong,
) -> cython.void:
    """Write the header fields that come from a `BatchStamp`."""
    _put_integer(target, fields.LEADER_EPOCH_POSITION, leader_epoch, 4)
    _put_integer(target, fields.ATTRIBUTES_POSITION, attributes, 2)
    _put_integer(target, fields.PRODUCER_ID_POSITION, producer_id, 8)
    _put_integer(target, fields.PRODUCER_EPOCH_POSITION, producer_epoch, 2)
    _put_integer(target, fields.BASE_SEQUENCE_POSITION, base_sequence, 4)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_integer(
    target: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong, size: cython.int
) -> cython.void:
    """Write `value` as a big-endian two's complement integer of `size` bytes."""
    index: cython.int
    for index in range(size):
        target[at + index] = (value >> (8 * (size - 1 - index))) & 0xFF


@cython.cfunc
def seal(batch: memoryview) -> cython.void:
    """Write the checksum of the bytes after the checksum field."""
    checksum: cython.longlong = memory.checksum_of(batch, fields.ATTRIBUTES_POSITION, len(batch))
    _put_integer(memory.octets_of(batch), fields.CHECKSUM_POSITION, checksum, 4)
