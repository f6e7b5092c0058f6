"""Tests of repeated jobs that write to topics: restored checkpoints, `foreachBatch`, batch jobs, and kills."""

from __future__ import annotations

import contextlib
import shutil

import pytest

from tests.doubles.engines import read_lines
from tests.pipeline.crashes import left
from topicfs.replication import open_engine

pytestmark = pytest.mark.spark


@pytest.fixture
def data(tmp_path):
    """Make a data directory with the topics `source` (two partitions) and `target` (one partition)."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        engine.create_topic("source", partitions=2)
        engine.create_topic("target")
    return tmp_path / "data"


def lines(data, topic="target"):
    with contextlib.closing(open_engine(data, read_only=True)) as engine:
        return read_lines(engine.topic(topic).partitions()[0])


def write(frame, data, **options):
    frame.write.format("topicfs").mode("append").option("path", str(data)).options(**options).save()


def feed(spark, data, partition, first, end):
    rows = spark.range(first, end).selectExpr("cast(id AS string) AS value", f"{partition} AS partition")
    write(rows, data, topic="source")


def copy(spark, data, checkpoint, **options):
    """Copy the new records of `source` to `target`, ten at a time."""
    source = spark.readStream.format("topicfs").options(path=str(data), subscribe="source")
    rows = source.options(startingOffsets="earliest", maxOffsetsPerTrigger="10").load().select("value")
    sink = rows.writeStream.format("topicfs").options(path=str(data), topic="target", **options)
    sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def test_a_restored_checkpoint_with_as_many_other_rows_fails(spark, data, tmp_path):
    """After a checkpoint is restored, a micro-batch with other rows fails: no row is duplicated or dropped silently."""
    feed(spark, data, 0, 0, 10)
    copy(spark, data, tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "kept")
    feed(spark, data, 0, 10, 20)
    copy(spark, data, tmp_path / "checkpoint")
    feed(spark, data, 1, 20, 30)
    with pytest.raises(
        Exception, match="micro-batch 1 .* is repeated with other rows .10 records; committed: 10"
    ):
        copy(spark, data, tmp_path / "kept")
    assert list(map(str, range(20))) == lines(data)
    assert [] == left(data)
    copy(spark, data, tmp_path / "checkpoint")
    assert list(map(str, range(30))) == sorted(lines(data), key=int)


def test_a_repeated_micro_batch_in_other_tasks_is_skipped(spark, data, tmp_path):
    """A repeated micro-batch is skipped even if Spark divides its offsets among more tasks than before.

    A micro-batch is repeated if Spark crashed before its own commit.
    """
    feed(spark, data, 0, 0, 10)
    copy(spark, data, tmp_path / "checkpoint")
    feed(spark, data, 0, 10, 15)
    feed(spark, data, 1, 15, 20)
    copy(spark, data, tmp_path / "checkpoint")
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    copy(spark, data, tmp_path / "checkpoint", failOnOtherRows="true")
    assert list(map(str, range(20))) == sorted(lines(data), key=int)
    assert [] == left(data)


def test_foreach_batch_with_a_name_writes_each_batch_once(spark, data, tmp_path):
    """A job that lost its checkpoint repeats each named micro-batch, and none is appended again."""

    def run(checkpoint):
        def append(rows, batch_id):
            options = {"topic": "target", "txnAppId": "copy.job", "txnVersion": batch_id}
            write(rows.select("value").repartition(3), data, **options)

        source = spark.readStream.format("topicfs").options(path=str(data), subscribe="source")
        rows = source.options(startingOffsets="earliest", maxOffsetsPerTrigger="10").load()
        query = rows.writeStream.foreachBatch(append).option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    feed(spark, data, 0, 0, 25)
    run(tmp_path / "first")
    run(tmp_path / "second")
    feed(spark, data, 0, 25, 40)
    run(tmp_path / "first")
    assert list(map(str, range(40))) == sorted(lines(data), key=int)
    assert [] == left(data)


def test_a_named_batch_job_that_runs_again_appends_nothing(spark, data):
    """A repeated named job appends nothing, even if its tasks order rows differently; with other rows it fails."""
    name = {"topic": "target", "txnAppId": "nightly", "txnVersion": "20260131"}
    write(spark.range(100, numPartitions=1).selectExpr("cast(id AS string) AS value"), data, **name)
    write(spark.range(100).repartition(5).selectExpr("cast(id AS string) AS value"), data, **name)
    assert list(map(str, range(100))) == lines(data)
    with pytest.raises(
        Exception, match="version 20260131 of application nightly is repeated with other rows"
    ):
        write(spark.range(1, 101).selectExpr("cast(id AS string) AS value"), data, **name)
    assert 100 == len(lines(data))
    assert [] == left(data)


def test_a_stream_takes_no_name(spark, data, tmp_path):
    """A stream refuses a write's name, because its query already has one. The message says where a name is allowed."""
    with pytest.raises(Exception, match="txnAppId: a streaming query names its writes itself"):
        copy(spark, data, tmp_path / "checkpoint", txnAppId="a", txnVersion="1")
