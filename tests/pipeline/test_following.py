"""How a stream goes on: beside a live owner, over new and vanished partitions, and when it waits."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: it comes with the extra spark")

import pipeline
from pipeline.errors import DataLossError, PipelineError, SparkMissingError
from pipeline.source.following import Following
from pipeline.source.options import parse_source_options
from pipeline.source.reading import Source
from storage.codec.records import encode_lines
from storage.manager import open_engine
from storage.model import TopicPartition

BROKER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""
"""Holds the lock of a data directory as a broker does."""

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def append(path, text, *, partition=0):
    engine = open_engine(path)
    (batch,) = encode_lines(text.encode(), timestamp=1_700_000_000_000)
    engine.partition("orders", partition).append(batch)
    engine.close()


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    engine = open_engine(path)
    engine.create_topic("orders", partitions=2)
    engine.close()
    append(path, "a\nb\nc\n")
    return path


@pytest.fixture
def follow(data):
    """Make a query's way through the topic, from given options."""
    made = []

    def make(**given):
        options = {"path": str(data), "subscribe": "orders", "startingOffsets": "earliest"} | given
        made.append(Following(Source(parse_source_options(options, streaming=True))))
        return made[-1]

    yield make
    for one in made:
        one.close()


def read(tasks):
    return [(task.range.partition, task.range.start_offset, task.range.end_offset) for task in tasks]


def test_one_step_after_the_other(data, follow):
    """Nothing new is no step; what came since is seen without opening anew."""
    stream = follow()
    start = stream.begin()
    assert {FIRST: 0, SECOND: 0} == start
    end = stream.advance(start, most=2, now_ms=0)
    assert {FIRST: 2, SECOND: 0} == end
    assert [(FIRST, 0, 2)] == read(stream.tasks(start, end))
    end = stream.advance(end, most=2, now_ms=0)
    assert {FIRST: 3, SECOND: 0} == end
    assert end == stream.advance(end, most=2, now_ms=0)
    append(data, "d\n", partition=1)
    assert {FIRST: 3, SECOND: 1} == stream.advance(end, most=None, now_ms=0)
    assert {FIRST: 3, SECOND: 1} == stream.latest


def test_it_waits_for_enough(follow):
    """minOffsetsPerTrigger, until maxTriggerDelay is over; neither the first batch nor a query that is to end waits."""
    stream = follow(minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    start = stream.begin()
    waited = [stream.advance(start, most=None, now_ms=now)[FIRST] for now in (0, 4999, 5000)]
    assert [3, 0, 3] == waited
    ending = follow(minOffsetsPerTrigger="10")
    ending.stop_at_latest()
    assert {FIRST: 3, SECOND: 0} == ending.advance(start, most=None, now_ms=0)


def test_told_to_stop_it_stops_there(data, follow):
    """Records and partitions that come later are for the next run."""
    stream = follow()
    stream.stop_at_latest()
    append(data, "later\n")
    engine = open_engine(data)
    engine.add_partitions("orders", total=3)
    engine.close()
    assert {FIRST: 3, SECOND: 0} == stream.advance(stream.begin(), most=None, now_ms=0)


def test_partitions_that_vanish(data, follow):
    """A loss, unless it does not matter: then the others go on."""
    stream, lenient = follow(), follow(failOnDataLoss="false")
    start = stream.begin()
    end = stream.advance(start, most=None, now_ms=0)
    shutil.rmtree(data / "orders-1")
    with pytest.raises(DataLossError, match="orders-1: gone since"):
        stream.tasks(start, end)
    assert [(FIRST, 0, 3)] == read(lenient.tasks(start, end))


def test_a_log_that_became_shorter(follow):
    """The stream was further on than the log is now: told, or waited for."""
    stream, lenient = follow(), follow(failOnDataLoss="false")
    ahead = {FIRST: 9, SECOND: 0}
    assert ahead == stream.advance(ahead, most=None, now_ms=0)
    with pytest.raises(DataLossError, match="is beyond|outside"):
        stream.tasks({FIRST: 2, SECOND: 0}, ahead)
    assert [(FIRST, 2, 3)] == read(lenient.tasks({FIRST: 2, SECOND: 0}, ahead))
    with pytest.raises(DataLossError, match="the stream was at 9"):
        stream.tasks(ahead, {FIRST: 3, SECOND: 0})


def test_a_new_partition_whose_beginning_is_gone(data, follow):
    """It begins at its earliest offset, which is told when that is not 0."""
    append(data, "x\ny\n", partition=1)
    engine = open_engine(data)
    engine.partition("orders", 1).delete_records(1)
    engine.close()
    with pytest.raises(DataLossError, match="orders-1: is new"):
        follow().tasks({FIRST: 3}, {FIRST: 3, SECOND: 2})
    lenient = follow(failOnDataLoss="false")
    assert [(SECOND, 1, 2)] == read(lenient.tasks({FIRST: 3}, {FIRST: 3, SECOND: 2}))


def test_beside_a_daemon_all_that_was_acknowledged(data, follow):
    """At once, step by step, through a roll and a restart of the owner; nothing of it is disturbed."""
    engine = open_engine(data)
    (batch,) = encode_lines(b"d\n", timestamp=1_700_000_000_000)
    stream = follow()
    for end in (4, 5, 6):
        engine.partition("orders", 0).append(bytearray(batch))
        assert {FIRST: end, SECOND: 0} == stream.advance({}, most=None, now_ms=0)
    engine.close()
    assert {FIRST: 6, SECOND: 0} == stream.advance({}, most=None, now_ms=0)
    append(data, "d\n", partition=1)
    assert {FIRST: 6, SECOND: 1} == stream.advance({}, most=None, now_ms=0)
    assert [(FIRST, 0, 6), (SECOND, 0, 1)] == read(stream.tasks({FIRST: 0, SECOND: 0}, {FIRST: 6, SECOND: 1}))


def test_beside_a_broker_up_to_the_high_watermark(data, follow):
    """What its checkpoint does not say yet is not shown yet: another replica may know better."""
    engine = open_engine(data)
    (batch,) = encode_lines(b"d\n", timestamp=1_700_000_000_000)
    engine.partition("orders", 0).append(batch)
    checkpoint = data / "replication-offset-checkpoint"
    behind = checkpoint.read_text()
    engine.close()
    checkpoint.write_text(behind)
    (data / ".kafka_cleanshutdown").unlink()
    with subprocess.Popen(
        [sys.executable, "-c", BROKER, str(data / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        assert {FIRST: 3, SECOND: 0} == follow().advance({}, most=None, now_ms=0)
        process.stdin.close()
    assert {FIRST: 4, SECOND: 0} == follow().advance({}, most=None, now_ms=0)


def test_a_topic_that_is_not_there(follow):
    """A query does not begin without it."""
    with pytest.raises(PipelineError, match="no such topic: payments"):
        follow(subscribe="payments").begin()


def test_without_spark_one_line_says_how_to_get_it(monkeypatch):
    """The extra's name, in the error's one line."""
    monkeypatch.delitem(sys.modules, "pipeline.data_source", raising=False)
    monkeypatch.delattr(pipeline, "data_source", raising=False)
    for name in [one for one in sys.modules if one.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkMissingError, match=r"pip install 'topicfs\[spark\]'"):
        pipeline.register(None)
