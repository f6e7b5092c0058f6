"""Turns Arrow batches of rows into record batches for each partition, column by column.

A row's topic is the option `topic` or, without this option, the value in the column `topic`. A row's partition is the
value in the column `partition`. If this value is null or missing, the hash of the key gives the partition, as with
every Kafka producer. Rows without a key go to the same partition for some KiB, then to the next partition.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from topicfs.pipeline.sink.columns import cast_columns, codec_columns, numbers
from topicfs.pipeline.sink.layout import MAX_BATCH_BYTES, Layout
from topicfs.storage.codec.binary import fields
from topicfs.storage.codec.records import Columns, encode_columns
from topicfs.storage.compaction.digests import digest_of, digests_of_keys
from topicfs.storage.errors import InvalidRecordError, RecordTooLargeError
from topicfs.storage.model import NO_TIMESTAMP, TopicPartition
from topicfs.storage.partitioning import keyed_count, partition_of_key
from topicfs.storage.staging.manifest import Content

UNKEYED_BYTES = 16_384
"""Bytes of values without keys after which the next partition is used: Kafka's default batch.size."""

MAX_KAFKA_BATCH_BYTES = 2**31 - 1
"""Largest value of a batch's length field."""

_REMEMBERED_KEYS = 1 << 16

_COLUMNS = ("value", "key", "topic", "partition", "timestamp", "headers")


class RowEncoder:
    """Encodes the rows of one task."""

    def __init__(
        self,
        layout: Layout,
        topic: str | None,
        *,
        now_ms: Callable[[], int],
        pick: Callable[[int], int] = random.randrange,
        named: bool = False,
    ) -> None:
        """Prepare the encoder; `topic` overrides the column `topic`.

        `pick(n)` returns a number below n, which chooses the first partition of rows without keys. `named`: True for
        a write that may be repeated, so that its content must be compared.
        """
        self.content: Content | None = Content() if named else None
        """Content of the rows encoded so far; None for a write without a name."""
        self._layout = layout
        self._topic = topic
        self._columns = _COLUMNS if topic is None else tuple(name for name in _COLUMNS if name != "topic")
        self._now_ms = now_ms
        self._pick = pick
        self._turn: int | None = None
        self._turn_bytes = 0
        self._of_key = lru_cache(_REMEMBERED_KEYS)(partition_of_key)

    def encode(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, bytearray]]:
        """Yield batches at base offset 0; the batches of a partition come in the order of its rows.

        Raises UnknownTopicError, PolicyViolationError, InvalidRecordError, RecordTooLargeError.
        """
        columns = cast_columns(rows, self._columns)
        for partition, indices in self._placed(columns, rows.num_rows).items():
            chosen = columns
            if len(indices) < rows.num_rows:
                picked = pa.array(indices, pa.int64())
                chosen = {name: column.take(picked) for name, column in columns.items()}
            for batch in self._batches(partition, chosen, len(indices)):
                yield partition, batch

    def _batches(
        self, partition: TopicPartition, columns: dict[str, pa.Array], count: int
    ) -> list[bytearray]:
        _check_times(partition, columns.get("timestamp"))
        records = codec_columns(columns, count, now_ms=self._now_ms())
        if self.content is not None:
            self.content = self.content.plus(content_of(partition.topic, records, columns))
        layout = self._layout.topic(partition.topic)
        most = layout.max_batch_bytes
        try:
            return encode_columns(records, layout.stamp, max_batch_bytes=min(most, MAX_BATCH_BYTES))
        except RecordTooLargeError:
            # The topic may allow a larger batch for a single large row.
            try:
                return encode_columns(records, layout.stamp, max_batch_bytes=most)
            except RecordTooLargeError:
                size = _largest(columns, records)
        raise RecordTooLargeError(
            f"{partition}: a row makes a batch of {size} bytes, max.message.bytes of {partition.topic} is {most}"
        )

    def _placed(self, columns: dict[str, pa.Array], count: int) -> dict[TopicPartition, list[int]]:
        """Return the row numbers of each partition that gets rows, ascending."""
        topics = [self._topic] * count if self._topic is not None else columns["topic"].to_pylist()
        numbers = columns["partition"].to_pylist() if "partition" in columns else [None] * count
        keys = columns["key"].to_pylist() if "key" in columns else [None] * count
        sizes = pc.fill_null(pc.binary_length(columns["value"]), 0).to_pylist()
        placed: dict[TopicPartition, list[int]] = {}
        for index, (topic, number, key, size) in enumerate(zip(topics, numbers, keys, sizes, strict=True)):
            if topic is None:
                raise InvalidRecordError(
                    "a row without a topic: the column topic is null, and no option topic is given"
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
            return self._of_key(key, keyed_count(topic, partitions))
        if self._turn is None or self._turn_bytes >= UNKEYED_BYTES:
            self._turn = self._pick(1 << 30) if self._turn is None else self._turn + 1
            self._turn_bytes = 0
        self._turn_bytes += size
        return partitions[self._turn % len(partitions)]


def _check_times(partition: TopicPartition, timestamps: pa.Array | None) -> None:
    """Raise InvalidRecordError unless a broker would accept these times. Records without a timestamp keep -1 ms."""
    if timestamps is None:
        return
    earliest = pc.min(timestamps.cast(pa.int64())).as_py()
    if earliest is not None and earliest < NO_TIMESTAMP:
        raise InvalidRecordError(
            f"{partition}: a row's timestamp lies before 1970, at {earliest} ms; Kafka has no such times "
            "(a null timestamp becomes the time of the write)"
        )


def _largest(columns: dict[str, pa.Array], records: Columns) -> int:
    """Return the size of the batch that has only the largest row."""
    lengths = zip(records.key_lengths, records.value_lengths, records.header_lengths, strict=True)
    sizes = [max(key, 0) + max(value, 0) + headers for key, value, headers in lengths]
    at = sizes.index(max(sizes))
    alone = codec_columns({name: column.slice(at, 1) for name, column in columns.items()}, 1, now_ms=0)
    (batch,) = encode_columns(alone, max_batch_bytes=MAX_KAFKA_BATCH_BYTES)
    return len(batch)


_NOT_GIVEN = -(2**63)
_WORDS = 12
"""Count of numbers that describe a record: digest and length of key, value and headers, then topic, partition, time."""


def content_of(topic: str, records: Columns, given: Mapping[str, pa.Array]) -> Content:
    """Return the content (number and digest) of a topic's records; `given` has the columns of their rows.

    Equal rows have equal content in any order and in any tasks, because Spark may divide and order the rows of a
    repeated micro-batch differently: each record has a digest, and a write has the sum of the digests. The digest
    covers topic, key, value and headers, and also partition and time if the row gives them. It leaves out values that
    the sink chooses, because they differ when a write is repeated.
    """
    count, block = len(records), records.block
    words = array("q", bytes(8 * _WORDS * count))
    with memoryview(words) as cells:
        for number, row in enumerate((fields.KEY_POSITIONS, fields.VALUE_POSITIONS, fields.HEADER_POSITIONS)):
            # Shift the block so that `digests_of_keys` finds this column in place of the keys.
            moved = block[(row - fields.KEY_POSITIONS) * count :]
            found = digests_of_keys(Columns(records.data, moved, count, records.batches), 0, count)
            cells[3 * number :: _WORDS] = found[0::2]
            cells[3 * number + 1 :: _WORDS] = found[1::2]
            cells[3 * number + 2 :: _WORDS] = block[(row + 1) * count : (row + 2) * count]
        cells[9::_WORDS] = memoryview(array("q", [digest_of(topic.encode())[0]]) * count)
        cells[10::_WORDS] = numbers(given.get("partition"), count, null=_NOT_GIVEN)
        cells[11::_WORDS] = numbers(given.get("timestamp"), count, null=_NOT_GIVEN)
    size = 8 * _WORDS
    places = (
        array("q", bytes(16 * count)) + array("q", range(0, size * count, size)) + array("q", [size]) * count
    )
    whole = Columns(memoryview(words).cast("B"), memoryview(places), count, records.batches)
    return Content(count, sum(digests_of_keys(whole, 0, count)[0::2]) % 2**64)
