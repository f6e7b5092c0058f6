"""Tests of reads with `format("topicfs")` in a session: batches, streams, filters, and errors in the driver."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from datetime import UTC, datetime

import pytest

from tests.fusefs.mounted.conftest import Mount
from topicfs import pipeline
from topicfs.pipeline.source.query.ranges import lag_by_partition
from topicfs.replication import open_engine
from topicfs.storage.codec.records import columns_of, encode_columns, encode_lines
from topicfs.storage.model import Header, Offset, Record, Timestamp, TopicPartition

pytest.importorskip("pyspark")
from topicfs.pipeline.source.readers import ReadMaxRows

pytestmark = pytest.mark.spark
limited = pytest.mark.skipif(ReadMaxRows is None, reason="before Spark 4.2 a trigger has no limit")

NAMES = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
START = 1_700_000_000_000


def append(path, text, *, partition=0, timestamp=START, topic="orders"):
    """Append each line of `text`, as the directory's owner."""
    with closing(open_engine(path)) as engine:
        (batch,) = encode_lines(text.encode(), timestamp=timestamp)
        engine.partition(topic, partition).append(batch)


def make(path, *, partitions=1, topic="orders"):
    with closing(open_engine(path)) as engine:
        engine.create_topic(topic, partitions=partitions)
    return path


def reader(spark, data, **options):
    given = {"path": str(data), "subscribe": "orders"} | options
    return spark.read.format("topicfs").options(**given)


def lines(rows):
    return [bytes(row.value).decode() for row in rows]


def run(frame, checkpoint, *, more=None):
    """Stream the existing records into a list of batches. `more` is called after the first batch."""
    batches = []

    def take(batch, number):
        rows = batch.orderBy("partition", "offset").collect()
        if rows:
            batches.append(rows)
        if number == 0 and more is not None:
            more()

    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    return batches, query


def test_a_batch_has_the_connectors_columns(spark, tmp_path):
    """The columns have the connector's names, types and values, with headers if requested."""
    with closing(open_engine(tmp_path)) as engine:
        topic = engine.create_topic("orders", partitions=1)
        records = [
            Record(Offset(0), Timestamp(START), b"k", b"v", (Header(b"h", b"1"), Header(b"n", None))),
            Record(Offset(1), Timestamp(START + 1), None, None),
        ]
        for batch in encode_columns(columns_of(records)):
            topic.partitions()[0].append(batch)
    frame = reader(spark, tmp_path, includeHeaders="true").load()
    assert [*NAMES, "headers"] == frame.columns
    assert NAMES == reader(spark, tmp_path).load().columns
    assert "array<struct<key:string,value:binary>>" == frame.schema["headers"].dataType.simpleString()
    first, second = frame.orderBy("offset").collect()
    instant = datetime.fromtimestamp(START / 1000, tz=UTC)
    assert (b"k", b"v", "orders", 0, 0, 0) == (
        bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset, first.timestampType
    )  # fmt: skip
    assert [("h", b"1"), ("n", None)] == [(one.key, one.value and bytes(one.value)) for one in first.headers]
    assert (None, None, None) == (second.key, second.value, second.headers)
    assert instant == frame.selectExpr("min(timestamp) as t").first().t.replace(tzinfo=UTC)


def test_a_projection_and_filters(spark, tmp_path):
    """The user's schema selects columns. Results are exact, even if filters narrow the ranges of offsets."""
    make(tmp_path, partitions=2)
    for number in range(2):
        for second in range(5):
            append(tmp_path, "a\nb\n", partition=number, timestamp=START + 1000 * second)
    narrow = reader(spark, tmp_path).schema("offset bigint, partition int").load()
    assert ["offset", "partition"] == narrow.columns
    assert 20 == narrow.count()
    assert [(8, 1), (9, 1)] == sorted(map(tuple, narrow.where("offset > 7 and partition = 1").collect()))
    assert 4 == narrow.where("offset in (2, 5)").count()
    assert 0 == reader(spark, tmp_path).load().where("topic = 'payments'").count()
    late = f"timestamp > timestamp'{datetime.fromtimestamp(START / 1000 + 2, tz=UTC).isoformat()}'"
    assert 8 == reader(spark, tmp_path).load().where(late).count()


def test_splitting_and_bounds(spark, tmp_path):
    """minPartitions sets the number of tasks, offsets bound the read, and no record is read twice."""
    make(tmp_path)
    append(tmp_path, "".join(f"{number}\n" for number in range(100)))
    given = {"startingOffsets": '{"orders":{"0":10}}', "endingOffsets": '{"orders":{"0":50}}'}
    frame = reader(spark, tmp_path, minPartitions="4", **given).load()
    assert 4 == frame.rdd.getNumPartitions()
    assert [str(number) for number in range(10, 50)] == lines(frame.orderBy("offset").collect())


def test_a_batch_that_begins_at_the_end(spark, tmp_path):
    """A batch query whose start is latest fails as soon as the query is made."""
    with pytest.raises(Exception, match="leaves a batch query nothing"):
        reader(spark, make(tmp_path), startingOffsets="latest").load().count()


def test_a_schema_with_an_invalid_column_is_refused(spark, tmp_path):
    """A user's schema is refused if it has an unknown column, or another type for a column."""
    with pytest.raises(Exception, match="schema: no column weight"):
        reader(spark, make(tmp_path)).schema("weight int").load().count()
    with pytest.raises(Exception, match="offset is bigint, not int"):
        reader(spark, tmp_path).schema("offset int").load().count()


@limited
def test_a_stream_goes_on_where_it_was(spark, tmp_path):
    """A stream continues from its checkpoint, within its limits. New partitions begin at their earliest offset."""
    data = make(tmp_path / "data", partitions=2)
    append(data, "a\nb\nc\nd\n")
    append(data, "e\nf\n", partition=1)
    frame = (
        spark.readStream.format("topicfs")
        .options(path=str(data), subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="3")
        .load()
    )
    batches, query = run(frame, tmp_path / "checkpoint")
    assert [["a", "b", "e"], ["c", "d", "f"]] == [lines(batch) for batch in batches]
    progress = [json.loads(one.json) for one in query.recentProgress]
    with closing(open_engine(data)) as engine:
        known = {f"orders@{engine.topic('orders').topic_id}": {}}
    assert {"orders": {"0": 4, "1": 2}} | known == progress[-1]["sources"][0]["endOffset"]
    assert {"orders": {"0": 4, "1": 2}} == progress[0]["sources"][0]["latestOffset"]
    assert {TopicPartition("orders", 0): 2, TopicPartition("orders", 1): 1} == lag_by_partition(progress[0])
    found = {"minOffsetsBehindLatest": "1", "maxOffsetsBehindLatest": "2", "avgOffsetsBehindLatest": "1.5"}
    assert found == pipeline.offsets_behind_latest(query.recentProgress[0])
    with closing(open_engine(data)) as engine:
        engine.add_partitions("orders", total=3)
    append(data, "g\n", partition=2)
    append(data, "h\n")
    batches, _ = run(frame, tmp_path / "checkpoint")
    assert [["h", "g"]] == [lines(batch) for batch in batches]


@limited
def test_available_now_reads_what_was_there(spark, tmp_path):
    """With availableNow, the next run reads the records that arrive while the query runs."""
    data = make(tmp_path / "data")
    append(data, "a\nb\nc\n")
    frame = (
        spark.readStream.format("topicfs")
        .options(path=str(data), subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="2")
        .load()
    )
    batches, _ = run(frame, tmp_path / "checkpoint", more=lambda: append(data, "later\n"))
    assert [["a", "b"], ["c"]] == [lines(batch) for batch in batches]
    batches, _ = run(frame, tmp_path / "checkpoint")
    assert [["later"]] == [lines(batch) for batch in batches]


@pytest.mark.parametrize("text", ["x\n", "x\ny\nz\n"], ids=["shorter", "longer"])
def test_a_stream_over_a_topic_created_again(spark, tmp_path, text):
    """A query fails if its topic was created again. failOnDataLoss=false reads the new topic from its beginning."""
    data, checkpoint = make(tmp_path / "data"), tmp_path / "checkpoint"
    append(data, "a\nb\n")
    source = (
        spark.readStream.format("topicfs")
        .options(path=str(data), subscribe="orders")
        .option("startingOffsets", "earliest")
    )
    batches, _ = run(source.load(), checkpoint)
    assert [["a", "b"]] == [lines(batch) for batch in batches]
    with closing(open_engine(data)) as engine:
        engine.delete_topic("orders")
    make(data)
    append(data, text)
    for _ in range(2):
        with pytest.raises(Exception, match=r"\[TOPICFS_DATA_LOSS\] orders: was deleted and created again"):
            run(source.load(), checkpoint)
    batches, _ = run(source.option("failOnDataLoss", "false").load(), checkpoint)
    assert [text.split()] == [lines(batch) for batch in batches]
    append(data, "later\n")
    batches, _ = run(source.option("failOnDataLoss", "true").load(), checkpoint)
    assert [["later"]] == [lines(batch) for batch in batches]


def test_micro_batches_follow_a_growing_topic(spark, tmp_path):
    """A stream that begins at latest follows a growing topic, batch after batch."""
    data = make(tmp_path / "data")
    append(data, "before\n")
    found, came, begun = [], threading.Event(), threading.Event()

    def take(batch, _):
        found.extend(lines(batch.collect()))
        if found:
            came.set()

    query = (
        spark.readStream.format("topicfs")
        .options(path=str(data), subscribe="orders")
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while not query.recentProgress and query.isActive:
            begun.wait(0.05)
        append(data, "after\n")
        assert came.wait(250), query.exception()
    finally:
        query.stop()
    assert ["after"] == found


@pytest.mark.fuse
def test_beside_a_mount_what_was_appended_is_there_at_once(spark, tmp_path):
    """After an `echo >>` through a mount, a count includes the new record immediately, before the next checkpoint."""
    mount = Mount(tmp_path)
    try:
        mount.start()
        (mount.path / "orders").mkdir()
        for number in range(1, 4):
            assert 0 == mount.bash("echo line >> orders/0/log").returncode
            assert number == reader(spark, mount.data).load().count()
    finally:
        mount.clean_up()
