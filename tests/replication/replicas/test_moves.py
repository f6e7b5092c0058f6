"""Tests of moving a replica to another data directory: it stays available, and no interruption loses records."""

from __future__ import annotations

import errno
from functools import partial
from itertools import count
from threading import Thread

import pytest

from tests.doubles.mortal_disk import End
from tests.doubles.powered_replicas import PoweredReplicas
from tests.doubles.replicated import ORDERS, Replicated, with_orders
from tests.doubles.several_disks import break_disk
from tests.doubles.waiting import wait_until
from topicfs.storage.errors import InvalidConfigError, StorageError
from topicfs.storage.log.life import Role
from topicfs.storage.model import NO_LEADER_EPOCH


def one_of_two() -> Replicated:
    """Make two directories; the first has the only replica of `orders`, in a few segments."""
    two = with_orders(2, replicas=1, internal_segment_bytes=300)
    for number in range(12):
        two.append(f"line {number}\n")
    assert {1: "live"} == two.names()
    return two


def move(two: Replicated, directory: str = "/b") -> None:
    """Move the replica to a directory, and copy it there."""
    two.engine.move_replica(ORDERS, directory)
    two.engine.catch_up()


def half_moved() -> Replicated:
    """Begin to move the replica to a second directory; its disk is then full."""
    two = one_of_two()
    two.engine.move_replica(ORDERS, "/b")
    two.disk(2).fail("pwrite", number=errno.ENOSPC, times=1_000, suffix="8.log")
    two.engine.catch_up()
    return two


def test_a_replica_moves_with_everything_it_has():
    """The moved replica leads in a new epoch. Its files are equal byte for byte, and the old files are deleted."""
    two = one_of_two()
    before, lines, epoch = two.files(1), two.lines(), two.partition().state.leader_epoch
    move(two)
    assert {2: "live"} == two.names()
    assert ((2,), 2, epoch + 1) == (two.in_sync(), two.leader(), two.partition().state.leader_epoch)
    assert two.partition().state.moving is None
    assert lines == two.lines()
    assert before.items() <= two.files(2).items()  # Indexes are created when they get their first entry.
    two.append("more\n")
    two.reopen()
    assert [*lines, "more"] == two.lines()


def test_it_is_copied_under_the_name_of_a_future_replica_while_it_serves():
    """The copy is named `orders-0.<32 hex digits>-future`, as in Kafka. The partition's status shows its progress."""
    two = half_moved()
    assert {1: "live", 2: "future"} == two.names()
    two.append("more\n")
    status = two.partition().status()
    assert [("/a", True, False), ("/b", False, True)] == [
        (one.place, one.leads, one.arriving) for one in status.replicas
    ]
    arriving = status.replicas[1]
    assert 0 < (arriving.end_offset or 0) < 13
    two.disk(2).heal()
    two.forget_failures()
    two.engine.catch_up()
    assert {2: "live"} == two.names()
    assert "more" == two.lines()[-1]


@pytest.mark.parametrize("leads", [True, False])
def test_one_of_several_replicas_moves(leads: bool):
    """If one of several replicas moves, the others stay. Moving a follower changes neither the leader nor its epoch."""
    three = with_orders(3, replicas=2)
    three.append("a\n")
    assert ((1, 2), 1) == (three.in_sync(), three.leader())
    epoch = three.partition().state.leader_epoch
    source, kept = (1, 2) if leads else (2, 1)
    three.engine.move_replica(ORDERS, "/c", str(source))
    three.engine.catch_up()
    state = three.partition().state
    assert {kept: "live", 3: "live"} == three.names()
    assert (3 if leads else 1, epoch + leads) == (state.leader, state.leader_epoch)
    assert ((3, 2) if leads else (1, 3)) == state.assigned == state.in_sync
    three.append("b\n")
    assert ["a", "b"] == three.lines()
    assert three.files(kept) == three.files(3)
    logs = three.engine.controller.logs(ORDERS)
    assert {3: leads, kept: not leads} == {
        number: log.parts.life.role is not Role.FOLLOWER for number, log in logs.items()
    }


def test_a_replica_moves_away_from_a_directory_that_failed():
    """The replica of a failed directory can move: the new directory gets the leader's log, and is in sync.

    The failed directory drops its replica when it returns.
    """
    three = with_orders(3, replicas=2)
    three.append("a\n")
    break_disk(three.disk(1))
    three.append("b\n")
    three.engine.move_replica(ORDERS, "/c", "/a")
    three.engine.catch_up()
    assert ((3, 2), 2) == (three.in_sync(), three.leader())
    three.bring_back(1)
    assert {2: "live", 3: "live"} == three.names()
    assert ["a", "b"] == three.lines()


def test_a_cancelled_move_leaves_nothing():
    """After a cancelled move the replica stays, the copy is deleted, and another move can begin."""
    two = half_moved()
    two.disk(2).heal()
    two.engine.cancel_move(ORDERS)
    assert {1: "live"} == two.names()
    two.forget_failures()
    two.engine.catch_up()
    assert {1: "live"} == two.names()
    with pytest.raises(InvalidConfigError, match="no replica is being moved"):
        two.engine.cancel_move(ORDERS)
    move(two)
    assert {2: "live"} == two.names()
    assert 12 == len(two.lines())


def test_what_cannot_be_moved_is_refused():
    """An impossible move is refused with the reason, and nothing changes."""
    three = with_orders(3, replicas=2)
    for directory, source, reason in (
        ("/d", None, "/d is not one of the data directories /a, /b, /c"),
        ("/b", "/a", "/b already has a replica"),
        ("/c", None, "has replicas in /a, /b; say which of them moves"),
        ("/c", "/c", "has no replica in /c, only in /a, /b"),
    ):
        with pytest.raises(InvalidConfigError, match=reason):
            three.engine.move_replica(ORDERS, directory, source)
    assert three.partition().state.moving is None
    three.engine.move_replica(ORDERS, "/c", "/a")
    with pytest.raises(
        InvalidConfigError, match="a replica is being moved to /c; wait for it, or cancel the move first"
    ):
        three.engine.move_replica(ORDERS, "/c", "/b")
    with pytest.raises(InvalidConfigError, match="a replica is being moved to /c"):
        three.engine.set_replicas("orders", 3)


def test_a_directory_that_is_away_gets_none():
    """A move to a failed directory is refused. A directory that fails during a move gets all records on its return."""
    two = one_of_two()
    break_disk(two.disk(2))
    two.retry()
    two.engine.put_group_overrides("g", {"commit": "manual"})  # Any write detects the failure.
    with pytest.raises(StorageError, match="/b: failed"):
        two.engine.move_replica(ORDERS, "/b")
    two.bring_back(2)
    two.engine.move_replica(ORDERS, "/b")
    break_disk(two.disk(2))
    two.engine.catch_up()
    assert 1 == two.leader()
    two.bring_back(2)
    two.forget_failures()
    two.engine.catch_up()
    assert {2: "live"} == two.names()
    assert 12 == len(two.lines())


def test_a_topic_that_is_deleted_takes_its_copy_along():
    """Deleting a topic deletes its unfinished future copy as well."""
    two = half_moved()
    two.disk(2).heal()
    two.engine.delete_topic("orders")
    two.forget_failures()
    two.engine.catch_up()
    assert {} == two.names()


@pytest.mark.parametrize("end", ["cancel", "delete", "delete unnoticed", "make anew"])
def test_a_copy_in_a_directory_that_is_away_goes_when_that_is_back(end: str):
    """If a move is canceled, or its topic deleted or recreated, the copy is deleted when its directory returns."""
    two = half_moved()
    break_disk(two.disk(2))
    if end != "delete unnoticed":
        two.engine.put_group_overrides("g", {"commit": "manual"})  # Any write detects the failure.
        two.engine.maintenance(two.clock())
    assert two.partition().state.moving is not None
    if end == "cancel":
        two.engine.cancel_move(ORDERS)
    else:
        two.engine.delete_topic("orders", with_records=True)
    if end == "make anew":
        two.engine.create_topic("orders")
    assert "future" == two.names()[2]
    two.bring_back(2)
    assert ({} if end.startswith("delete") else {1: "live"}) == two.names()


def test_a_moving_copy_is_truncated_with_its_replica():
    """After an unclean election the copy, like the replica, loses the records that only the former leader had."""
    three = with_orders(3, replicas=2)
    three.append("a\n")
    break_disk(three.disk(2))
    three.append("b\n")
    three.disk(2).heal()
    three.engine.move_replica(ORDERS, "/c", "/b")
    mover = three.engine._moves._threads[3]
    log = mover._log(ORDERS)
    assert mover._copy(three.partition(), log)
    assert 2 == log.log_end_offset
    break_disk(three.disk(1))
    three.retry()
    three.engine.reopen_partition(*ORDERS) if three.engine._replica_dirs[2].log(ORDERS) is None else None
    three.engine.elect_unclean(ORDERS, "/b")
    three.append("c\n")
    three.forget_failures()
    three.engine.catch_up()
    assert 3 in three.in_sync()
    assert ["a", "c"] == three.lines()
    latest = three.engine.controller.logs(ORDERS)[3].epochs.latest
    assert (
        NO_LEADER_EPOCH
        < (latest.epoch if latest else NO_LEADER_EPOCH)
        == three.partition().state.leader_epoch
    )


def test_the_start_of_a_log_moves_along():
    """Records deleted within a segment stay deleted in the moved replica, even after a kill."""
    two = one_of_two()
    assert 5 == two.partition().delete_records(5)
    move(two)
    assert 5 == two.partition().log_start_offset
    two.kill()
    assert 5 == two.partition().log_start_offset
    assert 7 == len(two.lines())


def test_cleaning_pauses_meanwhile():
    """Neither the replica nor its copy is compacted until the move is complete."""
    two = with_orders(2, replicas=1, internal_segment_bytes=300)
    two.append("a\n")
    two.engine.alter_config("orders", {"cleanup.policy": "compact"})
    cleaner = two.engine._replica_dirs[1].engine._services.cleaner
    log = two.engine.controller.logs(ORDERS)[1]
    assert [log] == cleaner._compacted()
    two.engine.move_replica(ORDERS, "/b")
    assert [] == cleaner._compacted()
    two.engine.cancel_move(ORDERS)
    assert [log] == cleaner._compacted()
    move(two)
    assert 1 == len(two.engine._replica_dirs[2].engine._services.cleaner._compacted())


def test_a_copy_that_is_slowed_down_can_be_cancelled():
    """A move that waits for replica.alter.log.dirs.io.max.bytes.per.second blocks no other call and can be ended."""
    two = Replicated(2, replicas=1, internal_segment_bytes=200_000)
    two.config = two.config._replace(move_rate=1)
    two.reopen()
    two.engine.create_topic("orders")
    for letter in "abc":
        two.append(f"{letter * 100_000}\n")
    two.engine.move_replica(ORDERS, "/b")
    copying = Thread(target=two.engine.catch_up)
    copying.start()
    wait_until(lambda: (two.partition().status().replicas[1].end_offset or 0) > 0, "the copying has begun")
    two.engine.cancel_move(ORDERS)
    copying.join(60)
    assert not copying.is_alive()
    assert {1: "live"} == two.names()


def test_two_threads_that_copy_at_once_copy_each_record_once():
    """A background thread and a command that waits for the move may copy concurrently, but each record only once.

    The replica moves back at once, while its deleted files are still in its old directory.
    """
    two = with_orders(2, replicas=1)
    two.append("a\n")
    for directory in ("/b", "/a") * 10:
        two.engine.move_replica(ORDERS, directory)
        others = [Thread(target=two.engine.catch_up) for _ in range(3)]
        for other in others:
            other.start()
        for other in others:
            other.join()
        assert {2 if directory == "/b" else 1: "live"} == two.names()
        assert ["a"] == two.lines()
    two.reopen()
    assert ["a"] == two.lines()


# Kills and losses of power.


@pytest.mark.parametrize("end", list(End), ids=str)
def test_a_move_that_was_interrupted_continues(end: End):
    """After a kill or a power loss before any disk change no line is missing, and the move is completed."""
    for step in count(step=1 if end is End.KILL else 2):
        two = PoweredReplicas(2, replicas=1, seed=step, internal_segment_bytes=200)
        two.engine.create_topic("orders")
        for number in range(3):
            two.append(f"line {number}\n")
        two.partition().sync()
        lines = two.lines()
        interrupted = two.dies(partial(move, two), step)
        two.lose_power(end)
        two.open()
        assert lines == two.lines(), step
        if two.partition().state.assigned == (1,) and two.partition().state.moving is None:
            two.engine.move_replica(ORDERS, "/b")  # The move was interrupted before it began.
        two.append("more\n")
        two.engine.catch_up()
        assert ((2,), None) == (two.in_sync(), two.partition().state.moving), step
        assert [*lines, "more"] == two.lines(), step
        assert {2: "live"} == two.names(), step
        two.reopen()
        assert [*lines, "more"] == two.lines(), step
        if not interrupted:
            break
    assert step > 30


@pytest.mark.parametrize("end", list(End), ids=str)
def test_a_cancellation_that_was_interrupted_leaves_it_where_it_was_or_moves_it(end: End):
    """After a kill during a cancellation the replica stays or moves, no record is lost, and no copy is left."""
    for step in count():
        two = PoweredReplicas(2, replicas=1, seed=step)
        two.engine.create_topic("orders")
        two.append("a\n")
        two.partition().sync()
        two.engine.move_replica(ORDERS, "/b")
        two.engine._moves._threads[2]._log(ORDERS)
        interrupted = two.dies(partial(two.engine.cancel_move, ORDERS), step)
        two.lose_power(end)
        two.open()
        two.engine.catch_up()
        assert ["a"] == two.lines(), step
        assert {two.partition().state.assigned[0]: "live"} == two.names(), step
        if not interrupted:
            assert (1,) == two.partition().state.assigned
            break
    assert step > 2
