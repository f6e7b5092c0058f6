"""Encodes records as batches, compresses and decodes them: the codec's functions for other packages."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from topicfs.storage.codec.batch import scan, seal
from topicfs.storage.codec.batch_writer import (
    DEFAULT_MAX_BATCH_BYTES,
    encode_columns,
    encode_lines,
    encode_span,
    varint,
)
from topicfs.storage.codec.binary.fields import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
)
from topicfs.storage.codec.columns import Columns, decode
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.headers import PLAIN, Batches, BatchHeader, BatchStamp, Codec
from topicfs.storage.codec.record_parts import read_varint
from topicfs.storage.model import Header, Offset, Position, Record, Timestamp, TimestampOffset

__all__ = [
    "DEFAULT_MAX_BATCH_BYTES",
    "PLAIN",
    "BatchStamp",
    "Columns",
    "FoundRecord",
    "columns_of",
    "decode",
    "encode",
    "encode_columns",
    "encode_lines",
    "read_varint",
    "varint",
    "wire_headers",
]


class FoundRecord(NamedTuple):
    """A record, and the batch that contains it."""

    offset: Offset
    timestamp: Timestamp
    columns: Columns
    number: int
    batch: BatchHeader
    batch_position: Position
    """Position of the batch in its segment's file."""
    segment_base_offset: Offset
    batch_bytes: memoryview

    @property
    def record(self) -> Record:
        return self.columns.record(self.number)

    @property
    def time_and_offset(self) -> TimestampOffset:
        return TimestampOffset(self.timestamp, self.offset, self.batch.leader_epoch)


def encode(
    records: Sequence[Record],
    stamp: BatchStamp = PLAIN,
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """Return one batch of `records` at their own offsets.

    `base_offset`, `last_offset` and `max_timestamp` default to those of the records; compaction passes others. If
    there are no records, the base timestamp is -1. Raises ValueError if the offsets do not ascend from the base
    offset to the last offset, or if these are 2^31 or more apart. Raises RecordTooLargeError if the batch has 2 GiB
    or more.
    """
    first = records[0].offset if base_offset is None and records else base_offset
    last = records[len(records) - 1].offset if last_offset is None and records else last_offset
    if first is None or last is None:
        raise ValueError("a batch without records needs base_offset and last_offset")
    _check_offsets(records, first, last)
    columns = columns_of(records)
    return encode_span(columns, 0, len(records), stamp, (first, first, last), max_timestamp)


def columns_of(records: Sequence[Record]) -> Columns:
    """Return the records as columns over a copy of their bytes; the columns list no batches."""
    data = bytearray()
    count = len(records)
    block = array("q", bytes(8 * 8 * count))
    for index in range(count):
        record = records[index]
        block[index] = record.offset
        block[count + index] = record.timestamp
        _store(data, block, 2 * count + index, count, record.key)
        _store(data, block, 4 * count + index, count, record.value)
        _store(data, block, 6 * count + index, count, wire_headers(record.headers) if record.headers else b"")
    return Columns(memoryview(data), memoryview(block), count, Batches(memoryview(array("q")), 0))


def _store(data: bytearray, block: array[int], at: int, stride: int, octets: bytes | None) -> None:
    """Append `octets` to `data`, and write their position and length to two neighboring columns."""
    block[at] = len(data)
    block[at + stride] = -1 if octets is None else len(octets)
    if octets is not None:
        data += octets


def wire_headers(headers: Sequence[Header]) -> bytes:
    """Return the header count and the headers, encoded as in a record."""
    parts = [varint(len(headers))]
    for key, value in headers:
        parts += (varint(len(key)), key)
        parts += (varint(-1),) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def by_batch(columns: Columns) -> Iterator[tuple[BatchHeader, Iterator[Record]]]:
    """Yield each batch with its records, which are read one by one."""
    first = 0
    for batch in columns.batches:
        yield batch, map(columns.record, range(first, batch.record_end))
        first = batch.record_end


def _check_offsets(records: Sequence[Record], first: int, last: int) -> None:
    if not 0 <= first <= last < first + 2**31:
        raise ValueError(f"no batch can have offsets {first} to {last}")
    below = first - 1
    for record in records:
        if not below < record.offset <= last:
            raise ValueError(f"offset {record.offset} does not ascend within [{first}, {last}]")
        below = record.offset


_LENGTH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">H")


def compress_batches(
    batches: bytearray, codec: Codec, *, level: int | None, max_batch_bytes: int
) -> bytearray | None:
    """Return the batches compressed, without verifying their checksums.

    None if a batch is not an uncompressed v2 batch with records, or is larger than `max_batch_bytes`.
    """
    found = scan(batches)
    if found.stop < len(batches):
        return None
    written = bytearray()
    for header in found:
        if header.magic != CURRENT_MAGIC or header.attributes & CODEC_MASK or header.record_count <= 0:
            return None
        if header.size_bytes > max_batch_bytes:
            return None
        start, records = len(written), header.position + HEADER_SIZE
        with memoryview(batches) as view:
            content = deflate(codec, view[records : header.end_position], level=level)
            written += view[header.position : records]
        written += content
        _LENGTH.pack_into(written, start + LENGTH_POSITION, HEADER_SIZE + len(content) - LOG_OVERHEAD)
        _ATTRIBUTES.pack_into(written, start + ATTRIBUTES_POSITION, header.attributes | codec)
        seal(written, start, len(written))
    return written
