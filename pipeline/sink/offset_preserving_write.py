"""Turns rows of an archive into record batches that keep the rows' offsets, times and timestamp types.

Rows come sorted by topic, partition and offset. The offsets in a batch ascend, with the same gaps as the rows, as in
a compacted log. Records with LogAppendTime share a batch only if they have the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from topicfs.pipeline.sink.columns import cast_columns, codec_columns
from topicfs.pipeline.sink.layout import TopicLayout
from topicfs.storage.codec.batch_writer import encode_span
from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.codec.records import DEFAULT_MAX_BATCH_BYTES, Columns
from topicfs.storage.errors import InvalidRecordError, RecordTooLargeError
from topicfs.storage.model import TimestampType, TopicPartition

RECORD_OVERHEAD = 40
"""Largest size that a record takes in addition to its key, value and headers: varints and attributes."""

MAX_OFFSET_DELTA = 2**31 - 1
"""Largest offset delta within a batch."""

_COLUMNS = ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "timestampType")


class _Rows(NamedTuple):
    """One Arrow batch, as columns of the codec and as lists."""

    columns: Columns
    topics: Sequence[str]
    partitions: Sequence[int]
    kinds: Sequence[int | None]
    sizes: Sequence[int]
    """Upper bound of the bytes that each record takes in a batch."""

    def place(self, index: int) -> TopicPartition:
        return TopicPartition(self.topics[index], self.partitions[index])

    def kind(self, index: int) -> TimestampType:
        return TimestampType(1) if self.kinds[index] == 1 else TimestampType(0)


class KeptBatch(NamedTuple):
    """A batch that keeps its records' offsets."""

    partition: TopicPartition
    batch: bytearray
    last_offset: int
    records: int


class OffsetPreservingEncoder:
    """Encodes the rows of one task."""

    def __init__(self, layouts: Mapping[str, TopicLayout]) -> None:
        """Prepare the encoder; `layouts` has every topic that the rows may name."""
        self._layouts = layouts
        self._last: tuple[TopicPartition, int] | None = None

    def encode(self, rows: pa.RecordBatch) -> Iterator[KeptBatch]:
        """Yield batches at the rows' offsets. Raises RecordTooLargeError; InvalidRecordError unless offsets ascend."""
        read = _read(rows)
        first, count = 0, rows.num_rows
        while first < count:
            partition = read.place(first)
            layout = self._layouts[partition.topic]
            last = _batch_end(read, first, count, min(layout.max_batch_bytes, DEFAULT_MAX_BATCH_BYTES))
            offsets = read.columns.offsets
            self._check_order(partition, offsets[first:last])
            bounds = offsets[first], offsets[first], offsets[last - 1]
            stamp = layout.stamp._replace(timestamp_type=read.kind(first))
            batch = encode_span(read.columns, first, last, stamp, bounds, None)
            if len(batch) > layout.max_batch_bytes:
                raise RecordTooLargeError(
                    f"{partition}: the record at offset {offsets[first]} makes a batch of {len(batch)} bytes, "
                    f"max.message.bytes is {layout.max_batch_bytes}"
                )
            yield KeptBatch(partition, batch, offsets[last - 1], last - first)
            first = last

    def _check_order(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        below = self._last[1] if self._last is not None and self._last[0] == partition else -1
        for offset in offsets:
            if offset <= below:
                raise InvalidRecordError(f"{partition}: offset {offset} occurs twice")
            below = offset
        self._last = partition, below


def _read(rows: pa.RecordBatch) -> _Rows:
    columns = cast_columns(rows, _COLUMNS)
    read = codec_columns(columns, rows.num_rows, now_ms=0)
    lengths = zip(read.key_lengths, read.value_lengths, read.header_lengths, strict=True)
    return _Rows(
        read,
        columns["topic"].to_pylist(),
        columns["partition"].to_pylist(),
        columns["timestampType"].to_pylist(),
        [RECORD_OVERHEAD + max(key, 0) + max(value, 0) + headers for key, value, headers in lengths],
    )


def _batch_end(rows: _Rows, first: int, count: int, limit: int) -> int:
    """Return the index after the last row, from `first` on, that fits into the batch of the row at `first`."""
    place, kind = rows.place(first), rows.kind(first)
    offsets, timestamps = rows.columns.offsets, rows.columns.timestamps
    size = HEADER_SIZE + rows.sizes[first]
    index = first + 1
    while index < count:
        size += rows.sizes[index]
        if size > limit or offsets[index] - offsets[first] > MAX_OFFSET_DELTA:
            break
        if (rows.topics[index], rows.partitions[index]) != place or rows.kind(index) is not kind:
            break
        if kind is TimestampType.LOG_APPEND_TIME and timestamps[index] != timestamps[first]:
            break
        index += 1
    return index
