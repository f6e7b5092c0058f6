"""Tests of a stream's progress: with a live owner, over new and lost partitions, and when it waits."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: it comes with the extra spark")

from topicfs import pipeline
from topicfs.pipeline.errors import DataLossError, SparkMissingError
from topicfs.pipeline.source.query.offsets import StreamState
from topicfs.pipeline.source.query.options import parse_source_options
from topicfs.pipeline.source.stream_progress import StreamProgress
from topicfs.pipeline.source.topic_source import TopicSource
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.errors import UnknownTopicError
from topicfs.storage.model import TopicPartition

BROKER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""
"""A program that holds the lock of a data directory, as a broker does."""

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def append(path, text, *, partition=0):
    with closing(open_engine(path)) as engine:
        (batch,) = encode_lines(text.encode(), timestamp=1_700_000_000_000)
        engine.partition("orders", partition).append(batch)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    with closing(open_engine(path)) as engine:
        engine.create_topic("orders", partitions=2)
    append(path, "a\nb\nc\n")
    return path


@pytest.fixture
def follow(data):
    """Return a function that takes a query's options and returns its progress over the topic."""
    made = []

    def make(**given):
        options = {"path": str(data), "subscribe": "orders", "startingOffsets": "earliest"} | given
        made.append(StreamProgress(TopicSource(parse_source_options(options, streaming=True))))
        return made[-1]

    yield make
    for one in made:
        one.close()


def at(first=None, second=None, **topic_ids):
    """Return the state of a stream with these offsets in the two partitions of `orders`."""
    offsets = {FIRST: first, SECOND: second}
    return StreamState({one: offset for one, offset in offsets.items() if offset is not None}, topic_ids)


def make_anew(path):
    """Delete the topic, and create another one with the same name."""
    with closing(open_engine(path)) as engine:
        engine.delete_topic("orders")
        engine.create_topic("orders", partitions=2)


def id_of(path):
    with closing(open_engine(path, read_only=True)) as engine:
        return engine.topic("orders").topic_id


def read(tasks):
    return [(task.range.partition, task.range.start_offset, task.range.end_offset) for task in tasks]


def test_a_state_advances_with_new_records(data, follow):
    """A stream's state does not change while there are no new records.

    New records are noticed without opening the directory again.
    """
    stream, orders = follow(), id_of(data)
    start = stream.begin()
    assert at(0, 0, orders=orders) == start
    end = stream.advance(start, most=2, now_ms=0)
    assert at(2, 0, orders=orders) == end
    assert [(FIRST, 0, 2)] == read(stream.tasks(start, end))
    end = stream.advance(end, most=2, now_ms=0)
    assert at(3, 0, orders=orders) == end
    assert end == stream.advance(end, most=2, now_ms=0)
    append(data, "d\n", partition=1)
    assert {FIRST: 3, SECOND: 1} == stream.advance(end, most=None, now_ms=0).offsets
    assert {FIRST: 3, SECOND: 1} == stream.latest


def test_a_batch_waits_for_enough_records(follow):
    """A batch after the first one waits for minOffsetsPerTrigger, but at most for maxTriggerDelay.

    After `stop_at_latest` no batch waits.
    """
    stream = follow(minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    start = stream.begin()
    waited = [stream.advance(start, most=None, now_ms=now).offsets[FIRST] for now in (0, 4999, 5000)]
    assert [3, 0, 3] == waited
    ending = follow(minOffsetsPerTrigger="10")
    ending.stop_at_latest()
    assert {FIRST: 3, SECOND: 0} == ending.advance(start, most=None, now_ms=0).offsets


def test_a_query_ends_where_it_was_told_to_stop(data, follow):
    """After `stop_at_latest`, later records and partitions are left to the next run."""
    stream = follow()
    stream.stop_at_latest()
    append(data, "later\n")
    with closing(open_engine(data)) as engine:
        engine.add_partitions("orders", total=3)
    assert {FIRST: 3, SECOND: 0} == stream.advance(at(0, 0), most=None, now_ms=0).offsets
    assert {FIRST: 4, SECOND: 0} == stream.advance(at(4, 0), most=None, now_ms=0).offsets


def test_partitions_that_vanish(data, follow):
    """A lost partition makes the query fail. With failOnDataLoss=false, a partition that exists again counts as new."""
    stream, lenient = follow(), follow(failOnDataLoss="false")
    start = stream.begin()
    end = stream.advance(start, most=None, now_ms=0)
    shutil.copytree(data / "orders-1", data.parent / "kept")
    shutil.rmtree(data / "orders-1")
    with pytest.raises(DataLossError, match="orders-1: gone since"):
        stream.tasks(start, end)
    with pytest.raises(DataLossError, match="orders-1: gone since"):
        stream.advance(end, most=None, now_ms=0)
    assert [(FIRST, 0, 3)] == read(lenient.tasks(start, end))
    end = lenient.advance(end, most=None, now_ms=0)
    assert {FIRST: 3} == end.offsets
    shutil.copytree(data.parent / "kept", data / "orders-1")
    assert {FIRST: 3, SECOND: 0} == lenient.advance(end, most=None, now_ms=0).offsets


def test_a_topic_that_is_gone_as_a_whole(data, follow):
    """The loss of a whole topic makes the query fail, even if no other partition is left to read."""
    stream, lenient = follow(), follow(failOnDataLoss="false")
    start = stream.begin()
    with closing(open_engine(data)) as engine:
        engine.delete_topic("orders")
    with pytest.raises(DataLossError, match="orders-0, orders-1: gone since"):
        stream.advance(start, most=None, now_ms=0)
    assert StreamState({}, {}) == lenient.advance(start, most=None, now_ms=0)


def test_a_log_that_became_shorter(data, follow, caplog):
    """A log that ends before the stream's offset gives an error or a warning before a batch is planned."""
    stream, lenient = follow(), follow(failOnDataLoss="false")
    ahead = at(9, 0, orders=id_of(data))
    with pytest.raises(DataLossError, match="orders-0: the stream was at 9, now the log ends at 3"):
        stream.advance(ahead, most=None, now_ms=0)
    with pytest.raises(DataLossError, match="is beyond|outside"):
        stream.tasks(at(2, 0), ahead)
    with pytest.raises(DataLossError, match="the stream was at 9, now the log ends at 3"):
        stream.tasks(ahead, at(3, 0))
    assert [(FIRST, 2, 3)] == read(lenient.tasks(at(2, 0), ahead))
    cut = lenient.advance(ahead, most=1, now_ms=0)
    assert {FIRST: 3, SECOND: 0} == cut.offsets
    caplog.clear()
    assert [] == lenient.tasks(ahead, cut)
    assert "orders-0: the stream was at 9, now the log ends at 3" in caplog.text
    append(data, "d\n")
    assert [(FIRST, 3, 4)] == read(lenient.tasks(cut, lenient.advance(cut, most=None, now_ms=0)))


def test_a_log_that_became_shorter_is_reported_after_stop_at_latest(follow):
    """A log that ends before the stream's offset gives an error even after `stop_at_latest`."""
    stream = follow()
    stream.stop_at_latest()
    with pytest.raises(DataLossError, match="orders-0: the stream was at 9"):
        stream.advance(at(9, 0), most=None, now_ms=0)


@pytest.mark.parametrize("text", ["", "x\n", "x\ny\nz\n", "v\nw\nx\ny\nz\n"], ids=len)
@pytest.mark.parametrize("ending", [False, True], ids=["goes on", "is to end"])
def test_a_topic_created_again(data, follow, caplog, text, ending):
    """A query fails if its topic has a new id. failOnDataLoss=false reads the new topic from its start."""
    before, stream, lenient = id_of(data), follow(), follow(failOnDataLoss="false")
    known = stream.advance(stream.begin(), most=None, now_ms=0)
    make_anew(data)
    if text:
        append(data, text)
    if ending:
        stream.stop_at_latest()
        lenient.stop_at_latest()
    told = f"orders: was deleted and created again .*{before}, now {id_of(data)}; the stream was in orders-0 at 3"
    with pytest.raises(DataLossError, match=told):
        stream.advance(known, most=None, now_ms=0)
    count = len(text) // 2
    end = lenient.advance(known, most=2, now_ms=0)
    assert at(min(count, 2), 0, orders=id_of(data)) == end
    caplog.clear()
    assert [(FIRST, 0, min(count, 2))] * (count > 0) == read(lenient.tasks(known, end))
    assert "orders: was deleted and created again" in caplog.text
    with pytest.raises(DataLossError, match="orders: was deleted and created again"):
        stream.tasks(known, end)
    assert [(FIRST, 2, count)] * (count > 2) == read(
        lenient.tasks(end, lenient.advance(end, most=None, now_ms=0))
    )


def test_a_topic_created_again_while_a_query_ends(data, follow):
    """A query fails if its topic is created again after `stop_at_latest`.

    With failOnDataLoss=false the query reads the new topic.
    """
    stream, lenient = follow(), follow(failOnDataLoss="false")
    for one in (stream, lenient):
        one.stop_at_latest()
    start = stream.begin()
    make_anew(data)
    append(data, "x\n")
    with pytest.raises(DataLossError, match="orders: was deleted and created again"):
        stream.advance(start, most=None, now_ms=0)
    assert at(1, 0, orders=id_of(data)) == lenient.advance(start, most=None, now_ms=0)


def test_a_topic_created_again_after_a_batch_was_planned(data, follow):
    """A batch fails if its topic was created again after the batch was planned, since its records are gone."""
    stream, lenient = follow(), follow(failOnDataLoss="false")
    start = stream.begin()
    end = stream.advance(start, most=None, now_ms=0)
    make_anew(data)
    append(data, "v\nw\nx\ny\nz\n")
    with pytest.raises(DataLossError, match="orders: was deleted and created again"):
        stream.tasks(start, end)
    assert [] == lenient.tasks(start, end)
    after = lenient.advance(end, most=None, now_ms=0)
    assert [(FIRST, 0, 5)] == read(lenient.tasks(end, after))


def test_a_batch_that_the_connector_planned(data, follow):
    """A batch that the connector planned has no topic ids, so the ids of the previous state apply."""
    stream, lenient = follow(), follow(failOnDataLoss="false")
    start = stream.begin()
    make_anew(data)
    append(data, "x\ny\n")
    with pytest.raises(DataLossError, match="orders: was deleted and created again"):
        stream.tasks(start, at(3, 0))
    assert [(FIRST, 0, 2)] == read(lenient.tasks(start, at(3, 0)))


def test_a_checkpoint_without_ids(data, follow):
    """If a checkpoint has no topic ids, a stream continues by its offsets, and then stores ids."""
    stream = follow()
    assert at(3, 0, orders=id_of(data)) == stream.advance(at(2, 0), most=None, now_ms=0)
    assert [(FIRST, 2, 3)] == read(stream.tasks(at(2, 0), at(3, 0)))


def test_topics_whose_files_tell_no_id(data, follow):
    """If a topic's files have no id, the stream continues by its offsets and keeps the ids that it knows."""
    before = id_of(data)
    (data / "orders-0" / "partition.metadata").unlink()
    (data / "orders-1" / "partition.metadata").write_text("damaged")
    stream = follow()
    assert at(3, 0) == stream.advance(at(2, 0), most=None, now_ms=0)
    known = at(2, 0, orders=before)
    end = stream.advance(known, most=None, now_ms=0)
    assert at(3, 0, orders=before) == end
    assert [(FIRST, 2, 3)] == read(stream.tasks(known, end))


def test_a_new_partition_whose_beginning_is_gone(data, follow):
    """A new partition begins at its earliest offset, which is reported as a loss unless it is 0."""
    append(data, "x\ny\n", partition=1)
    with closing(open_engine(data)) as engine:
        engine.partition("orders", 1).delete_records(1)
    with pytest.raises(DataLossError, match="orders-1: is new"):
        follow().tasks(at(3), at(3, 2))
    lenient = follow(failOnDataLoss="false")
    assert [(SECOND, 1, 2)] == read(lenient.tasks(at(3), at(3, 2)))


def test_beside_a_daemon_all_acknowledged_records_are_read(data, follow):
    """While a daemon owns the directory, every acknowledged record can be read immediately, even after a roll.

    The same is true after a restart of the owner.
    """
    with closing(open_engine(data)) as engine:
        (batch,) = encode_lines(b"d\n", timestamp=1_700_000_000_000)
        stream = follow()
        for end in (4, 5, 6):
            engine.partition("orders", 0).append(bytearray(batch))
            assert {FIRST: end, SECOND: 0} == stream.advance(at(), most=None, now_ms=0).offsets
    assert {FIRST: 6, SECOND: 0} == stream.advance(at(), most=None, now_ms=0).offsets
    append(data, "d\n", partition=1)
    assert {FIRST: 6, SECOND: 1} == stream.advance(at(), most=None, now_ms=0).offsets
    assert [(FIRST, 0, 6), (SECOND, 0, 1)] == read(stream.tasks(at(0, 0), at(6, 1)))


def test_deleted_records_are_not_shown(data, follow):
    """Deleted records are not read after the owner has stored the new log start.

    A write to the mount's file `start` returns only after the log start is stored.
    """
    with closing(open_engine(data)) as engine:
        stream = follow()
        assert at(0, 0, orders=id_of(data)) == stream.begin()
        engine.partition("orders", 0).delete_records(2)
        engine.keep_log_starts()
        with pytest.raises(DataLossError, match="orders-0: starting offset 0 is outside"):
            stream.tasks(at(0, 0), at(3, 0))
        assert {FIRST: 2, SECOND: 0} == follow().begin().offsets


def test_beside_a_broker_records_up_to_the_high_watermark_are_read(data, follow):
    """While a broker owns the directory, only records below its checkpointed high watermark are read.

    Records above it may be replaced. A stream that read further before the broker started waits, and reports no loss.
    """
    with closing(open_engine(data)) as engine:
        (batch,) = encode_lines(b"d\n", timestamp=1_700_000_000_000)
        engine.partition("orders", 0).append(batch)
        checkpoint = data / "replication-offset-checkpoint"
        behind = checkpoint.read_text()
    checkpoint.write_text(behind)
    (data / ".kafka_cleanshutdown").unlink()
    with subprocess.Popen(
        [sys.executable, "-c", BROKER, str(data / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert b"held\n" == process.stdout.readline()
        assert {FIRST: 3, SECOND: 0} == follow().advance(at(), most=None, now_ms=0).offsets
        assert {FIRST: 4, SECOND: 0} == follow().advance(at(4, 0), most=None, now_ms=0).offsets
        process.stdin.close()
    assert {FIRST: 4, SECOND: 0} == follow().advance(at(), most=None, now_ms=0).offsets


def test_a_topic_that_is_not_there(follow):
    """A query over a missing topic does not begin."""
    with pytest.raises(UnknownTopicError, match="payments: no such topic"):
        follow(subscribe="payments").begin()


def test_without_spark_one_line_says_how_to_get_it(monkeypatch):
    """If Spark is missing, a one-line error names the extra to install."""
    monkeypatch.delitem(sys.modules, "topicfs.pipeline.data_source", raising=False)
    monkeypatch.delattr(pipeline, "data_source", raising=False)
    for name in [one for one in sys.modules if one.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkMissingError, match=r"pip install 'topicfs\[spark\]'"):
        pipeline.register(None)
