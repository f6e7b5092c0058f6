"""Tests that staged writes of Spark jobs are appended completely and once."""

from __future__ import annotations

import pytest

from tests.doubles.engines import DATA, engine_on, read_lines
from tests.doubles.staged_writes import (
    BATCH,
    BEFORE,
    EXPECTED,
    ONCE,
    files_of_writes,
    stage,
    stage_batches,
    submit,
    values,
)
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.names import WriteFileKind, WriteId, parse_write_file, write_file
from topicfs.storage.model import NO_TIMESTAMP, Offset, Record, Timestamp, TopicPartition
from topicfs.storage.staging.area import ABANDONED_AFTER_MS, StagingArea, WriteState

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("write", [BATCH, ONCE], ids=["micro-batch", "once"])
def test_a_write_is_appended_in_task_order(disk, engine, write):
    """A write's batches are appended to each partition in task order. Then the write's files are removed."""
    area = submit(disk, write)
    assert area.state(write) is WriteState.REQUESTED
    engine.maintenance(Timestamp(1_700_000_000_000))
    assert EXPECTED == values(engine)
    assert [] == files_of_writes(disk)
    assert area.state(write) is (WriteState.UNKNOWN if write.batch is None else WriteState.COMMITTED)


def test_a_replayed_micro_batch_is_no_write(disk, engine):
    """A micro-batch is not appended again if it, or a later one of its query, was committed."""
    submit(disk, BATCH)
    engine.commit_staged_writes()
    for batch in (3, 1):
        submit(disk, BATCH._replace(batch=batch))
        engine.commit_staged_writes()
    assert EXPECTED == values(engine)
    assert StagingArea(DATA, disk).state(BATCH) is WriteState.COMMITTED


def test_other_micro_batches_and_queries_are_writes_of_their_own(disk, engine):
    """The next micro-batch is a separate write, and so is the same number in another query."""
    for write in (BATCH, BATCH._replace(batch=4), WriteId("other", 3), ONCE, WriteId("twice")):
        submit(disk, write)
        engine.commit_staged_writes()
    assert {where: len(found) for where, found in values(engine).items()} == {
        where: 5 * len(found) for where, found in EXPECTED.items()
    }


def test_a_withdrawn_write_is_gone(disk, engine):
    """A write can be withdrawn until it is claimed."""
    area = submit(disk, ONCE)
    assert area.withdraw(ONCE)
    engine.commit_staged_writes()
    assert BEFORE == values(engine)
    submit(disk, ONCE)
    assert area.claim(ONCE) is not None
    assert not area.withdraw(ONCE)


def test_batches_carry_one_producer_a_query(disk, engine):
    """A query has one producer ID. Each micro-batch has its own epoch, in which the sequences begin at 0."""
    for batch in (3, 4):
        submit(disk, BATCH._replace(batch=batch))
        engine.commit_staged_writes()
    headers = list(scan(engine.partition("orders", 0).read(Offset(0), max_bytes=1 << 20).data))
    assert [(0, 0), (0, 2), (1, 0), (1, 2)] == [(one.producer_epoch, one.base_sequence) for one in headers]
    assert 1 == len({one.producer_id for one in headers})
    assert headers[0].producer_id >= 2**62


def test_abandoned_staged_files_go_after_a_week(disk, engine, clock):
    """Staged files that were not submitted are removed after a week."""
    engine.close()
    engine = engine_on(disk, clock=clock)
    staged = stage(StagingArea(DATA, disk), ONCE, 0)
    clock.now = disk.time + ABANDONED_AFTER_MS
    engine.commit_staged_writes()
    assert [staged.name] == files_of_writes(disk)
    clock.advance(1)
    engine.commit_staged_writes()
    assert [] == files_of_writes(disk)


def test_staged_files_of_a_later_micro_batch_stay(disk, engine):
    """A commit removes the staged files of its own micro-batch and of earlier micro-batches.

    The staged files of later micro-batches stay.
    """
    area = StagingArea(DATA, disk)
    earlier, later = (stage(area, BATCH._replace(batch=batch), 0) for batch in (2, 4))
    submit(disk, BATCH)
    assert earlier.name in files_of_writes(disk)
    engine.commit_staged_writes()
    assert [later.name] == files_of_writes(disk)
    area.submit(BATCH._replace(batch=4), [later])
    engine.commit_staged_writes()
    assert EXPECTED["orders", 0] * 2 == read_lines(engine.partition("orders", 0))


@pytest.mark.parametrize("query", ["", "a b", "a/b", "a@b", "a\nb", "ä", "x" * 65])
def test_a_query_id_that_makes_no_file_name_is_refused(query):
    """A query ID that is not a valid file name is refused, because it could lead to another path."""
    with pytest.raises(ValueError, match="is not the name of a write"):
        write_file(WriteId(query, 0), WriteFileKind.REQUESTED)


@pytest.mark.parametrize(
    "name",
    [
        "topicfs.write.q.requested",
        "topicfs.write.q.01.requested",
        "topicfs.write.q.1.staged",
        "topicfs.write.q.1.p.claimed",
        "topicfs.write.q.1.requested.tmp",
    ],
)
def test_names_of_other_files_are_not_parsed(name):
    """Names of temporary or malformed files are not parsed as names of writes."""
    assert parse_write_file(name) is None


def test_a_record_without_a_time_is_taken(disk, engine):
    """A record with NO_TIMESTAMP is accepted."""
    area = StagingArea(DATA, disk)
    batch = encode([Record(Offset(0), NO_TIMESTAMP, b"k", None)])
    area.submit(ONCE, [stage_batches(area, ONCE, [(TopicPartition("clicks", 0), batch)])])
    engine.commit_staged_writes()
    assert [""] == read_lines(engine.partition("clicks", 0))
