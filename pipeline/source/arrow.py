"""Decoded columns as Arrow columns under Kafka's names, without an object a record (headers apart).

Offsets are shared with the decoded block, times are multiplied once, keys and values are gathered by compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.source.gather import KEYS, VALUES, gather
from storage.codec.batch import FIELDS, TIMESTAMP_TYPE_MASK, BatchHeader
from storage.codec.columns import Columns
from storage.model import TopicPartition

Array: TypeAlias = Any
"""pyarrow comes without types."""

_ATTRIBUTES = BatchHeader._fields.index("attributes")
_RECORD_END = BatchHeader._fields.index("record_end")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def record_batch(
    columns: Columns, start: int, end: int, *, partition: TopicPartition, schema: Array
) -> Array:
    """The records [start, end) of `columns` with the columns of `schema`, in its order and of its types."""
    arrays = [_BUILDERS[name](columns, start, end, partition) for name in schema.names]
    cast = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    if not cast:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * (end - start), pa.struct([])))
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _binary(column: int) -> Callable[[Columns, int, int, TopicPartition], Array]:
    def build(columns: Columns, start: int, end: int, _: TopicPartition) -> Array:
        ends, validity, octets, nulls = gather(columns, column, start, end)
        buffers = [
            None if validity is None else pa.py_buffer(validity),
            pa.py_buffer(ends),
            pa.py_buffer(octets),
        ]
        return pa.Array.from_buffers(pa.binary(), end - start, buffers, nulls)

    return build


def _int64s(column: int, columns: Columns, start: int, end: int) -> Array:
    first = column * len(columns)
    part = columns.block[first + start : first + end]
    return pa.Array.from_buffers(pa.int64(), end - start, [None, pa.py_buffer(part)])


def _offsets(columns: Columns, start: int, end: int, _: TopicPartition) -> Array:
    return _int64s(0, columns, start, end)


def _timestamps(columns: Columns, start: int, end: int, _: TopicPartition) -> Array:
    """Microseconds, as Spark has them; a record without a timestamp (-1) is a millisecond before 1970, as in Kafka's."""
    return pc.multiply_checked(_int64s(1, columns, start, end), 1000).view(pa.timestamp("us", tz="UTC"))


def _topics(_: Columns, start: int, end: int, partition: TopicPartition) -> Array:
    return pa.repeat(pa.scalar(partition.topic, pa.string()), end - start)


def _partitions(_: Columns, start: int, end: int, partition: TopicPartition) -> Array:
    return pa.repeat(pa.scalar(partition.partition, pa.int32()), end - start)


def _timestamp_types(columns: Columns, start: int, end: int, _: TopicPartition) -> Array:
    """Of each record what its batch's attributes say, in runs."""
    runs: list[tuple[int, int]] = []
    below = start
    rows = columns.batches.rows
    for row in range(0, len(rows), FIELDS):
        upto = min(end, rows[row + _RECORD_END])
        if upto <= below:
            continue
        kind = 1 if rows[row + _ATTRIBUTES] & TIMESTAMP_TYPE_MASK else 0
        if runs and runs[-1][0] == kind:
            runs[-1] = kind, runs[-1][1] + upto - below
        else:
            runs.append((kind, upto - below))
        below = upto
    parts = [pa.repeat(pa.scalar(kind, pa.int32()), count) for kind, count in runs]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts or [pa.array([], pa.int32())])


def _headers(columns: Columns, start: int, end: int, _: TopicPartition) -> Array:
    """No headers are null, not an empty list; a name that is no UTF-8 is shown with replacement characters."""
    lengths = columns.header_lengths
    rows = [
        [
            {"key": header.key.decode("utf-8", "replace"), "value": header.value}
            for header in columns.headers(index)
        ]
        if lengths[index]
        else None
        for index in range(start, end)
    ]
    return pa.array(rows, _HEADERS)


_BUILDERS: dict[str, Callable[[Columns, int, int, TopicPartition], Array]] = {
    "key": _binary(KEYS),
    "value": _binary(VALUES),
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}

COLUMNS = tuple(_BUILDERS)
"""The columns there are, under Kafka's names and in its order."""
