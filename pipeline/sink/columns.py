"""Turns Arrow columns into the codec's columns of positions and lengths. No object is created for a record."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from topicfs.storage.codec.headers import Batches
from topicfs.storage.codec.records import Columns, wire_headers
from topicfs.storage.errors import InvalidRecordError
from topicfs.storage.model import Header

TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("ms"),
}
"""Types to which columns are cast; other columns keep their types."""


def cast_columns(rows: pa.RecordBatch, names: tuple[str, ...]) -> dict[str, pa.Array]:
    """Return the columns in `names` that exist in `rows`, cast to the types in TYPES."""
    return {
        name: rows.column(name).cast(TYPES[name], safe=False) if name in TYPES else rows.column(name)
        for name in names
        if name in rows.schema.names
    }


def codec_columns(columns: Mapping[str, pa.Array], count: int, *, now_ms: int) -> Columns:
    """Return records from the columns that exist; null timestamps become `now_ms`. Raises InvalidRecordError."""
    block = array("q", bytes(8 * 8 * count))
    with memoryview(block) as cells:
        if "offset" in columns:
            cells[:count] = _int64s(columns["offset"])
        cells[count : 2 * count] = numbers(columns.get("timestamp"), count, null=now_ms)
        data = bytearray()
        for at, name in ((2, "key"), (4, "value")):
            positions, lengths = _octets(columns.get(name), count, data)
            cells[at * count : (at + 1) * count] = positions
            cells[(at + 1) * count : (at + 2) * count] = lengths
    if "headers" in columns and columns["headers"].null_count < count:
        _put_headers(columns["headers"], block, count, data)
    return Columns(memoryview(data), memoryview(block), count, Batches(memoryview(array("q")), 0))


def numbers(column: pa.Array | None, count: int, *, null: int) -> memoryview[int]:
    """Return a column of numbers, or of times in milliseconds, as int64; `null` replaces missing values."""
    if column is None:
        return memoryview(array("q", [null]) * count)
    return _int64s(pc.fill_null(column.cast(pa.int64()), null))


def _octets(column: pa.Array | None, count: int, data: bytearray) -> tuple[memoryview[int], memoryview[int]]:
    """Append a column's bytes to `data`; return the positions and lengths (-1: null) of its values."""
    if column is None:
        return memoryview(array("q", bytes(8 * count))), memoryview(array("q", [-1]) * count)
    _, offsets_buffer, octets = column.buffers()
    offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, offsets_buffer], offset=column.offset)
    positions = pc.add(offsets[:-1].cast(pa.int64()), len(data))
    lengths = pc.fill_null(pc.binary_length(column).cast(pa.int64()), -1)
    if octets is not None:
        data += memoryview(octets)
    return _int64s(positions), _int64s(lengths)


def _int64s(column: pa.Array) -> memoryview[int]:
    """Return the numbers of an int64 column without nulls."""
    buffer = column.buffers()[1]
    return memoryview(buffer).cast("B").cast("q")[column.offset : column.offset + len(column)]


def _put_headers(column: pa.Array, block: array[int], count: int, data: bytearray) -> None:
    for index, headers in enumerate(column.to_pylist()):
        if not headers:
            continue
        if any(one is None or one["key"] is None for one in headers):
            raise InvalidRecordError("a header without a key")
        octets = wire_headers([Header(_utf8(one["key"]), one["value"]) for one in headers])
        block[6 * count + index] = len(data)
        block[7 * count + index] = len(octets)
        data += octets


def _utf8(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key
