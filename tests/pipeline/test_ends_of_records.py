"""Tests that Spark reads, archives, reports and restores records with the smallest and largest times of 64 bits."""

from __future__ import annotations

import contextlib

import pytest

from tests.doubles.ends_of_records import MICROSECONDS, TIMES
from tests.doubles.records import NOW, record
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode
from topicfs.storage.model import LATEST_TIMESTAMP

pytest.importorskip("pyspark")

from testing.broker.client import Client
from topicfs.pipeline.jobs.archive import ArchiveOptions, archive
from topicfs.pipeline.jobs.report import ReportOptions, report
from topicfs.pipeline.jobs.restore.restore import RestoreOptions, restore
from topicfs.pipeline.jobs.verify import VerifyOptions, verify
from topicfs.pipeline.places.place import place_of

pytestmark = pytest.mark.spark

MAX_MS = (2**63 - 1) // 1000
SHOWN = [min(max(time, -MAX_MS), MAX_MS) for time in TIMES]
"""TIMES, limited to those that fit into 64 bits of microseconds."""


def fill(path, times):
    with contextlib.closing(open_engine(path)) as engine:
        partition = engine.create_topic("orders", partitions=1).partitions()[0]
        partition.appender.append_as_follower(
            encode([record(offset, timestamp=time) for offset, time in enumerate(times)])
        )
    return path


def times_of(spark, read_format, **options):
    rows = spark.read.format(read_format).options(**options).load().orderBy("offset")
    return [row.time for row in rows.selectExpr("unix_millis(timestamp) AS time").collect()]


def test_a_query_reads_every_record_with_the_nearest_time(spark, tmp_path):
    """A query returns every record. A time beyond Spark's range (the year 294247) becomes the end of this range."""
    data = fill(tmp_path / "data", TIMES)
    options = {"path": str(data), "subscribe": "orders"}
    assert len(TIMES) == spark.read.format("topicfs").options(**options).load().count()
    assert SHOWN == times_of(spark, "topicfs", **options)


def test_an_archive_of_any_times_is_made_and_restored(spark, tmp_path):
    """Restored records have the nearest times that Spark can represent, at the same offsets."""
    data, kept, target = fill(tmp_path / "data", TIMES), tmp_path / "archive", tmp_path / "target"
    target.mkdir()
    archive(spark, ArchiveOptions(path=str(data), topics="orders", target=kept))
    restore(spark, RestoreOptions(archive=kept, path=str(target)))
    assert SHOWN == times_of(spark, "topicfs", path=str(target), subscribe="orders")


@pytest.mark.java
def test_a_cluster_takes_restored_times_of_the_far_future(spark, tmp_path, broker):
    """A restore sends times after the year 9999 to a cluster as numbers, because Python has no such dates."""
    times = (1, NOW, MICROSECONDS, LATEST_TIMESTAMP)
    data, kept = fill(tmp_path / "data", times), tmp_path / "archive"
    archive(spark, ArchiveOptions(path=str(data), topics="orders", target=kept))
    settings = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(LATEST_TIMESTAMP)}
    Client(broker.bootstrap_server).create_topic("ends", partitions=1, settings=settings)
    place = f"kafka://{broker.bootstrap_server}"
    restore(
        spark, RestoreOptions(archive=kept, path=place, topics="orders", into="ends", without_offsets=True)
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap_server, "subscribe": "ends"}
    assert [1, NOW, MICROSECONDS, MAX_MS] == times_of(spark, "kafka", **options)


@pytest.mark.parametrize("times", [TIMES, (0, LATEST_TIMESTAMP), (LATEST_TIMESTAMP,)])
def test_a_report_and_a_verification_take_any_time(spark, tmp_path, times):
    """A report counts each record and draws the page, and a verification finds no damage, whatever the times are."""
    data, page = fill(tmp_path / "data", times), tmp_path / "page.html"
    numbers = report(spark, ReportOptions(place=place_of(str(data)), output=page)).toArrow()
    assert [len(times)] == numbers.column("records").to_pylist()
    assert page.exists()
    (segment,) = verify(spark, VerifyOptions(place=place_of(str(data)))).collect()
    assert (len(times), max(times)) == (segment.records, segment.largest_timestamp)
