"""Tests of writes with given offsets: each batch is stored once at its offset, even after crashes."""

from __future__ import annotations

import json
import logging
from copy import deepcopy
from functools import cache

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End, MortalDisk, dies, every_step
from tests.doubles.records import read_records
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.staged_writes import (
    compact,
    expire_producers,
    files_of_writes,
    killed_when,
    lines,
    stage_batches,
)
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.names import WriteFileKind, WriteId, write_file
from topicfs.storage.errors import CorruptionError
from topicfs.storage.manager import LogManager
from topicfs.storage.model import Isolation, Offset, Record, Timestamp, TopicPartition
from topicfs.storage.staging.area import StagingArea, WriteRefusedError, WriteState
from topicfs.storage.staging.manifest import LogPlacement, NewTopic, Placement
from topicfs.storage.staging.placer import OVERHEAD_BYTES

pytestmark = pytest.mark.slow

WRITE = WriteId("e59ff979-41aa")
NOW = Timestamp(1_700_000_000_000)
ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 1)
NEW = {"clicks": NewTopic(2, {"retention.ms": "-1"})}
PLACES = {ORDERS: LogPlacement(Offset(1)), CLICKS: LogPlacement(Offset(0), Offset(17))}
BATCHES = [(ORDERS, (1, 3)), (CLICKS, (17, 18)), (ORDERS, (9,)), (CLICKS, (40,))]
PLACED = {ORDERS: [0, 1, 3, 9], CLICKS: [17, 18, 40]}


INTERNAL = TopicPartition("__consumer_offsets", 0)


def batch(*offsets: int) -> bytearray:
    return encode([Record(Offset(one), NOW, b"k", str(one).encode()) for one in offsets])


def populated(disk: SimulatedDisk) -> LogManager:
    """Return an engine with one record in `orders`; the topic `clicks` does not exist."""
    disk.take_content(_populated())
    return engine_on(disk)


@cache
def _populated() -> SimulatedDisk:
    """Return the disk for `populated`. The disk is filled only once."""
    disk = SimulatedDisk()
    engine = engine_on(disk)
    append_lines(engine.create_topic("orders").partitions()[0], "old\n")
    engine.close()
    return disk


@pytest.fixture
def engine(disk: SimulatedDisk) -> LogManager:
    return populated(disk)


def submit(disk: SimulatedDisk, placement: Placement | None = None, batches=BATCHES) -> StagingArea:
    area = StagingArea(DATA, disk)
    staged = stage_batches(area, WRITE, [(name, batch(*offsets)) for name, offsets in batches])
    area.submit(WRITE, [staged], placement or Placement(NEW, PLACES))
    return area


def offsets_in(engine: LogManager, name: TopicPartition) -> list[int]:
    """Return the offset of each record in the log."""
    return [
        each.offset for each in read_records(engine.partition(*name), isolation=Isolation.READ_UNCOMMITTED)
    ]


def test_batches_are_stored_at_their_offsets(disk, engine):
    """Batches are stored at their offsets: gaps stay, an empty log begins at its first record, topics are created."""
    area = submit(disk)
    engine.maintenance(NOW)
    assert PLACED == {name: offsets_in(engine, name) for name in PLACED}
    clicks = engine.topic("clicks")
    assert (2, {"retention.ms": "-1"}) == (len(clicks.partitions()), dict(clicks.overrides))
    bounds = clicks.partitions()[1].offsets()
    assert (17, 41) == (bounds.log_start_offset, bounds.log_end_offset)
    assert [] == files_of_writes(disk)
    assert area.state(WRITE) is WriteState.UNKNOWN
    append_lines(clicks.partitions()[1], "next\n")
    assert 41 == offsets_in(engine, CLICKS)[-1]


def test_batches_get_the_leader_epoch(disk, engine):
    """The batches get the leader epoch of the log, so that epochs do not go back."""
    submit(disk)
    engine.commit_staged_writes()
    epochs = engine.partition(*ORDERS).read(Offset(0), max_bytes=1 << 20)
    assert {0} == {one.leader_epoch for one in scan(epochs.data)}


@pytest.mark.parametrize("end", End, ids=str)
def test_each_batch_is_stored_once_after_a_kill(end):
    """If the owner is killed at any step, the next owner completes the write."""
    for steps in every_step():
        disk = MortalDisk(seed=steps)
        engine = prepared(disk)
        if not dies(disk, engine.commit_staged_writes, steps):
            assert steps > 20
            return
        end.of(disk)
        engine = engine_on(disk)
        engine.commit_staged_writes()
        assert PLACED == {name: offsets_in(engine, name) for name in PLACED}, steps
        # The writer, or the weekly cleanup, removes the staged files of a completed write.
        assert [] == [name for name in files_of_writes(disk) if not name.endswith(".staged")]
        engine.close()


def prepared(disk: MortalDisk) -> LogManager:
    engine = populated(disk)
    submit(disk)
    return engine


def half_done() -> tuple[MortalDisk, LogManager]:
    """Return the disk and the next owner, after an owner was killed when it had appended the first batch of `orders`."""
    disk = deepcopy(_half_done())
    return disk, engine_on(disk)


@cache
def _half_done() -> MortalDisk:
    return killed_when(lambda engine: offsets_in(engine, ORDERS) == [0, 1, 3], prepared)


def test_a_place_that_was_taken_between_a_crash_and_the_end_ends_the_write():
    """If somebody else used the offsets after a crash, the write is refused with the reason. Placed batches stay."""
    disk, engine = half_done()
    area = StagingArea(DATA, disk)
    append_lines(engine.partition(*ORDERS), "a\nb\nc\nd\ne\nf\ng\n")
    engine.commit_staged_writes()
    assert area.state(WRITE) is WriteState.REFUSED
    refusal = area.take_refusal(WRITE)
    assert isinstance(refusal, WriteRefusedError)
    assert "orders-0: batch at offset 9, but the log ends at 11: another writer appended" in str(refusal)
    assert [] == files_of_writes(disk)


def test_another_batch_at_the_same_offset_ends_the_write():
    """If another record is at the write's next offset, it does not count as the write's record, and the write ends."""
    disk, engine = half_done()
    area = StagingArea(DATA, disk)
    append_lines(engine.partition(*ORDERS), "".join(f"{number}\n" for number in range(4, 9)))
    append_lines(engine.partition(*ORDERS), "other\n")
    assert [0, 1, 3, 4, 5, 6, 7, 8, 9] == offsets_in(engine, ORDERS)
    engine.commit_staged_writes()
    assert area.state(WRITE) is WriteState.REFUSED
    assert "another writer appended there meanwhile" in str(area.take_refusal(WRITE))
    assert "other" == read_lines(engine.partition(*ORDERS))[-1]


def test_an_empty_log_that_begins_there_already_stays_as_it_is(caplog):
    """If an empty log already begins at the write's offset, a continued write does not truncate the log again."""
    caplog.set_level(logging.INFO)
    engine = engine_on(killed_when(lambda _: "truncated from offset 0 to 17" in caplog.text, prepared))
    assert 17 == engine.partition(*CLICKS).offsets().log_end_offset
    caplog.clear()
    engine.commit_staged_writes()
    assert offsets_in(engine, CLICKS) == PLACED[CLICKS]
    assert "truncated" not in caplog.text


def at(name: TopicPartition, *bounds: int, **topics: NewTopic) -> Placement:
    """Return the placement of a log at its end offset and, if the log is empty, its new start; `topics` are created."""
    return Placement(topics, {name: LogPlacement(*map(Offset, bounds))})


MORE = TopicPartition("orders", 1)
REFUSED = {
    "other end": (at(ORDERS, 0), [(ORDERS, (5,))], "orders-0: ends at 1, but ended at 0 when"),
    "not empty": (at(ORDERS, 1, 5), [(ORDERS, (5,))], "orders-0: has records, so it cannot begin at 5"),
    "no topic": (at(CLICKS, 0), [(CLICKS, (5,))], "clicks: no such topic"),
    "no partition": (at(MORE, 0, orders=NewTopic(2, {})), [(MORE, (5,))], "orders"),
    "below": (at(ORDERS, 1), [(ORDERS, (0,))], "orders-0: batch at offset 0"),
    "not ascending": (at(ORDERS, 1), [(ORDERS, (5, 6)), (ORDERS, (6,))], "batch at offset 6"),
    "no place": (at(ORDERS, 1), [(CLICKS, (5,))], "clicks-1: a batch has no placement"),
    "internal": (at(INTERNAL, 0, __consumer_offsets=NewTopic(1, {})), [(INTERNAL, (5,))], "Kafka's own"),
}


@pytest.mark.parametrize(("placement", "batches", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_write_that_does_not_fit_is_refused_whole(disk, engine, placement, batches, reason):
    """A write that does not fit is refused with the reason before anything is appended."""
    area = submit(disk, placement, batches)
    engine.commit_staged_writes()
    assert area.state(WRITE) is WriteState.REFUSED
    assert reason in str(area.take_refusal(WRITE))
    assert ["old"] == read_lines(engine.partition(*ORDERS))
    assert ["orders"] == list(engine.topics())
    assert [] == files_of_writes(disk)


def test_a_topic_deleted_in_between_takes_its_records_with_it():
    """If a topic was deleted, the records for all other topics are appended."""
    disk, engine = half_done()
    engine.delete_topic("orders")
    engine.commit_staged_writes()
    assert ["clicks"] == list(engine.topics())
    assert offsets_in(engine, CLICKS) == PLACED[CLICKS]
    assert [] == files_of_writes(disk)


def test_a_topic_created_again_in_between_gets_nothing():
    """A topic that was created again gets no records of the write."""
    disk, engine = half_done()
    engine.delete_topic("orders")
    append_lines(engine.create_topic("orders").partitions()[0], "old\n")
    engine.commit_staged_writes()
    assert ["old"] == read_lines(engine.partition(*ORDERS))
    assert offsets_in(engine, CLICKS) == PLACED[CLICKS]
    assert [] == files_of_writes(disk)


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_compaction_between_a_crash_and_the_end_does_not_stop_the_write(expired, others):
    """Compacted batches of the write are recognized. Another record after them ends the write."""
    disk, engine = half_done()
    clock = ManualClock()
    engine.alter_config("orders", {"cleanup.policy": "compact"})
    if others:
        engine.partition(*ORDERS).append(batch(0))
        engine.partition(*ORDERS).append(batch(0))
    if expired:
        expire_producers(engine, clock)
    compact(engine.partition(*ORDERS), clock)
    left = offsets_in(engine, ORDERS)
    assert ([5] if others else [3]) == left
    engine.commit_staged_writes()
    area = StagingArea(DATA, disk)
    if expired and others:
        assert left == offsets_in(engine, ORDERS)
        assert "has expired" in str(area.take_refusal(WRITE))
    else:
        assert [*left, 9] == offsets_in(engine, ORDERS)
        assert area.state(WRITE) is WriteState.UNKNOWN


def test_a_log_from_which_all_was_removed_does_not_begin_again():
    """If all records of a log were deleted, a continued write does not start the log again: its offsets are used up."""

    def clicks_are_placed(engine):
        return "clicks" in engine.topics() and offsets_in(engine, CLICKS) == PLACED[CLICKS]

    disk = killed_when(clicks_are_placed, prepared)
    engine = engine_on(disk)
    engine.partition(*CLICKS).delete_records(Offset(41))
    engine.commit_staged_writes()
    bounds = engine.partition(*CLICKS).offsets()
    assert (41, 41) == (bounds.log_start_offset, bounds.log_end_offset)
    assert PLACED[ORDERS] == offsets_in(engine, ORDERS)
    assert [] == [name for name in files_of_writes(disk) if not name.endswith(".staged")]


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 1},
        {"placement": {"topics": {}}},
        {"placement": {"topics": {}, "partitions": {"orders": 1}}},
    ],
)
def test_a_damaged_placement_is_reported_and_stays(disk, engine, damage):
    """A write with a damaged placement stays claimed, and no record of it is appended."""
    area = submit(disk)
    path = DATA / write_file(WRITE, WriteFileKind.REQUESTED)
    content = json.loads(disk.read_bytes(path)) | damage
    disk.write_bytes(path, json.dumps(content).encode())
    with pytest.raises(CorruptionError):
        area.claim(WRITE)
    engine.commit_staged_writes()
    assert area.state(WRITE) is WriteState.CLAIMED
    assert ["old"] == read_lines(engine.partition(*ORDERS))


def test_a_write_that_does_not_fit_the_disk_is_refused_whole(disk, engine):
    """A write that is larger than the free disk space is refused with the sizes, before any record is visible."""
    engine.create_topic("clicks", partitions=2)
    area = submit(disk)
    disk.fill(OVERHEAD_BYTES)
    engine.commit_staged_writes()
    assert area.state(WRITE) is WriteState.REFUSED
    assert "bytes are free on the disk; nothing was written" in str(area.take_refusal(WRITE))
    assert (["old"], []) == (read_lines(engine.partition(*ORDERS)), read_lines(engine.partition(*CLICKS)))


def test_writes_without_a_placement_are_unchanged(disk, engine):
    """A write without a placement has a manifest of version 1, and is appended as in earlier versions."""
    area = StagingArea(DATA, disk)
    area.submit(WRITE, [stage_batches(area, WRITE, [lines(*ORDERS, "new\n")])])
    content = json.loads(disk.read_bytes(DATA / write_file(WRITE, WriteFileKind.REQUESTED)))
    assert (1, False) == (content["version"], "placement" in content)
    engine.commit_staged_writes()
    assert ["old", "new"] == read_lines(engine.partition(*ORDERS))
