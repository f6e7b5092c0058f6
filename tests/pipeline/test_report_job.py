"""Tests of the report as a Spark job: any division into tasks gives the same page, which is written atomically."""

from __future__ import annotations

import contextlib
import os

import pytest

from testing.broker.client import Client, Outgoing
from tests.doubles.waiting import wait_until
from tests.pipeline.topics_of_a_broker import checkpoint
from topicfs.coordination.membership import Position
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import place_of
from topicfs.replication import open_engine
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.disk.names import HIGH_WATERMARKS
from topicfs.storage.errors import UnknownTopicError
from topicfs.storage.manager import Machine
from topicfs.storage.model import Offset, Record, Timestamp, TopicPartition

pytest.importorskip("pyspark")

from topicfs.pipeline.jobs.report import ReportOptions, report
from topicfs.pipeline.report.collector import collect, find_parts

pytestmark = pytest.mark.spark

NEW_YEAR = 1_767_225_600_000
HOUR = 3_600_000


@pytest.fixture
def data(tmp_path):
    """Make compressed `orders` (two partitions, a week of records), `clicks` with the broker's times, and `empty`."""
    settings = {"internal.segment.bytes": "9000", "message.timestamp.after.max.ms": str(1000 * HOUR)}
    with contextlib.closing(
        open_engine(tmp_path / "data", machine=Machine(clock=lambda: Timestamp(NEW_YEAR)))
    ) as engine:
        orders = engine.create_topic("orders", partitions=2, overrides=settings).partitions()
        stamped = {**settings, "message.timestamp.type": "LogAppendTime"}
        clicks = engine.create_topic("clicks", overrides=stamped).partitions()[0]
        for hour in range(0, 7 * 24, 6):
            records = [
                Record(
                    Offset(at), Timestamp(NEW_YEAR + hour * HOUR + at), b"key" * (at % 3), b"v" * at * hour
                )
                for at in range(1, 8)
            ]
            orders[hour % 4 // 2].append(encode(records, BatchStamp(codec=Codec.LZ4)))
            late = [one._replace(timestamp=Timestamp(NEW_YEAR - hour), key=None) for one in records]
            clicks.append(encode(late))
        engine.create_topic("empty")
    for log in (tmp_path / "data").glob("*/*.log"):
        os.utime(log, ns=(0, (NEW_YEAR + 200 * HOUR) * 1_000_000))
    return tmp_path / "data"


def test_the_page_is_the_same_whatever_the_tasks_were(spark, data, tmp_path):
    """One task per segment and one task for all segments give the same page, which includes the empty topic."""
    pages, frames = [], []
    for task_bytes in (1, 1 << 30):
        output = tmp_path / f"{task_bytes}.html"
        options = ReportOptions(
            place=place_of(str(data)), output=output, now_ms=NEW_YEAR, task_bytes=task_bytes
        )
        frames.append(report(spark, options).collect())
        pages.append(output.read_text())
    assert pages[0] == pages[1]
    assert frames[0] == frames[1]
    by_partition = {(row.topic, row.partition): row for row in frames[0]}
    assert [("clicks", 0), ("empty", 0), ("orders", 0), ("orders", 1)] == list(by_partition)
    clicks, orders = by_partition["clicks", 0], by_partition["orders", 0]
    assert (196, 98) == (clicks.records, orders.records)
    assert NEW_YEAR <= orders.first_time < orders.last_time
    assert orders.log_bytes < orders.uncompressed_bytes
    assert "largest 162 ms" in pages[0]
    assert 1 < clicks.segments
    assert sum(log.stat().st_size for log in (data / "orders-0").glob("*.log")) == orders.log_bytes
    assert ["1.html", f"{1 << 30}.html", "data"] == sorted(os.listdir(tmp_path))


def test_groups_of_a_directory_are_reported_with_their_lag(spark, data, tmp_path):
    """The rows and the page have the groups' lags in topics of the report, and no lags in other topics."""
    with contextlib.closing(open_engine(data)) as engine:
        for topic, offset in (("orders", 90), ("clicks", 196)):
            engine.groups.set_positions("billing", {TopicPartition(topic, 0): Position(offset)})
    output = tmp_path / "page.html"
    found = report(spark, ReportOptions(place=place_of(str(data)), topics=("orders",), output=output))
    told = [
        (row.topic, row.partition, [(one.group, one.position, one.lag) for one in row.groups])
        for row in found.collect()
    ]
    assert [("orders", 0, [("billing", 90, 8)]), ("orders", 1, [])] == told
    assert '<th scope="row">billing</th>' in output.read_text()


@pytest.mark.java
def test_a_cluster_and_its_log_directory_give_the_same_numbers(broker):
    """A cluster and its log directory give the same numbers, except for numbers that only files have."""
    client = Client(broker.bootstrap_server)
    client.create_topic("reported", partitions=2, settings={"compression.type": "zstd"})
    client.create_topic("reported-late", settings={"message.timestamp.type": "LogAppendTime"})
    for topic in ("reported", "reported-late"):
        client.produce(topic, [Outgoing(b"v" * at, b"k" * (at % 3)) for at in range(1, 200)])
    writer = client.producer(transactional_id="reported", linger_ms=10)
    writer.init_transactions(30)
    for commit in (True, False):
        with client.transaction(writer, commit=commit):
            writer.produce("reported", b"in a transaction", timestamp=NEW_YEAR, partition=0)
    topics = ["reported", "reported-late"]
    place = place_of(f"kafka://{broker.bootstrap_server}")
    partitions, pieces = find_parts(place, topics)
    assert [("reported", 0), ("reported", 1), ("reported-late", 0)] == partitions
    of_cluster = collect(place, pieces)
    ends = {one.range.partition: one.range.end_offset for one in pieces}
    wait_until(
        lambda: ends.items() <= checkpoint(broker.log_dir, HIGH_WATERMARKS).items(), "the ends are on disk"
    )
    place = place_of(str(broker.log_dir))
    of_files = collect(place, find_parts(place, topics)[1])
    for one in of_files:
        one.segments, one.log_bytes, one.segment_lags = 0, one.stored.bytes, []
    assert of_files == of_cluster
    assert (201, 199) == tuple(
        sum(one.records for one in of_cluster if one.partition.topic == topic) for topic in topics
    )


def test_what_cannot_be_reported_leaves_the_old_page(spark, data, tmp_path):
    """An unknown topic, or a page in a missing directory, raises an error and leaves the old page unchanged."""
    output = tmp_path / "report.html"
    output.write_text("old")
    with pytest.raises(UnknownTopicError, match="nothing: no such topic"):
        report(spark, ReportOptions(place=place_of(str(data)), topics=("nothing",), output=output))
    with pytest.raises(PipelineError, match="no such directory"):
        report(spark, ReportOptions(place=place_of(str(data)), output=tmp_path / "none" / "report.html"))
    assert "old" == output.read_text()
    assert ["data", "report.html"] == sorted(os.listdir(tmp_path))
