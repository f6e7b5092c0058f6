"""Tests of reads during a compaction: a replaced segment is planned again, and is not reported as damaged."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: it comes with the extra spark")

from tests.pipeline.test_reading_segments import SCHEMA
from topicfs.inspection.check import segment
from topicfs.inspection.check.partition import PartitionCheck
from topicfs.pipeline.places.place import place_of
from topicfs.pipeline.report.collector import collect, find_parts
from topicfs.pipeline.source import directories
from topicfs.pipeline.source.query.options import parse_source_options
from topicfs.pipeline.source.topic_source import TopicSource, read_task
from topicfs.pipeline.verification import DirectoryVerification
from topicfs.replication import open_engine
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.model import Offset, Record, Timestamp

SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "file.delete.delay.ms": "0",
    "internal.segment.bytes": "1500",
    "index.interval.bytes": "100",
}
ENDED = 3_600_000
"""Milliseconds after which every duty of the engine is due."""


@pytest.fixture
def engine(tmp_path):
    """Yield a live owner of a data directory with a compacted topic `orders`."""
    with closing(open_engine(tmp_path)) as engine:
        engine.create_topic("orders", overrides=SETTINGS)
        yield engine


def fill(engine, seed, batches, *, keys=40):
    chance = random.Random(seed)
    for _ in range(batches):
        records = [
            Record(
                Offset(number),
                Timestamp(1_700_000_000_000),
                b"k%d" % chance.randrange(keys),
                b"%d" % chance.randrange(10**6) * chance.randrange(1, 30),
            )
            for number in range(chance.randrange(1, 5))
        ]
        stamp = BatchStamp(codec=chance.choice([Codec.NONE, Codec.GZIP, Codec.ZSTD]))
        engine.partition("orders", 0).append(encode(records, stamp))


def compact(engine, **settings):
    """Compact all but the active segment, after setting the topic's `settings`."""
    engine.alter_config("orders", settings)
    engine.maintenance(Timestamp(system_clock() + ENDED))


def options_of(path, **given):
    return parse_source_options({"path": str(path), "subscribe": "orders"} | given, streaming=False)


def planned(options):
    with closing(TopicSource(options)) as source:
        return source.tasks(source.batch_ranges())


def offsets(tasks, options):
    batches = [batch for task in tasks for batch in read_task(task, options=options, schema=SCHEMA)]
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


@pytest.mark.parametrize("given", [{}, {"corruptBatches": "skip"}], ids=["fail", "skip"])
@pytest.mark.parametrize("seed", range(10))
def test_a_compaction_after_planning_damages_nothing(engine, tmp_path, seed, given):
    """After a compaction each kept record is read once, even if a merged segment is larger than the planned one."""
    fill(engine, seed, 60)
    options = options_of(tmp_path, minPartitions="3", **given)
    tasks = planned(options)
    end = tasks[-1].range.end_offset
    compact(engine, **{"internal.segment.bytes": "100000"})
    kept = [offset for offset in offsets(planned(options), options) if offset < end]
    assert kept == offsets(tasks, options)


def test_a_merged_segment_that_begins_as_the_planned_one(engine, tmp_path):
    """A merged segment counts as another file even if it begins with the same batch as the planned segment."""
    keys = [b"first", *[b"again"] * 6, *[b"key %d" % number for number in range(20)], b"again"]
    for number, key in enumerate(keys):
        record = Record(Offset(0), Timestamp(1_700_000_000_000), key, b"x" * (200 + 7 * number))
        engine.partition("orders", 0).append(encode([record], BatchStamp(codec=Codec.NONE)))
    options = options_of(tmp_path)
    tasks = planned(options)
    (log,) = {task.slices[0].file for task in tasks}
    compact(engine, **{"internal.segment.bytes": "100000"})
    assert Path(log).stat().st_size > tasks[0].slices[0].end_position
    assert [0, *range(6, len(keys))] == offsets(tasks, options)


def test_a_report_does_not_count_replaced_segments_as_damaged(engine, tmp_path):
    """A report counts replaced segments as changed, not as damaged."""
    fill(engine, 0, 60)
    _, pieces = find_parts(place_of(str(tmp_path)), None)
    compact(engine, **{"internal.segment.bytes": "100000"})
    (numbers,) = collect(place_of(str(tmp_path)), pieces)
    assert 0 == numbers.damaged_batches
    assert numbers.changed_segments > 0


def test_a_compaction_while_a_log_is_loaded(engine, tmp_path, monkeypatch):
    """A log is loaded again if some of its files disappeared after they were listed."""
    due = [lambda: compact(engine, **{"internal.segment.bytes": "100000"})]

    class CompactingDisk(NativeFileSystem):
        """A disk whose owner compacts right after the first listing of the partition's files."""

        def list_directory(self, path, **given):
            found = super().list_directory(path, **given)
            if due and path.name == "orders-0":
                due.pop()()
            return found

    fill(engine, 0, 60)
    options = options_of(tmp_path)
    monkeypatch.setattr(directories, "NativeFileSystem", CompactingDisk)
    tasks = planned(options)
    assert [] == due
    monkeypatch.undo()
    assert offsets(planned(options), options) == offsets(tasks, options)


def test_verify_checks_a_segment_again_that_is_replaced_meanwhile(engine, tmp_path, monkeypatch):
    """If a compaction runs between the reads of indexes and log, both are read again, and no damage is reported."""
    fill(engine, 0, 60)
    files = NativeFileSystem(read_only=True)
    verification = DirectoryVerification([tmp_path], files)
    read_indexes, due = segment.SegmentCheck._read_indexes, [compact]

    def read_and_compact(check):
        found = list(read_indexes(check))
        if due:
            due.pop()(engine, **{"internal.segment.bytes": "100000"})
        return found

    monkeypatch.setattr(segment.SegmentCheck, "_read_indexes", read_and_compact)
    checked = [segment.check_segment(work, files) for work in verification.work]
    assert [] == due
    assert [] == [wrong for row in verification.rows(checked) for wrong in row.wrong]


@pytest.mark.parametrize("in_use", [True, False])
def test_an_index_whose_log_is_being_replaced_is_no_left_over(tmp_path, in_use):
    """While an owner runs, an index without a log is reported only if a second look still finds no log."""
    with closing(open_engine(tmp_path)) as engine:
        engine.create_topic("orders", overrides=SETTINGS)
        fill(engine, 0, 60)
    log = min((tmp_path / "orders-0").glob("*.log"))
    renamed = log.rename(log.with_suffix(".log.deleted"))
    check = PartitionCheck(log.parent, NativeFileSystem(read_only=True), in_use=in_use, clean=False)
    assert 2 == len(list(check.own_findings()))
    renamed.rename(log)
    assert (0 if in_use else 2) == len(list(check.own_findings()))
