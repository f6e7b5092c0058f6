"""Turns decoded columns into Arrow columns under Kafka's names. No object is created for a record, except for headers.

Values that differ between records lie in many small ranges; compiled code gathers them in one pass. A value that
all records of a task share is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import pyarrow as pa

from topicfs.pipeline.source.arrow_buffers import (
    KEYS,
    VALUES,
    ColumnRange,
    gather,
    gather_flags,
    gather_offsets,
    gather_timestamps,
    has_headers,
)
from topicfs.storage.codec.binary.fields import TIMESTAMP_TYPE_MASK
from topicfs.storage.model import Header, TopicPartition

Array: TypeAlias = Any
"""An object of pyarrow, which has no type annotations."""

BATCH_ROWS = 65_536
"""Maximum number of records in an Arrow batch. Larger batches cost the JVM more than they save."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
"""All columns, with the names and in the order of Spark's Kafka connector."""


def record_batch(parts: Sequence[ColumnRange], *, partition: TopicPartition, schema: Array) -> Array:
    """Return all records of `parts` as an Arrow batch with the columns, order and types of `schema`.

    Raises IndexError for invalid ranges, OverflowError for a column of 2 GiB or a time that Spark cannot hold.
    """
    count = sum(part.end - part.start for part in parts)
    arrays = [_BUILDERS[name](parts, count, partition) for name in schema.names]
    cast = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    if not cast:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _binary(column: int, parts: Sequence[ColumnRange], count: int, _: TopicPartition) -> Array:
    ends, validity, octets, nulls = gather(parts, column)
    buffers = [None if each is None else pa.py_buffer(each) for each in (validity, ends, octets)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, nulls)


def _numbers(values: bytearray | memoryview[int], kind: Array, count: int) -> Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)], 0)


def _timestamp_types(parts: Sequence[ColumnRange], count: int, _: TopicPartition) -> Array:
    """Return the timestamp type of each record, from its batch's attributes."""
    kind, kinds = gather_flags(parts, TIMESTAMP_TYPE_MASK)
    if kind is not None:
        return _same(kind, pa.int32(), count)
    return _numbers(kinds, pa.int32(), count)


def _same(value: str | int | None, kind: Array, count: int) -> Array:
    """Return an array of `count` equal values; arrays of up to BATCH_ROWS values share their memory."""
    return _repeated(value, kind)[:count] if count <= BATCH_ROWS else pa.repeat(pa.scalar(value, kind), count)


@lru_cache(maxsize=8)
def _repeated(value: str | int | None, kind: Array) -> Array:
    """Return BATCH_ROWS equal values. Names of topics have at most 249 characters, so the cache stays small."""
    return pa.repeat(pa.scalar(value, kind), BATCH_ROWS)


def _headers(parts: Sequence[ColumnRange], count: int, _: TopicPartition) -> Array:
    """Return the headers; null if a record has none. Names that are not UTF-8 get replacement characters."""
    if not has_headers(parts):
        return _same(None, _HEADERS, count)
    rows = []
    for columns, start, end in parts:
        lengths = columns.header_lengths
        rows += [_named(columns.headers(index)) if lengths[index] else None for index in range(start, end)]
    return pa.array(rows, _HEADERS)


def _named(headers: Sequence[Header]) -> list[dict[str, str | bytes | None]]:
    return [{"key": header.key.decode("utf-8", "replace"), "value": header.value} for header in headers]


_BUILDERS: dict[str, Callable[[Sequence[ColumnRange], int, TopicPartition], Array]] = {
    "key": partial(_binary, KEYS),
    "value": partial(_binary, VALUES),
    "topic": lambda _, count, partition: _same(partition.topic, pa.string(), count),
    "partition": lambda _, count, partition: _same(partition.partition, pa.int32(), count),
    "offset": lambda parts, count, _: _numbers(gather_offsets(parts), pa.int64(), count),
    # A record without a time (-1) gets 1 ms before 1970, as in Kafka's connector.
    "timestamp": lambda parts, count, _: _numbers(gather_timestamps(parts), _TIMESTAMP, count),
    "timestampType": _timestamp_types,
    "headers": _headers,
}
