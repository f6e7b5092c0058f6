"""Tests of `format("topicfs")` as a sink: the records that Spark's writers leave in topics."""

from __future__ import annotations

import contextlib
import shutil

import pytest

from tests.doubles.waiting import wait_until
from tests.pipeline.crashes import DEADLINE_SECONDS, left, left_after_sweeping
from topicfs.replication import open_engine
from topicfs.storage.codec.records import decode
from topicfs.storage.disk.names import WriteFileKind, parse_write_file
from topicfs.storage.model import Header, Offset
from topicfs.storage.partitioning import partition_of_key

pytestmark = pytest.mark.spark


@pytest.fixture
def data(tmp_path):
    """Make a data directory with the topics `orders` (three partitions) and `clicks` (one partition)."""
    engine = open_engine(tmp_path / "data")
    engine.create_topic("orders", partitions=3)
    engine.create_topic("clicks")
    engine.close()
    return tmp_path / "data"


def records(data, topic):
    """Return the records of each partition."""
    with contextlib.closing(open_engine(data, read_only=True)) as engine:
        return {
            number: [
                record
                for columns in decode(partition.read(Offset(0), max_bytes=1 << 24).data)
                for record in columns
            ]
            for number, partition in engine.topic(topic).partitions().items()
        }


def write(frame, data, **options):
    frame.write.format("topicfs").mode("append").option("path", str(data)).options(**options).save()


def test_a_batch_write_has_every_row_once_in_its_keys_partition(spark, data):
    """A write in several tasks has every row once, in the partition of the row's key, and leaves no file."""
    frame = spark.range(1000, numPartitions=4).selectExpr(
        "cast(id AS string) AS key", "concat('v', id) AS value"
    )
    write(frame, data, topic="orders")
    found = {
        number: sorted(int(record.key) for record in all_of)
        for number, all_of in records(data, "orders").items()
    }
    expected = {number: [] for number in range(3)}
    for key in range(1000):
        expected[partition_of_key(str(key).encode(), 3)].append(key)
    assert expected == found
    assert [] == left(data)


def test_every_column_reaches_the_record(spark, data):
    """The columns topic, partition, timestamp and headers reach the record."""
    frame = spark.sql(
        "SELECT 'orders' AS topic, 2 AS partition, X'6b' AS key, X'76' AS value, "
        "TIMESTAMP '2026-01-02 03:04:05.678Z' AS timestamp, "
        "array(named_struct('key', 'h', 'value', X'01')) AS headers"
    )
    write(frame, data)
    assert [(0, 1_767_323_045_678, b"k", b"v", (Header(b"h", b"\x01"),))] == [
        tuple(record) for record in records(data, "orders")[2]
    ]


def wait_until_idle(spark):
    """Wait until no task runs: Spark gives up a query before the tasks that it kills have ended."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    wait_until(
        lambda: not sum(one.numRunningTasks() for one in tracker.getExecutorInfos()),
        "no task runs",
        timeout_seconds=DEADLINE_SECONDS,
    )


def test_a_task_that_fails_leaves_nothing(spark, data):
    """If a task fails, no other task's rows are written.

    A task that Spark kills with the write may leave its staged file. The file is never submitted, and the owner
    removes it.
    """
    frame = spark.range(1000, numPartitions=4).selectExpr(
        "if(id = 999, raise_error('as planned'), cast(id AS string)) AS value"
    )
    with pytest.raises(Exception, match="as planned"):
        write(frame, data, topic="orders")
    wait_until_idle(spark)
    assert {WriteFileKind.STAGED} >= {parse_write_file(name).kind for name in left(data)}
    wait_until(
        lambda: not left_after_sweeping(data),
        "nothing of the write is left",
        timeout_seconds=DEADLINE_SECONDS,
    )
    assert {0: [], 1: [], 2: []} == records(data, "orders")


def test_what_the_topic_refuses_is_refused_whole(spark, data):
    """If a row in one of several tasks names a missing topic, the whole write fails."""
    frame = spark.range(100, numPartitions=2).selectExpr(
        "if(id = 99, 'none', 'orders') AS topic", "cast(id AS string) AS value"
    )
    with pytest.raises(Exception, match="none: no such topic; make it first"):
        write(frame, data)
    assert {0: [], 1: [], 2: []} == records(data, "orders")


def test_a_write_without_a_topic_is_reported_in_the_driver(spark, data):
    """A write without a topic fails in the driver, before any task runs."""
    with pytest.raises(Exception, match="option topic, or a column"):
        write(spark.range(1).selectExpr("'v' AS value"), data)


def test_overwrite_is_refused(spark, data):
    """Overwriting is refused, because topics are only appended to."""
    frame = spark.range(1).selectExpr("'v' AS value")
    with pytest.raises(Exception, match="use mode append"):
        frame.write.format("topicfs").mode("overwrite").option("path", str(data)).option(
            "topic", "clicks"
        ).save()


def test_a_stream_goes_on_where_it_was(spark, data, tmp_path):
    """A second run from topic to topic copies each new record once, and no other record."""

    def run():
        source = spark.readStream.format("topicfs").option("path", str(data)).option("subscribe", "clicks")
        rows = source.option("startingOffsets", "earliest").load().selectExpr("value AS key", "value")
        sink = rows.writeStream.format("topicfs").option("path", str(data)).option("topic", "orders")
        query = (
            sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )
        query.awaitTermination()

    for first in (0, 50):
        write(spark.range(first, first + 50).selectExpr("cast(id AS string) AS value"), data, topic="clicks")
        run()
    found = sorted(int(record.value) for all_of in records(data, "orders").values() for record in all_of)
    assert list(range(100)) == found
    assert [] == left(data)


def stream(spark, data, checkpoint, *, target):
    """Copy the new records of `clicks` to another topic."""
    source = spark.readStream.format("topicfs").option("path", str(data)).option("subscribe", "clicks")
    sink = source.option("startingOffsets", "earliest").load().select("value").writeStream.format("topicfs")
    query = (
        sink.option("path", str(data)).option("topic", target).option("checkpointLocation", str(checkpoint))
    )
    query.trigger(availableNow=True).start().awaitTermination()


def clicks(spark, data, first, end):
    write(spark.range(first, end).selectExpr("cast(id AS string) AS value"), data, topic="clicks")


def count(data, topic):
    return sum(map(len, records(data, topic).values()))


def test_a_copied_checkpoint_writes_to_another_topic(spark, data, tmp_path):
    """A query with a copied checkpoint can write to another topic, although query and micro-batch have the same ids."""
    with contextlib.closing(open_engine(data)) as engine:
        engine.create_topic("copy")
    clicks(spark, data, 0, 1)
    stream(spark, data, tmp_path / "first", target="orders")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    clicks(spark, data, 1, 51)
    stream(spark, data, tmp_path / "first", target="orders")
    stream(spark, data, tmp_path / "second", target="copy")
    assert (51, 50) == (count(data, "orders"), count(data, "copy"))


def test_a_target_created_again_accepts_a_repeated_micro_batch(spark, data, tmp_path):
    """A target that was created again accepts a repeated micro-batch, because only the old topic had committed it."""
    clicks(spark, data, 0, 1)
    stream(spark, data, tmp_path / "checkpoint", target="orders")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "kept")
    clicks(spark, data, 1, 51)
    stream(spark, data, tmp_path / "checkpoint", target="orders")
    with contextlib.closing(open_engine(data)) as engine:
        engine.delete_topic("orders")
        engine.create_topic("orders")
    stream(spark, data, tmp_path / "kept", target="orders")
    assert 50 == count(data, "orders")


def test_a_checkpoint_that_was_put_back_fails_loudly(spark, data, tmp_path):
    """After a checkpoint is restored, the next micro-batch fails, because its number is committed with other rows."""
    for first in (0, 1, 2):
        clicks(spark, data, first, first + 1)
        stream(spark, data, tmp_path / "checkpoint", target="orders")
        if not first:
            shutil.copytree(tmp_path / "checkpoint", tmp_path / "kept")
    clicks(spark, data, 3, 53)
    with pytest.raises(Exception, match="is repeated with 52 records, but micro-batch 2 is committed"):
        stream(spark, data, tmp_path / "kept", target="orders")
    assert 3 == count(data, "orders")
    assert [] == left(data)
