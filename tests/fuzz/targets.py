"""The fuzz target: read any bytes as batches in every way, without a crash, a hang, or too much memory.

The first byte of an input selects what the following bytes are, so that small changes have large effects: a segment's
content; the records after a valid header, with each codec; or the content of an old format's wrapper, with each
codec.
"""

from __future__ import annotations

import struct

from topicfs.storage.codec.batch import scan, seal
from topicfs.storage.codec.binary.fields import CODEC_MASK, CURRENT_MAGIC
from topicfs.storage.codec.columns import Columns, decode
from topicfs.storage.codec.headers import Batches, Codec
from topicfs.storage.codec.value_copy import copy_inflated, copy_values, find_value
from topicfs.storage.errors import CorruptBatchError

MAX_INPUT_BYTES = 4096

_HEADER = struct.Struct(">qiibIhiqqqhii")
_ENTRY = struct.Struct(">qiIbb")

RAW, RECORDS, COMPRESSED, WRAPPED_V0, WRAPPED_V1 = range(5)
"""Kinds of inputs. The first byte of an input selects its kind and codec."""

KINDS = 5
MAX_OFFSET = 2**63 - 1
MAX_TEXT_BYTES = 1 << 20
"""Limit in bytes of the total size of a batch's values; a batch that inflates to more is refused."""


def read_as_batches(data: bytes) -> None:
    """Read an input. Any error other than CorruptBatchError is a bug of the reader."""
    if not data:
        return
    kind, codec = data[0] % KINDS, Codec(1 + data[0] // KINDS % 4)
    for log in _logs(kind, codec, data[1:]):
        _read(log)


def _logs(kind: int, codec: Codec, rest: bytes) -> list[bytes]:
    if kind == RAW:
        return [rest]
    if kind == RECORDS:
        return [_batch(rest[1:], attributes=0, count=rest[0] if rest else 0)]
    if kind == COMPRESSED:
        return [_batch(rest[1:], attributes=codec, count=rest[0] if rest else 0)]
    return [_wrapper(rest, magic=kind - WRAPPED_V0, codec=codec)]


def _batch(records: bytes, *, attributes: int, count: int) -> bytes:
    """Return a batch of `records` whose header is valid, except for the checksum.

    None of the readers that get this batch verifies its checksum.
    """
    last_offset_delta = max(count - 1, 0)
    return (
        _HEADER.pack(0, 49 + len(records), 0, 2, 0, attributes, last_offset_delta, 0, 0, -1, -1, -1, count)
        + records
    )


def _wrapper(compressed: bytes, *, magic: int, codec: Codec) -> bytes:
    """Return an entry of an old format that has `compressed` as its value."""
    timestamp = struct.pack(">q", 5) if magic else b""
    value = struct.pack(">ii", -1, len(compressed)) + compressed
    size = _ENTRY.size - 12 + len(timestamp) + len(value)
    return _ENTRY.pack(100, size, 0, magic, codec & CODEC_MASK) + timestamp + value


def _read(log: bytes) -> None:
    for check_crc in (False, True):
        _look_at(scan(log, check_crc=check_crc), log)
    _copy(log)
    for header in scan(log):
        try:
            _ = header.codec, header.delete_horizon_ms, header.last_sequence
            spans = decode(log, header.position, header.end_position, check_crc=False, control=True)
        except CorruptBatchError as error:
            assert header.position == error.position
            continue
        for columns in spans:
            _use(columns)
    try:
        decode(log, check_crc=False)
    except CorruptBatchError as error:
        assert 0 <= error.position <= len(log)


def _copy(log: bytes) -> None:
    """Copy the values of all batches, and find the first record of each batch, with the code that mounts use.

    This code inflates without the interpreter's lock and trusts checksums, so the checksums are made valid first.
    """
    batches = scan(log)
    sealed = bytearray(log[: batches.stop])
    for header in batches:
        if header.magic == CURRENT_MAGIC:
            seal(sealed, header.position, header.end_position)
    copy_values(sealed, bytearray(), 0, start_offset=0, end_offset=MAX_OFFSET)
    for number, header in enumerate(batches):
        copied, used, _taken = copy_inflated(
            sealed,
            batches.rows,
            text := bytearray(),
            0,
            first=number,
            size=MAX_TEXT_BYTES,
            start_offset=0,
            end_offset=MAX_OFFSET,
            max_content_bytes=MAX_TEXT_BYTES,
        )
        assert 0 <= copied <= len(batches) - number
        assert 0 <= used <= len(text)
        find_value(bytes(sealed[header.position : header.end_position]), header.base_offset)


def _look_at(batches: Batches, log: bytes) -> None:
    """Check that the batches are adjacent and inside `log`."""
    position = 0
    for header in batches:
        assert position == header.position
        position = header.end_position
    assert position == batches.stop <= len(log)


def _use(columns: Columns) -> None:
    """Check that spans are inside the buffer and offsets inside their batch, and extract all columns."""
    size = len(columns.data)
    batch = columns.batches[0]
    for index, record in enumerate(columns):
        assert batch.base_offset <= record.offset <= batch.last_offset
        for position, length in (
            (columns.key_positions[index], columns.key_lengths[index]),
            (columns.value_positions[index], columns.value_lengths[index]),
            (columns.header_positions[index], columns.header_lengths[index]),
        ):
            assert -1 <= length
            assert length <= 0 or 0 <= position <= position + length <= size
