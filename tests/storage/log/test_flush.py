"""Tests that sealed segments are flushed in the background, and that the recovery point follows."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.doubles.engines import DATA, TINY_SEGMENTS, append_lines, engine_on
from tests.doubles.logs import DIRECTORY, LogOnDisk, offsets_of
from tests.doubles.manual_clock import ManualClock
from tests.doubles.manual_flusher import ManualFlusher
from tests.doubles.records import produced, sized_batch
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.waiting import wait_until
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk import names
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.log.flush import BackgroundFlusher
from topicfs.storage.log.life import Event
from topicfs.storage.model import Offset, TopicPartition

FIRST = f"{0:020}"


def flushing(**settings) -> tuple[LogOnDisk, ManualFlusher]:
    """Return a log of 100-byte batches, three per segment, and the flusher of the log."""
    flusher = ManualFlusher()
    settings = {"internal_segment_bytes": 300, "index_interval_bytes": 0, **settings}
    return LogOnDisk(flusher=flusher, **settings), flusher


def fill(on_disk: LogOnDisk, count: int) -> None:
    for _ in range(count):
        on_disk.log.append(sized_batch(100, timestamp=on_disk.log.log_end_offset * 10))


def synced(on_disk: LogOnDisk) -> list[str]:
    """Return the names of the files and directories synced since the last call, in order."""
    found = [Path(path).name for call, path in on_disk.disk.calls if call in ("sync", "sync_directory")]
    on_disk.disk.calls.clear()
    return found


def test_a_roll_waits_for_no_disk():
    """If an append rolls the log, the append passes the old segment to the flusher, and does not wait."""
    on_disk, flusher = flushing()
    fill(on_disk, 1)
    synced(on_disk)
    fill(on_disk, 3)
    assert [] == synced(on_disk)
    assert [on_disk.log.appender.flush_sealed] == list(flusher.waiting)


def test_the_recovery_point_follows_a_roll():
    """The snapshot, segment and directory of a roll are synced. Then the recovery point moves to the new segment."""
    on_disk, flusher = flushing()
    fill(on_disk, 5)
    synced(on_disk)
    flusher.run()
    assert [
        f"{3:020}.snapshot",
        f"{FIRST}.log",
        f"{FIRST}.index",
        f"{FIRST}.timeindex",
        "orders-0",
    ] == synced(on_disk)
    assert 3 == on_disk.log.recovery_point
    assert [0, 1, 2] == offsets_of(on_disk.crash(keep=0.0, recovery_point=3))


def test_several_rolls_are_one_flush():
    """A single flush is enough for several rolls of a log."""
    on_disk, flusher = flushing()
    fill(on_disk, 10)
    assert 0 == on_disk.log.recovery_point
    assert 1 == flusher.run()
    assert 9 == on_disk.log.recovery_point


def test_a_flushed_segment_is_synced_again_after_its_trim():
    """A segment that was flushed before its roll is synced again after the roll has trimmed its indexes."""
    on_disk, flusher = flushing()
    fill(on_disk, 3)
    on_disk.log.appender.flush()
    fill(on_disk, 1)
    synced(on_disk)
    flusher.run()
    assert [f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.timeindex"] == synced(on_disk)[1:4]
    trimmed = {name: data for name, data in on_disk.index_files().items() if FIRST in name}
    on_disk.disk.crash(keep=0.0)
    assert trimmed == {name: on_disk.content(name) for name in trimmed}
    assert 3 == on_disk.log.recovery_point


@pytest.mark.parametrize("seed", range(20))
def test_a_preallocated_log_is_cut_before_the_roll_is_over(seed):
    """A roll truncates a preallocated file, because recovery removes no zeros below the recovery point."""
    on_disk, flusher = flushing(disk=SimulatedDisk(seed=seed), preallocate=True)
    fill(on_disk, 2)
    on_disk.log.appender.flush()
    on_disk.log.appender.roll()
    on_disk.disk.sync_directory(DIRECTORY)
    assert 1 == len(flusher.waiting)
    on_disk.crash(keep=0.5, recovery_point=2)
    assert [0, 2] == on_disk.base_offsets()
    assert 200 == len(on_disk.content(f"{FIRST}.log"))
    assert [0, 1] == offsets_of(on_disk.log)


def test_the_recovery_point_stays_inside_a_segment_that_is_closed_while_it_is_flushed():
    """If a segment is rolled while it is being flushed, the recovery point stays inside this segment.

    The next flush moves the recovery point on.
    """
    on_disk, flusher = flushing()
    fill(on_disk, 2)
    log = on_disk.log
    sync = log.chain.active.log.sync
    rolled = []

    def sync_and_roll() -> None:
        sync()
        if not rolled:
            rolled.append(log.appender.roll())

    log.chain.active.log.sync = sync_and_roll
    log.appender.flush()
    assert (1, 2) == (log.recovery_point, log.log_end_offset)
    flusher.run()
    assert 2 == log.recovery_point


def test_a_flush_that_fails_takes_the_log_offline():
    """A failed background flush takes the log offline, because the flush may have lost data."""
    on_disk, flusher = flushing()
    fill(on_disk, 4)
    on_disk.disk.fail("sync", suffix=".log")
    flusher.run()
    assert "flushing failed" in (on_disk.log.offline_reason or "")
    with pytest.raises(PartitionOfflineError):
        fill(on_disk, 1)


@pytest.mark.parametrize("end", ["retired", "closed"])
def test_a_log_that_went_meanwhile_is_not_flushed(end):
    """The flusher does not flush a log that was closed or deleted meanwhile."""
    on_disk, flusher = flushing()
    fill(on_disk, 4)
    if end == "closed":
        on_disk.log.close()
    else:
        on_disk.log.parts.life.note(Event.DELETE, "the topic was deleted")
    synced(on_disk)
    assert 1 == flusher.run()
    assert [] == synced(on_disk)


def test_a_truncation_forgets_what_was_closed_above_it():
    """A truncation drops waiting flushes above its offset, so that they do not hold back the recovery point."""
    on_disk, flusher = flushing()
    fill(on_disk, 8)
    on_disk.log.replacer.truncate_to(Offset(4))
    flusher.run()
    assert 3 == on_disk.log.recovery_point
    on_disk.log.appender.flush()
    assert 4 == on_disk.log.recovery_point
    fill(on_disk, 3)
    on_disk.log.replacer.truncate_fully_and_start_at(Offset(100))
    assert 100 == on_disk.log.recovery_point


def test_a_snapshot_is_on_disk_before_the_recovery_point_passes_it():
    """A snapshot is synced before the recovery point moves above the snapshot's offset.

    So after a crash the log still recognizes repeated batches.
    """
    on_disk, flusher = flushing()
    on_disk.log.append(produced())
    on_disk.log.appender.roll()
    flusher.run()
    for keep in (0.0, 1.0):
        on_disk.crash(keep=keep, recovery_point=1)
        assert on_disk.log.append(produced()).duplicate


def test_the_checkpoint_says_how_far_the_rolls_went():
    """Even if users never call fsync, a crash loses no records except those in active segments."""
    disk, clock, flusher = SimulatedDisk(), ManualClock(), ManualFlusher()
    engine = engine_on(disk, clock=clock, flusher=flusher)
    partition = engine.create_topic("orders", overrides=TINY_SEGMENTS).partitions()[0]
    while len(partition.segments()) < 10:
        append_lines(partition, "a line of text\n")
    flusher.run()
    engine.maintain_now(clock())
    recovery_points = read_offsets(disk, DATA / names.RECOVERY_POINTS)
    assert {TopicPartition("orders", 0): partition.segments()[-1].base_offset} == recovery_points
    disk.crash(keep=0.0)
    engine = engine_on(disk, clock=clock)
    assert recovery_points[TopicPartition("orders", 0)] == (
        engine.partition("orders", 0).offsets().log_end_offset
    )


def test_an_engine_closes_its_flusher():
    """Closing an engine closes its flusher, so that no thread runs after the lock was released."""
    flusher = ManualFlusher()
    engine = engine_on(SimulatedDisk(), flusher=flusher)
    engine.close()
    assert flusher.closed


@pytest.mark.parametrize("directories", [1, 2])
def test_an_engine_on_the_machines_disk_flushes_in_the_background(tmp_path, directories):
    """On a real disk recovery points follow rolls without maintenance. Closing the engine ends the threads."""
    config = EngineConfig(topic_defaults=TopicConfig(segment_index_bytes=1200))
    others = set(threading.enumerate())
    engine = open_engine([tmp_path / str(number) for number in range(directories)], config=config)
    topic = engine.create_topic("orders", partitions=2, overrides=TINY_SEGMENTS)
    for partition in topic.partitions().values():
        while len(partition.segments()) < 20:
            append_lines(partition, "a line of text\n")
        newest = partition.segments()[-1].base_offset
        wait_until(lambda: partition.offsets().recovery_point >= newest, "all sealed segments are flushed")  # noqa: B023 (called at once)
    ours = [thread for thread in threading.enumerate() if thread not in others and thread.name == "flush-log"]
    assert directories == len(ours)
    engine.close()
    assert [False] * directories == [thread.is_alive() for thread in ours]


# The flusher's thread.


def wait_for_all(flusher: BackgroundFlusher) -> None:
    """Wait until the work that was submitted so far is done."""
    last = threading.Event()
    flusher.submit(last.set)
    last.wait()


def test_a_flusher_does_one_after_the_other():
    """A flusher runs all its work in order, even after a failure."""
    flusher, done = BackgroundFlusher(), []

    def fail() -> None:
        done.append("failed")
        raise ValueError("a fault of the log")

    flusher.submit(fail)
    flusher.submit(lambda: done.append("flushed"))
    wait_for_all(flusher)
    flusher.close()
    assert ["failed", "flushed"] == done


def test_a_thread_that_cannot_begin_is_tried_again(monkeypatch):
    """If the flusher's thread cannot start, the work waits.

    The next submission starts the thread again. A `close` drops the work.
    """
    flusher, done = BackgroundFlusher(), []
    start = threading.Thread.start

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    flusher.submit(lambda: done.append("flushed"))
    monkeypatch.setattr(threading.Thread, "start", start)
    wait_for_all(flusher)
    flusher.close()
    assert ["flushed"] == done
    monkeypatch.setattr(threading.Thread, "start", refuse)
    never_began = BackgroundFlusher()
    never_began.submit(refuse)
    never_began.close()


def test_equal_flushes_that_wait_are_one():
    """If equal pieces of work wait, the work is done once, so that at most one flush waits for each log."""
    flusher, done = BackgroundFlusher(), []
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait()

    def again() -> None:
        done.append("again")

    flusher.submit(first)
    begun.wait()
    for _ in range(3):
        flusher.submit(again)
    go_on.set()
    wait_for_all(flusher)
    assert ["again"] == done
    flusher.submit(again)
    wait_for_all(flusher)
    assert ["again", "again"] == done
    flusher.close()


def test_closing_waits_for_the_running_flush_alone():
    """`close` waits for running work, drops waiting work, and refuses later work."""
    flusher, done = BackgroundFlusher(), []
    begun, go_on = threading.Event(), threading.Event()

    def running() -> None:
        begun.set()
        go_on.wait()
        done.append("running")

    flusher.submit(running)
    begun.wait()
    flusher.submit(lambda: done.append("waiting"))
    closing = threading.Thread(target=flusher.close)
    closing.start()
    go_on.set()
    closing.join()
    flusher.submit(lambda: done.append("too late"))
    flusher.close()
    assert ["running"] == done
