"""Message sets of the formats v0 and v1 (kafka-storage.md#message-sets), which old log directories still have.

This module only reads them.

     0  int64  offset
     8  int32  size of the bytes after this field
    12  uint32 checksum                    CRC-32 (IEEE) of everything after it
    16  int8   magic                       0 or 1
    17  int8   attributes                  bits 0-2 codec (never zstd), 3 timestamp type (v1)
    18  int64  timestamp                   v1 only
        int32  key length (-1: null) │ key │ int32 value length (-1: null) │ value

A compressed entry is a wrapper: it has no key, its value is a compressed message set of the same format, and its
offset is that of the last inner message. In v0, the offsets of inner messages are absolute. In v1 they are relative,
and the last inner message has the wrapper's offset. A v1 wrapper with offset 0, as an old librdkafka wrote it, is an
exception: its inner offsets count from 0.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise
from typing import NamedTuple

from topicfs.storage.codec.binary.fields import CODEC_MASK, LOG_OVERHEAD
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES, MAX_PARTS
from topicfs.storage.codec.compression.codecs import inflate
from topicfs.storage.codec.headers import BatchHeader, Codec
from topicfs.storage.errors import CorruptBatchError, OversizeBatchError
from topicfs.storage.model import NO_TIMESTAMP, Offset, TimestampType

_ENTRY = struct.Struct(">qiIbb")
_LENGTH = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")


class LegacyRecords(NamedTuple):
    """The records of one entry, in the layout of `columns.Columns`."""

    data: memoryview[int]
    block: array[int]
    offsets: tuple[Offset, ...]


class _Entry(NamedTuple):
    offset: int
    timestamp: int
    key: tuple[int, int]
    """Position and length (-1: null) in the buffer from which the entry was read."""
    value: tuple[int, int]


def read_records(
    data: memoryview[int], header: BatchHeader, max_content_bytes: int = MAX_CONTENT_BYTES
) -> LegacyRecords:
    """Return the records of the entry that `header` describes. Raises CorruptBatchError, OversizeBatchError."""
    try:
        entry = _read_entry(data[: header.end_position], header.position, header.magic)
        if not header.attributes & CODEC_MASK:
            return _as_columns(data, [entry])
        inflated = _unwrap(data, header, entry, max_content_bytes)
        entries = _read_entries(inflated, header.magic, header.position)
        return _as_columns(inflated, _absolute(entries, header))
    except ValueError as error:
        raise CorruptBatchError(header.position, str(error)) from None


def _unwrap(
    data: memoryview[int], header: BatchHeader, wrapper: _Entry, max_content_bytes: int
) -> memoryview[int]:
    codec = header.codec
    if codec is Codec.ZSTD:
        raise ValueError(f"zstd in format v{header.magic}, which does not support it")
    start, length = wrapper.value
    if length < 0:
        raise ValueError("a wrapper without a value")
    return memoryview(
        inflate(
            codec,
            data[start : start + length],
            position=header.position,
            limit=max_content_bytes,
            magic=header.magic,
        )
    )


def _read_entries(data: memoryview[int], magic: int, wrapper_position: int) -> list[_Entry]:
    """Return the entries inside a wrapper. There must be at least one entry, and the entries must fill the wrapper."""
    entries: list[_Entry] = []
    position = 0
    while position < len(data):
        if len(data) - position < _ENTRY.size:
            raise ValueError("a wrapped message ends inside its header")
        _, size, _, inner_magic, attributes = _ENTRY.unpack_from(data, position)
        end = position + LOG_OVERHEAD + size
        if not position + _ENTRY.size <= end <= len(data):
            raise ValueError("a wrapped message does not fit its wrapper")
        if inner_magic != magic or attributes & CODEC_MASK:
            raise ValueError("a wrapper contains another format, or another wrapper")
        if len(entries) == MAX_PARTS:
            raise OversizeBatchError(wrapper_position, f"more than {MAX_PARTS} messages in a wrapper")
        entries.append(_read_entry(data[:end], position, magic))
        position = end
    if not entries:
        raise ValueError("an empty wrapper")
    return entries


def _read_entry(data: memoryview[int], position: int, magic: int) -> _Entry:
    """Return the entry at `position`, which must end where `data` ends."""
    (offset,) = _TIMESTAMP.unpack_from(data, position)
    at = position + _ENTRY.size
    timestamp: int = NO_TIMESTAMP
    if magic == 1:
        if len(data) - at < _TIMESTAMP.size:
            raise ValueError("a message ends before its timestamp does")
        (timestamp,) = _TIMESTAMP.unpack_from(data, at)
        at += _TIMESTAMP.size
    key = _read_span(data, at)
    value = _read_span(data, key[0] + max(key[1], 0))
    if value[0] + max(value[1], 0) != len(data):
        raise ValueError("a message's size is not that of its content")
    return _Entry(offset, timestamp, key, value)


def _read_span(data: memoryview[int], at: int) -> tuple[int, int]:
    if len(data) - at < _LENGTH.size:
        raise ValueError("a message ends before its key or value does")
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if not -1 <= length <= len(data) - at:
        raise ValueError("a message's key or value does not fit")
    return at, length


def _absolute(entries: list[_Entry], wrapper: BatchHeader) -> list[_Entry]:
    """Return the entries with absolute offsets. If the wrapper has LogAppendTime, the entries get its time."""
    if wrapper.magic == 0:
        return entries
    last = entries[-1].offset
    if wrapper.last_offset == 0:
        base = 0
    elif wrapper.last_offset < last:
        raise ValueError(f"wrapper offset {wrapper.last_offset} is below {last}, the last offset inside")
    else:
        base = wrapper.last_offset - last
    absolute = [entry._replace(offset=base + entry.offset) for entry in entries]
    if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME:
        absolute = [entry._replace(timestamp=wrapper.max_timestamp) for entry in absolute]
    return absolute


def _as_columns(data: memoryview[int], entries: list[_Entry]) -> LegacyRecords:
    if any(not 0 <= entry.offset < 2**63 for entry in entries):
        raise ValueError("offsets out of range")
    if any(after.offset <= before.offset for before, after in pairwise(entries)):
        raise ValueError("offsets that do not ascend")
    block = array("q")
    block.extend(entry.offset for entry in entries)
    block.extend(entry.timestamp for entry in entries)
    for part in (0, 1):
        block.extend(entry.key[part] for entry in entries)
    for part in (0, 1):
        block.extend(entry.value[part] for entry in entries)
    block.extend([0] * (2 * len(entries)))
    return LegacyRecords(data, block, tuple(Offset(entry.offset) for entry in entries))
