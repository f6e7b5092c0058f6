"""Tests that a begun write is continued even if its topics or records have changed in between."""

from __future__ import annotations

import pytest

from tests.doubles.engines import DATA, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.staged_writes import (
    BATCH,
    EXPECTED,
    compact,
    expire_producers,
    files_of_writes,
    half_appended,
    killed_when,
    lines,
    populated,
    stage_batches,
    submit,
    values,
)
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.names import WriteFileKind, WriteId, write_file
from topicfs.storage.manager import LogManager
from topicfs.storage.model import Offset, Record, TopicPartition
from topicfs.storage.staging.area import StagingArea, WriteState

pytestmark = pytest.mark.slow

ORDERS = TopicPartition("orders", 0)
DAY_MS = 24 * 3600 * 1000


def end_of(engine: LogManager) -> int:
    return engine.partition(*ORDERS).offsets().log_end_offset


def put(engine: LogManager, key: bytes, value: bytes, clock: ManualClock) -> None:
    engine.partition(*ORDERS).append(encode([Record(Offset(0), clock(), key, value)]))


def test_a_topic_created_again_in_between_gets_nothing_of_the_write():
    """A topic that was created again gets no records of the write. All other topics get their records."""
    engine = engine_on(disk := half_appended())
    engine.delete_topic("orders")
    engine.create_topic("orders", partitions=2)
    engine.commit_staged_writes()
    assert EXPECTED | {("orders", 0): [], ("orders", 1): []} == values(engine)
    assert [] == files_of_writes(disk)


def test_a_topic_deleted_in_between_takes_its_records_with_it():
    """If one of a write's topics is deleted after a crash, the records for all other topics are appended."""
    engine = engine_on(disk := half_appended())
    engine.delete_topic("orders")
    engine.commit_staged_writes()
    assert {("clicks", 0): ["g"]} == values(engine)
    assert [] == files_of_writes(disk)


def test_a_micro_batch_for_a_topic_that_was_created_again_is_refused(disk, engine):
    """A micro-batch for a deleted topic's ID is refused. The restarted query writes it to the new topic."""
    write = WriteId("b1946ac9-2d3f", 3, engine.topic("orders").topic_id)
    area = StagingArea(DATA, disk)
    area.submit(write, [stage_batches(area, write, [lines(*ORDERS, "a\n")])])
    engine.delete_topic("orders")
    engine.create_topic("orders")
    engine.commit_staged_writes()
    assert WriteState.REFUSED is area.state(write)
    assert "orders: was deleted and created again" in str(area.take_refusal(write))
    assert [] == read_lines(engine.partition(*ORDERS))


@pytest.mark.parametrize(
    "settings",
    [
        {"max.message.bytes": "10"},
        {"message.timestamp.before.max.ms": "1000"},
        {"cleanup.policy": "compact"},
        {"internal.segment.bytes": "64"},
        {"compression.type": "gzip", "max.message.bytes": "10"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_settings_that_would_refuse_a_write_that_has_begun_do_not_stop_it(settings):
    """A write that has begun continues even if changed settings would refuse it, because half of it is visible."""
    disk, clock = half_appended(), ManualClock()
    engine = engine_on(disk, clock=clock)
    engine.alter_config("orders", settings)
    clock.advance(DAY_MS // 2)
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)
    assert [] == files_of_writes(disk)


@pytest.mark.parametrize("expired", [False, True])
def test_records_deleted_in_between_are_not_appended_again(expired):
    """Deleted records are not appended again. If the producer has expired, the owner stops with a warning."""
    disk, clock = half_appended(), ManualClock()
    engine = engine_on(disk, clock=clock)
    end = end_of(engine)
    engine.partition(*ORDERS).delete_records(Offset(end))
    if expired:
        expire_producers(engine, clock)
    engine.commit_staged_writes()
    if expired:
        assert (end, WriteState.CLAIMED) == (end_of(engine), StagingArea(DATA, disk).state(BATCH))
        assert "remove its .claimed file" in engine.warnings[-1]
    else:
        assert EXPECTED | {("orders", 0): ["d"]} == values(engine)
        assert [] == files_of_writes(disk)


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_compaction_in_between_has_nothing_appended_again(expired, others):
    """A write that was half appended is continued. Its records that compaction has removed are not appended again.

    The write's last batch shows how much was appended. If neither this batch nor the producer is known, the owner
    stops.
    """
    disk, clock = half_appended(), ManualClock()
    engine = engine_on(disk, clock=clock)
    engine.alter_config("orders", {"cleanup.policy": "compact"})
    if others:
        put(engine, b"k", b"old", clock)
        put(engine, b"k", b"new", clock)
    if expired:
        expire_producers(engine, clock)
    end = end_of(engine)
    compact(engine.partition(*ORDERS), clock)
    engine.commit_staged_writes()
    left = ["new"] * others
    if expired and others:
        assert (end, left) == (end_of(engine), read_lines(engine.partition(*ORDERS)))
        assert StagingArea(DATA, disk).state(BATCH) is WriteState.CLAIMED
    else:
        assert (end + 1, [*left, "d"]) == (end_of(engine), read_lines(engine.partition(*ORDERS)))
        assert [] == files_of_writes(disk)


def test_a_write_that_was_given_up_half_appended_does_not_hide_the_next_one():
    """If a half-appended write is removed, another write with the same number is appended completely."""
    write = BATCH._replace(batch=4)

    def prepare(disk):
        engine = populated(disk)
        submit(disk, BATCH)
        engine.commit_staged_writes()
        submit(disk, write)
        return engine

    disk = killed_when(lambda engine: end_of(engine) > 3, prepare)
    engine = engine_on(disk)
    given_up = read_lines(engine.partition(*ORDERS))
    disk.unlink(DATA / write_file(write, WriteFileKind.CLAIMED))
    area = StagingArea(DATA, disk)
    area.submit(write, [stage_batches(area, write, [lines(*ORDERS, "x\ny\n")])])
    engine.commit_staged_writes()
    assert [*given_up, "x", "y"] == read_lines(engine.partition(*ORDERS))
