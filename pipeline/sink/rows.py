"""Arrow batches of rows into record batches, each for its partition: columns stay columns.

A row's topic is the option's or its column's. Its partition is its column's; else its key's, as with every Kafka
producer; without a key one partition at a time has its turn, for some KiB of values.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sink.layout import Layout
from storage.codec.batch import Batches
from storage.codec.records import Columns, encode_columns, wire_headers
from storage.errors import InvalidRecordError, RecordTooLargeError
from storage.model import Header, TopicPartition
from storage.partitioning.murmur2 import partition_of_key

UNKEYED_BYTES = 16_384
"""Kafka's default batch.size: after this much without a key, another partition has its turn."""

_REMEMBERED_KEYS = 1 << 16

_TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("ms"),
}


class RowEncoder:
    """Encodes the rows of one task."""

    def __init__(
        self,
        layout: Layout,
        topic: str | None,
        *,
        now_ms: Callable[[], int],
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        """`topic` overrides the column; `pick` chooses where rows without a key begin, of so many partitions."""
        self._layout = layout
        self._topic = topic
        self._now_ms = now_ms
        self._pick = pick
        self._turn: int | None = None
        self._turn_bytes = 0
        self._of_key = lru_cache(_REMEMBERED_KEYS)(partition_of_key)

    def encode(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, bytearray]]:
        """Batches at base offset 0; of a partition, in the order of its rows.

        Raises UnknownTopicError, PolicyViolationError, InvalidRecordError, RecordTooLargeError.
        """
        columns = {
            name: rows.column(name).cast(kind, safe=False)
            for name, kind in _TYPES.items()
            if name in rows.schema.names
        }
        if "headers" in rows.schema.names:
            columns["headers"] = rows.column("headers")
        for partition, indices in self._placed(columns, rows.num_rows).items():
            chosen = columns
            if len(indices) < rows.num_rows:
                picked = pa.array(indices, pa.int64())
                chosen = {name: column.take(picked) for name, column in columns.items()}
            limit = self._layout.topic(partition.topic).max_batch_bytes
            try:
                batches = encode_columns(self._columns(chosen, len(indices)), max_batch_bytes=limit)
            except RecordTooLargeError as error:
                raise RecordTooLargeError(f"{partition}: {error}") from None
            for batch in batches:
                yield partition, batch

    # Where rows go.

    def _placed(self, columns: dict[str, pa.Array], count: int) -> dict[TopicPartition, list[int]]:
        """Of each partition that gets any, the numbers of its rows, ascending."""
        topics = [self._topic] * count if self._topic is not None else columns["topic"].to_pylist()
        numbers = columns["partition"].to_pylist() if "partition" in columns else [None] * count
        keys = columns["key"].to_pylist() if "key" in columns else [None] * count
        sizes = pc.fill_null(pc.binary_length(columns["value"]), 0).to_pylist()
        placed: dict[TopicPartition, list[int]] = {}
        for index, (topic, number, key, size) in enumerate(zip(topics, numbers, keys, sizes, strict=True)):
            if topic is None:
                raise InvalidRecordError(
                    "a row without a topic: its column is null, and no option topic is given"
                )
            partition = TopicPartition(topic, self._number(topic, number, key, size))
            placed.setdefault(partition, []).append(index)
        return placed

    def _number(self, topic: str, number: int | None, key: bytes | None, size: int) -> int:
        partitions = self._layout.topic(topic).partitions
        if number is not None:
            if number not in partitions:
                raise InvalidRecordError(f"{topic}: no partition {number}; it has {len(partitions)}")
            return number
        if key is not None:
            return partitions[self._of_key(key, len(partitions))]
        if self._turn is None or self._turn_bytes >= UNKEYED_BYTES:
            self._turn = self._pick(1 << 30) if self._turn is None else self._turn + 1
            self._turn_bytes = 0
        self._turn_bytes += size
        return partitions[self._turn % len(partitions)]

    # What rows become.

    def _columns(self, columns: dict[str, pa.Array], count: int) -> Columns:
        block = array("q", bytes(8 * 8 * count))
        with memoryview(block) as cells:
            cells[count : 2 * count] = self._timestamps(columns.get("timestamp"), count)
            data = bytearray()
            for at, name in ((2, "key"), (4, "value")):
                positions, lengths = _octets(columns.get(name), count, data)
                cells[at * count : (at + 1) * count] = positions
                cells[(at + 1) * count : (at + 2) * count] = lengths
        if "headers" in columns:
            _put_headers(columns["headers"], block, count, data)
        return Columns(memoryview(data), memoryview(block), count, Batches(memoryview(array("q")), 0))

    def _timestamps(self, column: pa.Array | None, count: int) -> memoryview[int]:
        now = self._now_ms()
        if column is None:
            return memoryview(array("q", [now]) * count)
        return _int64s(pc.fill_null(column.cast(pa.int64()), now))


def _octets(column: pa.Array | None, count: int, data: bytearray) -> tuple[memoryview[int], memoryview[int]]:
    """Positions and lengths (-1: null) of a column's octets, which are added to `data`."""
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
    """The numbers of an int64 column without nulls."""
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
