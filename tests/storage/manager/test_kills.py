"""Tests that a kill or power loss at any step of a change leaves the old state or the new state."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on, read_lines, state_of
from tests.doubles.mortal_disk import End, MortalDisk, dies, every_step
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.checkpoints.clean_shutdown import is_marked_clean
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.disk import names
from topicfs.storage.manager import LogManager
from topicfs.storage.model import Offset, TopicPartition

pytestmark = pytest.mark.slow


def populated(disk: SimulatedDisk) -> LogManager:
    """Return an engine with two topics whose records are on disk."""
    disk.take_content(_populated())
    return engine_on(disk)


@cache
def _populated() -> SimulatedDisk:
    """Return the disk for `populated`. The disk is filled only once."""
    disk = SimulatedDisk()
    engine = engine_on(disk)
    engine.create_topic("kept")
    engine.create_topic("orders", partitions=2, overrides={"max.message.bytes": "5000"})
    for topic in engine.topics().values():
        for number, partition in topic.partitions().items():
            append_lines(partition, f"{topic.name} {number}\nmore\n")
            partition.sync()
    engine.partition("kept", 0).delete_records(Offset(1))
    engine.close()
    return disk


def create(engine: LogManager) -> None:
    engine.create_topic("fresh", partitions=2, overrides={"segment.ms": "7"})


def extend(engine: LogManager) -> None:
    engine.add_partitions("orders", total=4)


def delete(engine: LogManager) -> None:
    engine.delete_topic("orders")


def alter(engine: LogManager) -> None:
    engine.alter_config("orders", {"max.message.bytes": None, "segment.ms": "9"})


def delete_and_create(engine: LogManager) -> None:
    engine.delete_topic("orders")
    engine.create_topic("orders", partitions=1)


CHANGES = [create, extend, delete, alter, delete_and_create, LogManager.close]


@pytest.mark.parametrize("end", End, ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_change_is_whole_or_not_at_all(change: Callable[[LogManager], None], end: End) -> None:
    """After a kill at any step the next opening finds the state before or after the change, and can continue."""
    before, *allowed = states_around(change)
    after = allowed[-1]
    seen = []
    for steps in every_step():
        disk = MortalDisk(seed=steps)
        engine = populated(disk)
        completed = not dies(disk, partial(change, engine), steps)
        end.of(disk)
        reopened = engine_on(disk)
        state = state_of(reopened)
        seen.append(state)
        assert state in (before, *allowed), f"after {steps} steps"
        # The directory can be used, and a clean close keeps the state.
        reopened.create_topic("later")
        reopened.delete_topic("later")
        reopened.close()
        assert state == state_of(engine_on(disk)), f"after {steps} steps"
        if completed:
            assert after == state
            break
    assert before == seen[0]


@pytest.mark.parametrize("end", End, ids=str)
def test_a_clean_mark_says_that_all_of_it_is_on_disk(end: End) -> None:
    """If a close is killed at any step and the marker exists, checkpoints and records are on disk as well."""
    kept = TopicPartition("kept", 0)
    marks = set()
    for steps in every_step():
        disk = MortalDisk(seed=steps)
        engine = populated(disk)
        append_lines(engine.partition(*kept), "newest\n")
        engine.partition(*kept).delete_records(Offset(2))
        completed = not dies(disk, engine.close, steps)
        end.of(disk)
        marked = is_marked_clean(disk, DATA)
        marks.add(marked)
        if marked:
            assert 2 == read_offsets(disk, DATA / names.LOG_START_OFFSETS)[kept], f"after {steps} steps"
            assert 3 == read_offsets(disk, DATA / names.RECOVERY_POINTS)[kept], f"after {steps} steps"
            assert ["newest"] == read_lines(engine_on(disk).partition(*kept)), f"after {steps} steps"
        if completed:
            assert marked
            break
    assert {False, True} == marks


@pytest.mark.parametrize("end", End, ids=str)
def test_a_mark_that_was_taken_does_not_come_back_beside_new_records(end: End) -> None:
    """If an opening is killed at any step, no old marker prevents later appends from being recovered."""
    for steps in every_step():
        disk = MortalDisk(seed=steps)
        populated(disk).close()
        completed = not dies(disk, partial(engine_on, disk), steps)
        end.of(disk)
        engine = engine_on(disk)
        append_lines(engine.partition("kept", 0), "newest\n")
        disk.crash(keep=0.0)
        assert not is_marked_clean(disk, DATA), f"after {steps} steps"
        assert ["more"] == read_lines(engine_on(disk).partition("kept", 0)), f"after {steps} steps"
        if completed:
            return


@pytest.mark.parametrize("failing", ["kept-0", "orders-0", "orders-1"])
def test_a_close_in_which_one_log_fails_leaves_no_mark(failing: str) -> None:
    """If the close of one log fails, the other logs are closed, and the next start recovers all logs."""
    disk = SimulatedDisk()
    engine = populated(disk)
    for topic in engine.topics().values():
        for partition in topic.partitions().values():
            append_lines(partition, "newest\n")
    disk.fail("sync", suffix=f"{failing}/{0:020d}.log")
    engine.close()
    assert [warning for warning in engine.warnings if f"{failing}: close: " in warning]
    assert not is_marked_clean(disk, DATA)
    others = [("kept", 0), ("orders", 0), ("orders", 1)]
    disk.crash(keep=0.0)
    reopened = engine_on(disk)
    for topic, number in others:
        newest = read_lines(reopened.partition(topic, number))[-1]
        assert newest == ("more" if f"{topic}-{number}" == failing else "newest")


def states_around(change: Callable[[LogManager], None]) -> list[object]:
    """Return the states before a change, between its parts, and after it."""
    disk = SimulatedDisk()
    engine = populated(disk)
    states = [state_of(engine)]
    if change is delete_and_create:
        delete(engine)
        states.append(state_of(engine))
        engine = populated(SimulatedDisk())
    change(engine)
    states.append(state_of(engine))
    return states


@pytest.mark.parametrize("end", End, ids=str)
@pytest.mark.parametrize("change", [create, delete])
def test_opening_that_finishes_a_change_may_be_killed_too(
    change: Callable[[LogManager], None], end: End
) -> None:
    """If an opening completes an interrupted change, this opening can be interrupted any number of times."""
    before, after = states_around(change)
    for last in (3, 7, 11, 16):
        disk = MortalDisk(seed=last)
        engine = populated(disk)
        assert dies(disk, partial(change, engine), last)
        for steps in every_step():
            if not dies(disk, partial(engine_on, disk), steps):
                break
            end.of(disk)
        assert state_of(engine_on(disk)) in (before, after)


@pytest.mark.parametrize("change", [create, extend, delete, alter])
@pytest.mark.parametrize(
    "operation", ["write_bytes", "rename", "make_directory", "sync_directory", "sync", "open", "pwrite"]
)
def test_failing_disk_leaves_the_old_state_or_the_new(
    change: Callable[[LogManager], None], operation: str
) -> None:
    """A disk error in any call is raised. The engine and the disk then have the same state: the old or the new one."""
    before, after = states_around(change)
    for calls in every_step():
        disk = SimulatedDisk(seed=calls)
        engine = populated(disk)
        disk.fail(operation, after=calls)
        try:
            change(engine)
        except OSError:
            failed = True
        else:
            failed = False
        if not failed:
            assert after == state_of(engine)
            break
        assert state_of(engine) in (before, after), f"{operation} number {calls}"
        # A copy of the disk shows what a kill at this moment would leave.
        assert state_of(engine) == state_of(engine_on(deepcopy(disk))), f"{operation} number {calls}"
        change_again(engine, change)
        assert after == state_of(engine), f"{operation} number {calls}"
        engine.close()
        assert after == state_of(engine_on(disk)), f"{operation} number {calls}"


def change_again(engine: LogManager, change: Callable[[LogManager], None]) -> None:
    """Repeat a failed change, unless the change was made nevertheless."""
    if change is delete and "orders" not in engine.topics():
        return
    if change is create and "fresh" in engine.topics():
        return
    change(engine)


def test_full_disk_refuses_a_topic_and_serves_the_others() -> None:
    """A topic that does not fit on the disk leaves nothing, and can be created after there is room."""
    for room in range(0, 16_384, 512):
        disk = SimulatedDisk()
        engine = populated(disk)
        before = state_of(engine)
        disk.fill(room)
        try:
            create(engine)
        except OSError:
            assert before == state_of(engine)
            disk.fill(None)
            assert not [path for path in disk.tree() if path.startswith(str(DATA / "fresh"))]
            create(engine)
        assert "fresh" in engine.topics()
        assert before == {name: one for name, one in state_of(engine).items() if name != "fresh"}
