"""Tests of rows that become batches at given offsets, with their times and timestamp types."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")

from topicfs.pipeline.sink.layout import TopicLayout
from topicfs.pipeline.sink.offset_preserving_write import OffsetPreservingEncoder
from topicfs.pipeline.source.arrow import SCHEMA
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import decode
from topicfs.storage.errors import InvalidRecordError, RecordTooLargeError
from topicfs.storage.model import Header, Offset, Record, Timestamp, TimestampType, TopicPartition

ORDERS = TopicPartition("orders", 0)
FORM = TopicLayout((0,), 1_000_000)


def row(offset, **columns):
    plain = {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 0,
        "offset": offset,
        "timestamp": 1000 * offset,
        "timestampType": 0,
        "headers": None,
    }
    return plain | columns


def encode(*batches, form=FORM):
    encoder = OffsetPreservingEncoder({"orders": form, "clicks": form})
    return [
        kept for rows in batches for kept in encoder.encode(pa.RecordBatch.from_pylist(list(rows), SCHEMA))
    ]


def records(kept):
    return [one for columns in decode(kept.batch) for one in columns]


def test_records_keep_what_they_have():
    """Records keep offsets with gaps, times to the millisecond, headers, and nulls."""
    rows = [
        row(3, headers=[{"key": "h", "value": b"1"}, {"key": "n", "value": None}]),
        row(7, key=None, value=None, timestamp=-1000),
        row(9, key=b"", value=b""),
    ]
    (kept,) = encode(rows)
    assert (ORDERS, 9, 3) == (kept.partition, kept.last_offset, kept.records)
    assert [
        Record(Offset(3), Timestamp(3), b"k", b"v", (Header(b"h", b"1"), Header(b"n", None))),
        Record(Offset(7), Timestamp(-1), None, None),
        Record(Offset(9), Timestamp(9), b"", b""),
    ] == records(kept)
    header = read_header(kept.batch)
    assert (3, 9, 3, -1) == (header.base_offset, header.last_offset, header.record_count, header.producer_id)


def test_a_batch_has_one_partition_and_one_kind_of_time():
    """A batch has records of one partition and timestamp type; those with LogAppendTime have the same time."""
    rows = [
        row(0, topic="clicks"),
        row(0),
        row(1, timestampType=1, timestamp=5000),
        row(2, timestampType=1, timestamp=5000),
        row(3, timestampType=1, timestamp=6000),
        row(4, timestampType=None),
        row(0, partition=1),
    ]
    kept = encode(rows)
    assert [
        ("clicks", 0, 1),
        ("orders", 0, 1),
        ("orders", 0, 2),
        ("orders", 0, 1),
        ("orders", 0, 1),
        ("orders", 1, 1),
    ] == [(*one.partition, one.records) for one in kept]
    stamped = [read_header(one.batch).timestamp_type is TimestampType.LOG_APPEND_TIME for one in kept]
    assert [False, False, True, True, False, False] == stamped
    assert [5, 5] == [one.timestamp for one in records(kept[2])]


def test_a_batch_spans_no_more_offsets_than_its_format_can_tell():
    """A batch spans at most 2^31 offsets."""
    assert [[0, 2**31 - 1], [2**31]] == [
        [one.offset for one in records(kept)] for kept in encode([row(0), row(2**31 - 1), row(2**31)])
    ]


def test_batches_are_as_large_as_the_topic_takes():
    """Batches are as large as the topic allows, and compressed with the topic's codec."""
    rows = [row(offset, value=bytes(400)) for offset in range(10)]
    kept = encode(rows, form=TopicLayout((0,), 1000, stamp=BatchStamp(codec=Codec.GZIP)))
    assert all(read_header(one.batch).codec is Codec.GZIP for one in kept)
    assert [2] * 5 == [one.records for one in kept]
    assert list(range(10)) == [record.offset for one in kept for record in records(one)]


def test_a_record_that_no_batch_takes_is_named():
    """The error for a record that is too large names max.message.bytes."""
    with pytest.raises(
        RecordTooLargeError, match="orders-0: the record at offset 5 .*max.message.bytes is 1000"
    ):
        encode([row(5, value=bytes(2000))], form=TopicLayout((0,), 1000))


@pytest.mark.parametrize("batches", [([row(5), row(5)],), ([row(5)], [row(5)]), ([row(5), row(4)],)])
def test_offsets_ascend(batches):
    """A repeated offset raises an error, even if the two rows are in different Arrow batches."""
    with pytest.raises(InvalidRecordError, match="orders-0: offset [45] occurs twice"):
        encode(*batches)


def test_no_rows_are_no_batches():
    """A task without rows yields no batches."""
    assert [] == encode([])
