"""Tests that each row becomes a record with every column's value, in the partition that Kafka would choose."""

from __future__ import annotations

import datetime as dt

import pytest

from topicfs.pipeline.sink.layout import Layout, TopicLayout
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.records import decode
from topicfs.storage.errors import (
    InvalidRecordError,
    PartitionOfflineError,
    PolicyViolationError,
    RecordTooLargeError,
    UnknownTopicError,
)
from topicfs.storage.model import Header, TopicPartition
from topicfs.storage.partitioning import partition_of_key

pa = pytest.importorskip("pyarrow")

from topicfs.pipeline.sink.rows import RowEncoder

pytestmark = pytest.mark.spark

LAYOUT = Layout({"t": TopicLayout((0, 1, 2), 1 << 20), "u": TopicLayout((0,), 200)})
NOW = 1_700_000_000_000
UTC = dt.UTC


def encoder(topic):
    """Make an encoder whose rows without a key begin at partition 0."""
    return RowEncoder(LAYOUT, topic, now_ms=lambda: NOW, pick=lambda _: 0)


def encoded(rows, *, topic="t"):
    """Return the records of each partition, in order, as tuples (timestamp, key, value, headers)."""
    found = {}
    for partition, batch in encoder(topic).encode(rows):
        for columns in decode(batch):
            found.setdefault(partition, []).extend(tuple(record)[1:] for record in columns)
    return found


def test_every_column():
    """Key, value, headers and time become parts of a record; key and value may be null. Other columns are ignored."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    rows = pa.record_batch(
        {
            "value": pa.array([b"one", None, b""], pa.binary()),
            "key": pa.array(["k", None, ""], pa.string()),
            "partition": pa.array([1, 1, 1], pa.int32()),
            "timestamp": pa.array(
                [
                    dt.datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC),
                    None,
                    dt.datetime(1970, 1, 1, tzinfo=UTC),
                ],
                pa.timestamp("us", tz="UTC"),
            ),
            "headers": pa.array(
                [[{"key": "h", "value": b"v"}, {"key": "ü", "value": None}], None, []], pa.list_(header)
            ),
            "other": pa.array([1, 2, 3]),
        }
    )
    assert encoded(rows) == {
        TopicPartition("t", 1): [
            (1_767_323_045_678, b"k", b"one", (Header(b"h", b"v"), Header("ü".encode(), None))),
            (NOW, None, None, ()),
            (0, b"", b"", ()),
        ]
    }


def test_keys_choose_as_in_kafka():
    """The murmur2 hash of the key chooses the partition, and a partition's rows keep their order."""
    keys = [f"key {number}".encode() for number in range(50)]
    rows = pa.record_batch({"key": pa.array(keys), "value": pa.array(keys)})
    expected = {}
    for key in keys:
        expected.setdefault(TopicPartition("t", partition_of_key(key, 3)), []).append(key)
    found = {where: [record[2] for record in records] for where, records in encoded(rows).items()}
    assert expected == found
    assert 3 == len(found)


def test_unkeyed_rows_take_turns():
    """Rows without a key go to one partition for 16 KiB of values, then to the next."""
    rows = pa.record_batch({"value": pa.array([b"x" * 4096] * 9)})
    assert {0: 4, 1: 4, 2: 1} == {where.partition: len(records) for where, records in encoded(rows).items()}


def test_topics_by_column():
    """The column `topic` names each row's topic, unless the option names one for all rows."""
    rows = pa.record_batch({"topic": pa.array(["t", "u"]), "value": pa.array(["a", "b"])})
    assert {"t", "u"} == {where.topic for where in encoded(rows, topic=None)}
    assert {"u"} == {where.topic for where in encoded(rows, topic="u")}


def test_an_overridden_topic_column_is_not_looked_at():
    """The column `topic` may have any type if the option overrides it."""
    rows = pa.record_batch({"topic": pa.array([{"a": 1}]), "value": pa.array([b"v"])})
    assert [(NOW, None, b"v", ())] == [record for records in encoded(rows).values() for record in records]


def test_a_slice_is_its_rows():
    """Only the rows of an Arrow slice are encoded, although the slice shares the buffers of all rows."""
    rows = pa.record_batch(
        {"key": pa.array([b"a", b"b", None, b"d"]), "value": pa.array(["1", "2", "3", "4"])}
    )
    found = encoded(rows.slice(1, 2), topic="u")
    assert [(b"b", b"2"), (None, b"3")] == [record[1:3] for record in found[TopicPartition("u", 0)]]


def test_batches_fit_the_topic():
    """No batch is larger than max.message.bytes."""
    sizes = [
        len(batch) for _, batch in encoder("u").encode(pa.record_batch({"value": pa.array(["x" * 50] * 20)}))
    ]
    assert len(sizes) > 1
    assert max(sizes) <= 200


def test_no_rows_are_no_batches():
    """An empty Arrow batch yields no record batches."""
    assert {} == encoded(pa.record_batch({"value": pa.array([], pa.binary())}))


@pytest.mark.parametrize(
    ("columns", "topic", "error", "said"),
    [
        ({"value": ["v"], "topic": ["none"]}, None, UnknownTopicError, "none: no such topic"),
        ({"value": ["v"], "topic": [None]}, None, InvalidRecordError, "without a topic"),
        ({"value": ["v"], "topic": ["__consumer_offsets"]}, None, PolicyViolationError, "Kafka's own"),
        ({"value": ["v"], "partition": [3]}, "t", InvalidRecordError, "t: no partition 3; it has 3"),
        ({"value": ["v"], "partition": [-1]}, "t", InvalidRecordError, "t: no partition -1"),
        (
            {"value": ["v", "v" * 300, "v" * 200]},
            "u",
            RecordTooLargeError,
            "u-0: a row makes a batch of 370 bytes, max.message.bytes of u is 200$",
        ),
        (
            {"value": ["v"], "timestamp": [-2]},
            "u",
            InvalidRecordError,
            "u-0: .* before 1970, at -2 ms; .*null timestamp becomes",
        ),
    ],
)
def test_rows_that_cannot_be_written_are_reported(columns, topic, error, said):
    """A row with an invalid topic, partition or time, or of too many bytes, raises an error."""
    kinds = {
        "value": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": pa.timestamp("ms"),
    }
    rows = pa.record_batch({name: pa.array(values, kinds[name]) for name, values in columns.items()})
    with pytest.raises(error, match=said):
        encoded(rows, topic=topic)


def test_a_record_without_a_time_stays_without():
    """A record read without a time (-1 ms) is written without one."""
    rows = pa.record_batch({"value": pa.array([b"v"]), "timestamp": pa.array([-1], pa.timestamp("ms"))})
    assert [-1] == [record[0] for records in encoded(rows, topic="u").values() for record in records]


def test_a_key_is_refused_while_a_partition_is_missing():
    """If the directories lack a partition, a row with a key is refused: its partition is unknown."""
    encoder = RowEncoder(Layout({"t": TopicLayout((0, 2), 1 << 20)}), "t", now_ms=lambda: NOW)
    rows = pa.record_batch({"value": pa.array([b"v"])})
    assert {0, 2} >= {partition.partition for partition, _ in encoder.encode(rows)}
    with pytest.raises(PartitionOfflineError, match="t: partition 1 is not here"):
        list(encoder.encode(pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([b"v"])})))


def test_a_large_row_is_written_where_the_topic_takes_it():
    """A large row is written in its own, larger batch; the encoder limits only batches of several records."""
    layout = Layout({"t": TopicLayout((0,), 4 << 20)})
    rows = pa.record_batch({"value": pa.array([b"x" * (2 << 20), b"y"])})
    found = list(RowEncoder(layout, "t", now_ms=lambda: NOW).encode(rows))
    assert 2 == sum(read_header(batch).record_count for _, batch in found)
