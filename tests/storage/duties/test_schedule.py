"""Tests of duties on real logs: flushing, checkpoints, retention and removal, one by one."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.doubles.engines import DATA, QUIET, TINY_SEGMENTS, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.several_disks import contents
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.codec.records import encode
from topicfs.storage.duties.schedule import Duty, Plan, Schedule, plan_duties
from topicfs.storage.engine import Partition
from topicfs.storage.errors import (
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionOfflineError,
    PolicyViolationError,
)
from topicfs.storage.log.log import Log
from topicfs.storage.manager import LogManager, open_engine
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp

HOUR_MS = 3_600_000
LINE = "x" * 50 + "\n"
"""A line. Three of these lines, each in its own batch, fill a tiny segment."""


def topic_of(
    disk: SimulatedDisk, clock: ManualClock, records: int, overrides: Mapping[str, str]
) -> tuple[LogManager, Partition]:
    """Return an engine and a partition of `records` batches, whose timestamps are the present time."""
    engine = engine_on(disk, clock=clock)
    engine.create_topic("t", overrides={**TINY_SEGMENTS, **overrides})
    partition = engine.partition("t", 0)
    for _ in range(records):
        append_lines(partition, LINE, timestamp=clock())
    return engine, partition


def log_files(disk: SimulatedDisk, suffix: str = ".log") -> list[str]:
    return [e.name for e in disk.list_directory(DATA / "t-0") if e.name.endswith(suffix)]


def bases(partition: Partition) -> list[int]:
    return [segment.base_offset for segment in partition.segments()]


def run_everything(engine: LogManager, clock: ManualClock, *, after_ms: int = 400_000) -> None:
    """Advance the clock until each duty is due, and run the duties."""
    clock.advance(after_ms)
    engine.maintenance(clock())


def test_checkpoints_are_written_in_their_periods(disk: SimulatedDisk, clock: ManualClock) -> None:
    """High watermarks are written after 5 s; recovery points and log starts after 30 s, and then every 60 s."""
    engine, partition = topic_of(disk, clock, 2, {})
    partition.delete_records(Offset(1))
    partition.sync()
    written = []
    for seconds in (4, 5, 29, 30, 60, 90):
        clock.now = 1_700_000_000_000 + seconds * 1000
        engine.maintenance(clock())
        names = [e.name for e in disk.list_directory(DATA) if "-offset-checkpoint" in e.name]
        written.append((seconds, [name.split("-")[0] for name in names]))
    assert [
        (4, []),
        (5, ["replication"]),
        (29, ["replication"]),
        (30, ["log", "recovery", "replication"]),
        (60, ["log", "recovery", "replication"]),
        (90, ["log", "recovery", "replication"]),
    ] == written
    assert b"0\n1\nt 0 2\n" == disk.read_bytes(DATA / "recovery-point-offset-checkpoint")
    assert b"0\n1\nt 0 1\n" == disk.read_bytes(DATA / "log-start-offset-checkpoint")


def test_unchanged_checkpoints_are_not_written_again(disk: SimulatedDisk, clock: ManualClock) -> None:
    """An idle engine writes no checkpoints, so that its disk can sleep."""
    engine, _ = topic_of(disk, clock, 1, {})
    run_everything(engine, clock)
    disk.calls.clear()
    run_everything(engine, clock)
    assert [] == [call for call in disk.calls if call[0] in ("write_bytes", "rename", "sync")]


def test_log_start_at_a_segments_base_needs_no_checkpoint(disk: SimulatedDisk, clock: ManualClock) -> None:
    """A log start that equals the base offset of a segment is not written to the checkpoint."""
    engine, partition = topic_of(disk, clock, 4, {"retention.bytes": "1"})
    run_everything(engine, clock)
    assert partition.offsets().log_start_offset == bases(partition)[0] > 0
    assert not disk.exists(DATA / "log-start-offset-checkpoint")


def test_flush_by_time(disk: SimulatedDisk, clock: ManualClock) -> None:
    """A log with new records is flushed when flush.ms have passed since its last flush."""
    engine, partition = topic_of(disk, clock, 2, {"flush.ms": "60000"})
    engine.create_topic("never")
    append_lines(engine.partition("never", 0), LINE)
    clock.advance(59_999)
    engine.maintenance(clock())
    assert 0 == partition.offsets().recovery_point
    clock.advance(1_001)
    engine.maintenance(clock())
    assert 2 == partition.offsets().recovery_point
    assert 0 == engine.partition("never", 0).offsets().recovery_point
    run_everything(engine, clock)
    disk.calls.clear()
    run_everything(engine, clock)
    assert [] == [call for call in disk.calls if call[0] == "sync"]


def test_flush_by_count(disk: SimulatedDisk, clock: ManualClock) -> None:
    """With flush.messages an append itself flushes; no maintenance is needed."""
    _, partition = topic_of(disk, clock, 3, {"flush.messages": "2"})
    assert 2 == partition.offsets().recovery_point


def test_everything_expired_leaves_one_empty_segment(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Row 70: if all records expire, an empty segment is left. It and its epoch start at the log end."""
    engine, partition = topic_of(disk, clock, 7, {"retention.ms": "1000"})
    assert len(bases(partition)) > 1
    for _ in range(2):
        run_everything(engine, clock)
        assert [7] == bases(partition)
        offsets = partition.offsets()
        assert (7, 7) == (offsets.log_start_offset, offsets.log_end_offset)
    assert b"0\n1\n0 7\n" == disk.read_bytes(DATA / "t-0" / "leader-epoch-checkpoint")
    engine.close()
    again = engine_on(disk, clock=clock).partition("t", 0)
    assert [7] == bases(again)
    assert 7 == append_lines(again, LINE).base_offset


def test_deleted_files_go_after_their_delay(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Row 69: deleted files are renamed at once and unlinked after file.delete.delay.ms."""
    engine, partition = topic_of(disk, clock, 7, {"retention.bytes": "1", "file.delete.delay.ms": "60000"})
    first = bases(partition)[0]
    run_everything(engine, clock)
    assert f"{first:020}.log.deleted" in log_files(disk, ".deleted")
    assert f"{first:020}.log" not in log_files(disk)
    clock.advance(59_000)
    engine.maintenance(clock())
    assert log_files(disk, ".deleted")
    clock.advance(1_000)
    engine.maintenance(clock())
    assert [] == log_files(disk, ".deleted")


def test_deleted_records_release_their_segments(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Row 72: segments below the log start are deleted, even if no retention is set.

    The log start may be inside a later segment.
    """
    engine, partition = topic_of(disk, clock, 9, {"retention.ms": "-1"})
    before = bases(partition)
    partition.delete_records(Offset(before[1] + 1))
    run_everything(engine, clock)
    assert bases(partition) == before[1:]
    assert partition.offsets().log_start_offset == before[1] + 1
    with pytest.raises(OffsetOutOfRangeError):
        partition.read(Offset(before[1]), max_bytes=1000)
    partition.delete_records(Offset(-1))
    run_everything(engine, clock)
    assert bases(partition) == before[-1:]
    assert [] == read_lines(partition)


def test_delete_records_moves_forward_only(disk: SimulatedDisk, clock: ManualClock) -> None:
    """DeleteRecords with a smaller offset changes nothing. The offset -1 means the high watermark."""
    _, partition = topic_of(disk, clock, 5, {})
    assert [3, 3, 3, 5] == [partition.delete_records(Offset(before)) for before in (3, 1, 3, -1)]


def test_delete_records_is_bounded(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Row 73: DeleteRecords stops at the high watermark, and is refused for a compacted topic."""
    engine, partition = topic_of(disk, clock, 2, {})
    with pytest.raises(OffsetOutOfRangeError):
        partition.delete_records(Offset(3))
    engine.alter_config("t", {"cleanup.policy": "compact"})
    with pytest.raises(PolicyViolationError):
        partition.delete_records(Offset(1))
    assert 0 == partition.offsets().log_start_offset


def test_silent_producers_are_forgotten(disk: SimulatedDisk, clock: ManualClock) -> None:
    """After producer.id.expiration.ms a producer may continue with any sequence."""
    engine, partition = topic_of(disk, clock, 0, {})

    def append_from_producer(sequence: int) -> int:
        stamp = BatchStamp(producer_id=ProducerId(7), producer_epoch=0, base_sequence=sequence)
        record = Record(Offset(0), clock(), None, b"x")
        return partition.append(encode([record], stamp)).base_offset

    assert 0 == append_from_producer(0)
    clock.advance(23 * HOUR_MS)
    engine.maintenance(clock())
    with pytest.raises(OutOfOrderSequenceError):
        append_from_producer(5)
    clock.advance(2 * HOUR_MS)
    engine.maintenance(clock())
    assert 1 == append_from_producer(5)


def test_failing_partition_does_not_stop_the_others(disk: SimulatedDisk, clock: ManualClock) -> None:
    """A partition whose retention fails causes a warning, and is retried in the next round."""
    engine = engine_on(disk, clock=clock)
    for name in ("a", "b", "c"):
        engine.create_topic(name, overrides={**TINY_SEGMENTS, "retention.bytes": "1"})
        for _ in range(7):
            append_lines(engine.partition(name, 0), LINE, timestamp=clock())
    disk.fail("rename", suffix=".log")
    run_everything(engine, clock)
    assert [1, 1] == [len(bases(engine.partition(name, 0))) for name in ("b", "c")]
    assert 1 == len(engine.warnings)
    assert engine.warnings[0].startswith("a-0: retention: ")


def test_checkpoint_that_finds_no_room_is_written_the_next_time(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    """A checkpoint that does not fit on a full disk causes a warning. Other duties and appends go on."""
    engine, partition = topic_of(disk, clock, 7, {"retention.bytes": "1"})
    partition.sync()
    disk.fail("rename", suffix="recovery-point-offset-checkpoint.tmp", number=errno.ENOSPC, times=2)
    run_everything(engine, clock)
    assert 1 == len(bases(partition))
    assert disk.exists(DATA / "replication-offset-checkpoint")
    assert engine.warnings[0].startswith("recovery point checkpoint: ")
    run_everything(engine, clock)
    assert b"0\n1\nt 0 7\n" == disk.read_bytes(DATA / "recovery-point-offset-checkpoint")
    assert 7 == append_lines(partition, LINE).base_offset


def test_checkpoint_that_cannot_be_written_is_a_failed_directory(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    """If a checkpoint cannot be written, its directory fails: appends stop and reads go on.

    Reopening a partition brings the directory back.
    """
    engine, partition = topic_of(disk, clock, 7, {})
    engine.create_topic("u")
    disk.fail("rename", suffix="recovery-point-offset-checkpoint.tmp")
    run_everything(engine, clock)
    assert engine.warnings[0].startswith("/data: failed, its partitions are offline: ")
    for topic in ("t", "u"):
        state = engine.partition(topic, 0).status().state
        assert state.startswith("offline: /data failed: ")
        assert "recovery-point-offset-checkpoint" in state
    with pytest.raises(PartitionOfflineError, match="/data failed"):
        append_lines(partition, LINE)
    assert 7 == len(read_lines(partition))
    engine.reopen_partition("u", 0)
    assert 7 == append_lines(engine.partition("t", 0), LINE).base_offset
    run_everything(engine, clock)
    assert b"0\n2\nt 0 0\nu 0 0\n" == disk.read_bytes(DATA / "recovery-point-offset-checkpoint")
    engine.close()
    assert disk.exists(DATA / ".kafka_cleanshutdown")


def test_offline_partition_is_left_alone(disk: SimulatedDisk, clock: ManualClock) -> None:
    """An offline log gets no retention, and its warning is not repeated."""
    engine, partition = topic_of(disk, clock, 7, {"retention.bytes": "1"})
    assert isinstance(partition, Log)
    partition.parts.mark_offline("for the test")
    before = bases(partition)
    run_everything(engine, clock)
    assert before == bases(partition)
    assert () == engine.warnings


def test_topics_come_and_go_beside_maintenance_and_appends(tmp_path: Path) -> None:
    """After threads have concurrently created, filled and deleted topics, disk and memory have the same topics."""
    engine = open_engine(tmp_path / "data", config=QUIET)
    with ThreadPoolExecutor(5) as threads:
        work = [threads.submit(come_and_go, engine, name) for name in ("a", "b", "c")]
        work += [threads.submit(tend, engine) for _ in range(2)]
        for one in work:
            one.result()
    assert () == engine.warnings
    expected = {"a-0": [], "a-1": ["3"], "b-0": [], "b-1": ["3"], "c-0": [], "c-1": ["3"]}
    assert expected == contents(engine)
    engine.close()
    again = open_engine(tmp_path / "data", config=QUIET)
    assert expected == contents(again)
    again.close()


def come_and_go(engine: LogManager, name: str) -> None:
    """Create, fill and delete a topic repeatedly; the last created topic stays."""
    for round_number in range(4):
        engine.create_topic(name, partitions=2, overrides={"file.delete.delay.ms": "0"})
        append_lines(engine.partition(name, 1), f"{round_number}\n")
        if round_number < 3:
            engine.delete_topic(name)


def tend(engine: LogManager) -> None:
    for hours in range(100):
        engine.maintenance(Timestamp(1_900_000_000_000 + hours * 3_600_000))


def test_an_engine_that_follows_changes_no_records(disk: SimulatedDisk, clock: ManualClock) -> None:
    """An engine with the setting `follows` writes checkpoints, but leaves deletion and compaction to its leader."""
    config = QUIET._replace(follows=True, creation_overrides={"retention.ms": "1000"})
    engine = engine_on(disk, clock=clock, config=config)
    partition = engine.create_topic("t", overrides=TINY_SEGMENTS).partitions()[0]
    for _ in range(7):
        append_lines(partition, LINE, timestamp=clock())
    before = bases(partition)
    run_everything(engine, clock)
    assert (before, 0) == (bases(partition), partition.offsets().log_start_offset)
    assert b"t 0 7" in disk.read_bytes(DATA / "replication-offset-checkpoint")
    planned = set(plan_duties(config))
    assert planned.isdisjoint({Duty.RETENTION, Duty.CLEAN, Duty.STAGED_WRITES, Duty.UNOPENED})


def test_a_shorter_period_begins_with_its_setting() -> None:
    """A duty whose period was shortened is due at most one new period later, even if its first run has a long delay."""
    for delay_ms in (0, 900_000):
        old, new = ({Duty.RETENTION: Plan(period, delay_ms)} for period in (300_000, 1_000))
        begun = Schedule.begin(old, Timestamp(0)).done([Duty.RETENTION], Timestamp(1_000_000))
        schedule = begun.replanned(new, Timestamp(1_000_000))
        assert () == schedule.due(Timestamp(1_000_999))
        assert (Duty.RETENTION,) == schedule.due(Timestamp(1_001_000))
        assert (Duty.RETENTION,) == begun.replanned(new, Timestamp(1_299_500)).due(Timestamp(1_300_000))
