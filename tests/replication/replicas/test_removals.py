"""Tests that removing or moving a replica deletes no records that only this replica has."""

from __future__ import annotations

import pytest

from tests.doubles.replicated import DISKS, ORDERS, Replicated, with_orders
from tests.doubles.several_disks import break_disk
from tests.replication.replicas.test_presence import LINES, filled, remove
from topicfs.storage.errors import RecordsLostError


def differing(disks: int = 2, **settings: object) -> Replicated:
    """Make two in-sync replicas and close them. The leader lacks offsets 30 to 39, the follower lacks 10 to 19."""
    made = with_orders(disks, replicas=2, internal_segment_bytes=1000, index_interval_bytes=200, **settings)
    made.append_each(LINES)
    made.partition().sync()
    made.engine.close()
    remove(made, 1, 3)
    remove(made, 2, 1)
    return made


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_reduction_that_would_remove_the_only_copy_of_records_is_refused(restarts):
    """A reduction that would remove the only copy of records is refused before any change.

    The message names partition, offsets and directory.
    """
    made = differing()
    made.open()
    for _ in range(restarts):
        made.reopen()
    assert (1, (1, 2)) == (made.leader(), made.in_sync())
    before = made.files(1), made.files(2), made.partition().state
    with pytest.raises(RecordsLostError, match="orders-0: only /b has offsets 30 to 39: .* --without /b"):
        made.engine.set_replicas("orders", 1)
    made.engine.catch_up()
    assert before == (made.files(1), made.files(2), made.partition().state)
    made.reopen()
    assert LINES == made.lines()


def test_a_reduction_of_several_partitions_changes_none_if_one_is_refused():
    """A reduction checks all partitions before it changes the first partition."""
    made = Replicated(internal_segment_bytes=1000, index_interval_bytes=200)
    made.engine.create_topic("orders", partitions=2)
    name = ORDERS._replace(partition=1)
    for line in LINES:
        made.append(line + "\n", name)
    made.engine.close()
    for number, which in ((1, 30), (2, 10)):
        made.disk(number).unlink(DISKS[number - 1] / "orders-1" / f"{which:020}.log")
    made.open()
    with pytest.raises(RecordsLostError, match="orders-1"):
        made.engine.set_replicas("orders", 1)
    assert [(1, 2)] * 2 == [tuple(sorted(made.partition(one).state.assigned)) for one in (ORDERS, name)]


@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize(("source", "refused"), [("/a", False), ("/b", True)], ids=["leader", "follower"])
def test_a_follower_with_records_that_the_leader_lacks_is_not_moved(restarts, source, refused):
    """A follower that has records that the leader lacks is not moved, because a move copies the leader's records."""
    made = differing(3)
    made.open()
    if refused:
        before = made.partition().state
        with pytest.raises(RecordsLostError, match="orders-0: only /b has offsets 30 to 39"):
            made.engine.move_replica(ORDERS, "/c", source)
        assert before == made.partition().state
    else:
        made.engine.move_replica(ORDERS, "/c", source)
    for _ in range(restarts):
        made.reopen()
    made.engine.catch_up()
    assert ({1, 2} if refused else {2, 3}) == set(made.names())
    made.reopen()
    assert LINES == made.lines()


def test_a_move_during_which_another_replica_began_to_lead_is_held_up():
    """If another replica begins to lead during a move, the move waits while the new leader lacks some records."""
    made = differing(3)
    made.open()
    made.engine.move_replica(ORDERS, "/c", "/a")
    made.engine.controller.lead(made.partition(), 2)
    made.engine.catch_up()
    assert ({1: "live", 2: "live", 3: "future"}, 2) == (made.names(), made.leader())
    assert "only /a has offsets 10 to 19" in " ".join(made.engine.warnings)
    made.engine.cancel_move(ORDERS)
    made.reopen()
    assert LINES == made.lines()


def test_a_replica_out_of_service_is_removed_only_if_its_directory_is_given_up():
    """A replica in a directory out of service is removed only after a start that leaves out this directory."""
    made = differing()
    made.open()
    break_disk(made.disk(2))
    made.append("more\n")
    with pytest.raises(RecordsLostError, match="only /b may have offsets 30 to 39"):
        made.engine.set_replicas("orders", 1)
    made.disk(2).heal()
    made.open(DISKS[0], left_out=(DISKS[1],))
    made.engine.set_replicas("orders", 1)
    assert ((1,), [*LINES[:30], *LINES[40:], "more"]) == (made.partition().state.assigned, made.lines())


@pytest.mark.parametrize("lost", [(), (3,)], ids=["none", "both"])
def test_a_replica_that_has_nothing_of_its_own_is_removed(lost):
    """A replica whose records all exist elsewhere can be removed.

    This holds even if both replicas have gaps, or if the disk of the removed replica has failed.
    """
    for breaks in (False, True):
        made = filled()
        for number in (1, 2):
            for which in lost:
                remove(made, number, which)
        made.open()
        if breaks and not lost:
            break_disk(made.disk(2))
            made.append("more\n")
        made.engine.set_replicas("orders", 1)
        assert (1,) == made.partition().state.assigned
