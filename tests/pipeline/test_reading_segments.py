"""Tests that reads of segments return a consumer's records, even while segments are damaged or change."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: it comes with the extra spark")

import pyarrow as pa

from topicfs.pipeline.errors import DataLossError, PipelineError
from topicfs.pipeline.places.paths import data_directories
from topicfs.pipeline.source import arrow_buffers, slices
from topicfs.pipeline.source import topic_source as reading
from topicfs.pipeline.source.arrow import SCHEMA
from topicfs.pipeline.source.query.narrowing import EVERYTHING, at_least, one_of
from topicfs.pipeline.source.query.options import parse_source_options
from topicfs.pipeline.source.slices import SLICE_WINDOW_BYTES
from topicfs.pipeline.source.topic_source import TopicSource, read_task
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.partition_metadata import write_topic_id_again
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode, encode_lines
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import CorruptionError, NotALogDirectoryError, UnknownTopicError
from topicfs.storage.model import Header, Offset, Record, Timestamp, TopicPartition

BROKER = Path(__file__).parents[1] / "vectors" / "broker-made"
LEVELS = ("read_committed", "read_uncommitted")
CONSUMED = sorted(path.name.split(".")[0] for path in (BROKER / "consumed").glob("*.read_committed.jsonl"))


def options_of(path, topic="orders", **given):
    given = {"path": str(path), "subscribe": topic} | given
    if "assign" in given:
        del given["subscribe"]
    return parse_source_options(given, streaming=False)


def read(options, schema=SCHEMA, narrowing=EVERYTHING):
    """Return all records of a batch query, and the tasks of the query."""
    with closing(TopicSource(options)) as source:
        tasks = source.tasks(source.batch_ranges(narrowing))
    batches = [batch for task in tasks for batch in read_task(task, options=options, schema=schema)]
    return pa.Table.from_batches(batches, schema), tasks


def make_topic(path, *texts, partitions=1):
    """Make a topic `orders` whose first partition has one batch per text."""
    with closing(open_engine(path)) as engine:
        topic = engine.create_topic("orders", partitions=partitions)
        for number, text in enumerate(texts):
            (batch,) = encode_lines(text.encode(), timestamp=1_700_000_000_000 + 1000 * number)
            topic.partitions()[0].append(batch)
    return path


def values(table):
    return [value.decode() for value in table["value"].to_pylist()]


def consumed(name, level):
    """Return as rows the records that the broker's own consumer read."""
    rows = []
    for line in (BROKER / "consumed" / f"{name}.{level}.jsonl").read_text().splitlines():
        one = json.loads(line)
        headers = [
            (bytes.fromhex(key).decode("utf-8", "replace"), octets(value)) for key, value in one["headers"]
        ]
        kind = int(one["timestamp_type"] == "LogAppendTime")
        rows.append(
            (one["offset"], one["timestamp"], kind, octets(one["key"]), octets(one["value"]), headers)
        )
    return rows


def octets(text):
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", CONSUMED)
def test_reads_equal_a_consumers(name, level):
    """A read returns a consumer's records for all codecs and timestamp types, after aborts, compaction and deletion."""
    topic, _, number = name.rpartition("-")
    given = {"assign": json.dumps({topic: [int(number)]}), "isolation.level": level}
    table, _ = read(options_of(BROKER / "log-dirs", **given))
    found = [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["key"],
            row["value"],
            [(one["key"], one["value"]) for one in row["headers"] or []],
        )
        for row in table.to_pylist()
    ]
    assert consumed(name, level) == found
    assert {topic} == set(table["topic"].to_pylist())


def test_headers_and_their_absence():
    """Header names are text. A null header value differs from an empty one. A record without headers has null."""
    table, _ = read(options_of(BROKER / "log-dirs", "headers"))
    first, second = table["headers"].to_pylist()[:2]
    assert [("h1", b"x"), ("h2", None), ("h3", b"")] == [(one["key"], one["value"]) for one in first]
    assert second is None


def test_headers_in_one_record_of_a_part(tmp_path):
    """The headers of one record do not depend on its neighbors."""
    with closing(open_engine(tmp_path)) as engine:
        partition = engine.create_topic("orders", partitions=1).partitions()[0]
        for at in range(3):
            headers = (Header(b"name", b"one"),) if at == 1 else ()
            partition.append(encode([Record(Offset(0), Timestamp(1000), None, b"v", headers)]))
    table, _ = read(options_of(tmp_path))
    assert [None, [{"key": "name", "value": b"one"}], None] == table["headers"].to_pylist()


@pytest.mark.parametrize("least", [1, 2, 7, 40])
@pytest.mark.parametrize("level", LEVELS)
def test_tasks_together_read_the_whole(least, level):
    """The tasks of a partition with transactions together return all records, even if tasks begin within a batch."""
    given = {"isolation.level": level, "minPartitions": str(least)}
    table, tasks = read(options_of(BROKER / "log-dirs", "transactions", **given))
    assert least == len(tasks)
    assert [row[0] for row in consumed("transactions-0", level)] == table["offset"].to_pylist()


def test_a_large_partition_makes_several_tasks(monkeypatch):
    """A large partition is split by the bytes of its segments, unless options set how it is split."""
    given = {"isolation.level": "read_committed"}
    _, (whole,) = read(options_of(BROKER / "log-dirs", "transactions", **given))
    size_bytes = sum(one.end_position - one.position for one in whole.slices)
    monkeypatch.setattr(reading, "MAX_TASK_BYTES", -(-size_bytes // 3))
    table, tasks = read(options_of(BROKER / "log-dirs", "transactions", **given))
    assert 3 == len(tasks)
    assert [row[0] for row in consumed("transactions-0", "read_committed")] == table["offset"].to_pylist()
    _, tasks = read(options_of(BROKER / "log-dirs", "transactions", maxRecordsPerPartition="1000000"))
    assert 1 == len(tasks)


def test_a_projection():
    """A projection returns the requested columns, in the requested order."""
    schema = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
    table, _ = read(options_of(BROKER / "log-dirs", "codecs"), schema)
    assert schema == table.schema
    assert list(range(200)) == table["offset"].to_pylist()


def test_offsets_and_times(tmp_path):
    """Ranges end before their end offset. A time selects the first record at or after it."""
    make_topic(tmp_path, "a\nb\n", "c\n", "d\ne\n")
    given = {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":4}}'}
    assert ["b", "c", "d"] == values(read(options_of(tmp_path, **given))[0])
    given = {"startingTimestamp": "1700000000001", "endingTimestamp": "1700000002000"}
    assert ["c"] == values(read(options_of(tmp_path, **given))[0])


def test_narrowing_skips(tmp_path):
    """Filters on offsets and times move the ends of ranges. Filters on topics and partitions drop tasks."""
    options = options_of(make_topic(tmp_path, "a\nb\n", "c\n", "d\ne\n", partitions=2))
    offsets, _ = read(options, narrowing=at_least(EVERYTHING, "offset", 3))
    assert ["d", "e"] == values(offsets)
    times, _ = read(options, narrowing=at_least(EVERYTHING, "timestamp", 1_700_000_000_500))
    assert ["c", "d", "e"] == values(times)
    _, tasks = read(options, narrowing=one_of(EVERYTHING, "partition", [1]))
    assert [] == tasks


def test_offsets_that_are_not_there(tmp_path):
    """An offset outside of the log gives an error with the bounds. failOnDataLoss=false reads existing records."""
    make_topic(tmp_path, "a\nb\n")
    given = {"endingOffsets": '{"orders":{"0":9}}'}
    with pytest.raises(DataLossError, match="orders-0: ending offset 9 is beyond 2"):
        read(options_of(tmp_path, **given))
    assert ["a", "b"] == values(read(options_of(tmp_path, failOnDataLoss="false", **given))[0])
    given = {"startingOffsets": '{"trimmed":{"0":5}}'}
    with pytest.raises(DataLossError, match="is outside \\[73, 100\\]"):
        read(options_of(BROKER / "log-dirs", "trimmed", **given))


def test_small_batches_are_joined(tmp_path):
    """Small batches, even with nulls, both timestamp types or a start inside a batch, are joined to one Arrow batch."""
    with closing(open_engine(tmp_path)) as engine:
        (partition,) = engine.create_topic("orders", partitions=1).partitions().values()
        for number in range(20):
            if number == 10:
                engine.alter_config("orders", {"message.timestamp.type": "LogAppendTime"})
            records = [
                Record(
                    Offset(at),
                    Timestamp(1000 + number),
                    None if at % 3 else b"key",
                    b"%d" % (3 * number + at),
                )
                for at in range(3)
            ]
            partition.append(encode(records, BatchStamp(codec=Codec(number % 5))))
    options = options_of(tmp_path, startingOffsets='{"orders":{"0":1}}')
    with closing(TopicSource(options)) as source:
        (task,) = source.tasks(source.batch_ranges())
    (batch,) = read_task(task, options=options, schema=SCHEMA)
    batch.validate(full=True)
    assert [b"%d" % number for number in range(1, 60)] == batch["value"].to_pylist()
    assert [None, None, b"key"] * 19 + [None, None] == batch["key"].to_pylist()
    assert list(range(1, 60)) == batch["offset"].to_pylist()
    assert [0] * 29 + [1] * 30 == batch["timestampType"].to_pylist()
    times = batch["timestamp"].cast(pa.int64()).to_pylist()
    assert [1000 * (1000 + number // 3) for number in range(1, 30)] == times[:29]


def test_large_records_make_small_batches(tmp_path):
    """The bytes of an Arrow batch are limited, so large records make Arrow batches of few records."""
    make_topic(tmp_path, *["x" * 900_000 + "\n"] * 12)
    options = options_of(tmp_path)
    with closing(TopicSource(options)) as source:
        (task,) = source.tasks(source.batch_ranges())
    sizes = [batch.nbytes for batch in read_task(task, options=options, schema=SCHEMA)]
    assert sum(sizes) > 12 * 900_000
    assert max(sizes) < 2 * SLICE_WINDOW_BYTES


def test_what_no_column_can_hold():
    """A time that Spark cannot represent becomes the nearest one. An invalid range raises an error."""
    max_ms = (2**63 - 1) // 1000
    for time, shown in ((2**62, max_ms), (max_ms + 1, max_ms), (max_ms, max_ms), (-(2**63), -max_ms)):
        (columns,) = decode(encode([Record(Offset(0), Timestamp(time), None, b"")]))
        assert [shown * 1000] == arrow_buffers.gather_timestamps(
            [arrow_buffers.ColumnRange(columns, 0, 1)]
        ).tolist()
    for start, end in ((-1, 1), (0, 2), (1, 0)):
        for gathering in (
            arrow_buffers.gather_offsets,
            lambda parts: arrow_buffers.gather(parts, arrow_buffers.KEYS),
            lambda parts: arrow_buffers.gather_flags(parts, 8),
        ):
            with pytest.raises(IndexError):
                gathering([arrow_buffers.ColumnRange(columns, start, end)])
    with pytest.raises(IndexError):
        arrow_buffers.gather([arrow_buffers.ColumnRange(columns, 0, 1)], 3)


def damage(path):
    """Flip a bit in the value of the second batch; return the file."""
    (log,) = path.glob("orders-0/*.log")
    data = bytearray(log.read_bytes())
    at = data.index(b"ruined")
    data[at] ^= 1
    log.write_bytes(data)
    return log


def test_a_corrupt_batch(tmp_path, caplog):
    """A corrupt batch gives an error with its file and position, or is skipped with a warning."""
    log = damage(make_topic(tmp_path, "a\n", "ruined\n", "c\n"))
    with pytest.raises(CorruptionError) as caught:
        read(options_of(tmp_path))
    assert log == caught.value.file
    assert 69 == caught.value.position
    assert ["a", "c"] == values(read(options_of(tmp_path, corruptBatches="skip"))[0])
    assert "orders-0: skipped 1 corrupt batches" in caplog.text


def test_directories_that_are_not_data_directories_are_refused(tmp_path):
    """A missing, an empty, and an unrelated directory are refused, each with an error."""
    with pytest.raises(PipelineError, match="no such directory"):
        read(options_of(tmp_path / "absent"))
    with pytest.raises(PipelineError, match="not a data directory"):
        read(options_of(tmp_path))
    (tmp_path / "pictures").mkdir()
    with pytest.raises(NotALogDirectoryError):
        read(options_of(tmp_path))
    make_topic(tmp_path / "data")
    with pytest.raises(UnknownTopicError, match="payments: no such topic"):
        read(options_of(tmp_path / "data", "payments"))


def test_directories_by_comma_and_glob(tmp_path):
    """Each directory is read once, in order. A comma in the name of an existing directory is part of the name."""
    for name in ("b1", "b2", "odd,name"):
        (tmp_path / name).mkdir()
    found = data_directories(f"{tmp_path}/b2, {tmp_path}/b?")
    assert ["b2", "b1"] == [one.name for one in found]
    assert ["odd,name"] == [one.name for one in data_directories(f"{tmp_path}/odd,name")]


def test_replicas_are_read_once(tmp_path):
    """If several brokers have a partition, the replica with the highest high watermark is read.

    No record at or above that high watermark is read.
    """
    make_topic(tmp_path / "b1", "a\nb\n")
    shutil.copytree(tmp_path / "b1", tmp_path / "b2")
    with closing(open_engine(tmp_path / "b2")) as engine:
        (batch,) = encode_lines(b"c\n", timestamp=1_700_000_000_000)
        engine.partition("orders", 0).append(batch)
    assert ["a", "b", "c"] == values(read(options_of(tmp_path / "b?"))[0])


def test_segments_that_go_away_while_reading(tmp_path):
    """If retention removes planned records, a read fails.

    With failOnDataLoss=false the read returns the remaining records.
    """
    with closing(open_engine(tmp_path)) as engine:
        topic = engine.create_topic("orders", partitions=1, overrides={"internal.segment.bytes": "200"})
        for number in range(6):
            (batch,) = encode_lines(b"%d" % number + b"x" * 100 + b"\n", timestamp=1_700_000_000_000)
            topic.partitions()[0].append(batch)
    with closing(TopicSource(options_of(tmp_path))) as source:
        (task,) = source.tasks(source.batch_ranges())
    with closing(open_engine(tmp_path)) as engine:
        engine.partition("orders", 0).delete_records(4)
    for path in tmp_path.glob("orders-0/0*[0123].*"):
        path.unlink()
    with pytest.raises(DataLossError):
        list(read_task(task, options=options_of(tmp_path), schema=SCHEMA))
    lenient = options_of(tmp_path, failOnDataLoss="false")
    (batch,) = read_task(task, options=lenient, schema=SCHEMA)
    assert [4, 5] == batch["offset"].to_pylist()


def planned(path, **given):
    """Return the only task of a query over `orders`."""
    with closing(TopicSource(options_of(path, **given))) as source:
        (task,) = source.tasks(source.batch_ranges())
    return task


def replace_topic(path, *, text):
    """Delete `orders`. If `text` is given, create a topic with the same name and `text` in it."""
    with closing(open_engine(path)) as engine:
        engine.delete_topic("orders")
    if text:
        make_topic(path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x\ny\nz\n", "orders: was deleted and created again while it was read"),
        ("", "orders-0: was deleted while"),
    ],
    ids=["made again", "gone"],
)
def test_a_topic_that_is_deleted_while_it_is_read(tmp_path, caplog, text, said):
    """If a topic is deleted during a read, its records are lost. A new topic of the same name is never read."""
    task = planned(make_topic(tmp_path, "a\nb\n"))
    replace_topic(tmp_path, text=text)
    with pytest.raises(DataLossError, match=said):
        list(read_task(task, options=options_of(tmp_path), schema=SCHEMA))
    assert [] == list(read_task(task, options=options_of(tmp_path, failOnDataLoss="false"), schema=SCHEMA))
    assert said in caplog.text


def test_a_file_of_another_topic_is_not_read(tmp_path):
    """A file of another topic is not read, even if the file has the inode and the bytes of the planned one."""
    task = planned(make_topic(tmp_path, "a\nb\n"))
    write_topic_id_again(NativeFileSystem(), tmp_path / "orders-0", "AAAAAAAAAAAAAAAAAAAAAA")
    with pytest.raises(DataLossError, match="orders: was deleted and created again while it was read"):
        list(read_task(task, options=options_of(tmp_path), schema=SCHEMA))


def test_a_topic_that_is_deleted_while_a_source_is_open(tmp_path):
    """A log is loaded again if its topic was created again, even if its files look the same."""
    make_topic(tmp_path, "a\nb\n")
    with closing(TopicSource(options_of(tmp_path))) as source:
        assert 2 == source.latest(TopicPartition("orders", 0))
        replace_topic(tmp_path, text="x\ny\nz\n")
        source.refresh()
        assert 3 == source.latest(TopicPartition("orders", 0))
        (task,) = source.tasks(source.batch_ranges())
    (batch,) = read_task(task, options=options_of(tmp_path), schema=SCHEMA)
    assert [b"x", b"y", b"z"] == batch["value"].to_pylist()


def test_a_file_that_was_rewritten_is_planned_again(tmp_path):
    """If a file has another batch at the planned position, as after a compaction, the read is planned again."""
    make_topic(tmp_path, "a\n", "b\n", "c\n", "d\n", "e\n")
    task = planned(tmp_path, startingOffsets='{"orders":{"0":1}}', endingOffsets='{"orders":{"0":3}}')
    (one,) = task.slices
    log = Path(one.file)
    log.write_bytes(log.read_bytes()[one.position :])
    assert log.stat().st_size >= one.end_position
    (batch,) = read_task(task, options=options_of(tmp_path), schema=SCHEMA)
    assert [b"b", b"c"] == batch["value"].to_pylist()


@pytest.mark.parametrize("form", ["data", "./d*", "~/data"])
def test_a_task_that_plans_again_knows_the_drivers_directories(tmp_path, monkeypatch, form):
    """A task uses the driver's absolute paths, because a task has another working directory and home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    make_topic(tmp_path / "data", "a\n", "b\n")
    given = {"startingOffsets": '{"orders":{"0":1}}'}
    options, task = options_of(form, **given), planned(form, **given)
    (one,) = task.slices
    Path(one.file).write_bytes(Path(one.file).read_bytes()[one.position :])
    monkeypatch.setenv("HOME", "/")
    monkeypatch.chdir("/")
    (batch,) = read_task(task, options=options, schema=SCHEMA)
    assert [b"b"] == batch["value"].to_pylist()


def test_a_directory_that_a_task_cannot_see(tmp_path):
    """The error for a directory that a task cannot see says that every machine needs the directory."""
    task, options = planned(make_topic(tmp_path / "data", "a\n")), options_of(tmp_path / "data")
    shutil.move(tmp_path / "data", tmp_path / "elsewhere")
    with pytest.raises(PipelineError, match="data: no such directory; each machine that runs tasks"):
        list(read_task(task, options=options, schema=SCHEMA))


def test_segments_that_overlap_give_each_record_once(tmp_path, monkeypatch):
    """If segments overlap, as in a log that was copied from two logs, each record is read once."""
    monkeypatch.setattr(slices, "SLICE_WINDOW_BYTES", 80)
    make_topic(tmp_path, "a\n", "b\n", "c\n")
    task = planned(tmp_path)
    doubled = replace(task, slices=task.slices * 2)
    batches = read_task(doubled, options=options_of(tmp_path), schema=SCHEMA)
    assert [b"a", b"b", b"c"] == [value for batch in batches for value in batch["value"].to_pylist()]


def test_a_range_without_a_record_opens_no_file(tmp_path):
    """For a range whose records were compacted away no file is opened, and the next batch is not read."""
    with closing(open_engine(tmp_path)) as engine:
        partition = engine.create_topic("orders", partitions=1).partitions()[0]
        for offset in (0, 8):
            partition.appender.append_as_follower(
                encode([Record(Offset(offset), Timestamp(1000), None, b"v")])
            )
    task = planned(tmp_path, startingOffsets='{"orders":{"0":3}}', endingOffsets='{"orders":{"0":7}}')
    assert () == task.slices
