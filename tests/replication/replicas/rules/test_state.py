"""Tests of the rules for the in-sync replicas, the leader and the high watermark."""

from __future__ import annotations

import pytest

from topicfs.replication.replicas.rules.state import (
    LogEnd,
    ReplicaId,
    ReplicaState,
    elect,
    elect_unclean,
    high_watermark,
    joined,
    new_state,
    reassigned,
    without_replicas,
)
from topicfs.replication.replicas.topics import place
from topicfs.storage.model import Offset

ONE, TWO, THREE = ReplicaId(1), ReplicaId(2), ReplicaId(3)
ALL = (ONE, TWO, THREE)


def ends(**found: tuple[int, int]) -> dict[ReplicaId, LogEnd]:
    """Return log ends from arguments like `n1=(epoch, end)`."""
    return {ReplicaId(int(name[1:])): LogEnd(epoch, Offset(end)) for name, (epoch, end) in found.items()}


def test_a_new_partition_has_all_in_sync_and_the_first_leads():
    """In a new partition all replicas are in sync and the first one leads; epoch and version are 0."""
    assert ReplicaState(ALL, ALL, ONE, 0, 0) == new_state(ALL)


def test_a_lost_follower_leaves_the_replicas_in_sync():
    """If a follower is lost, the leader and its epoch stay, and the state gets a new version."""
    state = without_replicas(new_state(ALL), {TWO}, ends(n1=(0, 5), n3=(0, 5)))
    assert ReplicaState(ALL, (ONE, THREE), ONE, 0, 1) == state


def test_a_lost_leader_is_replaced_by_the_first_assigned_that_has_most():
    """If the leader is lost, the replica with most records leads in a new epoch; among equals, the first assigned."""
    state = without_replicas(new_state(ALL), {ONE}, ends(n2=(0, 5), n3=(0, 5)))
    assert (TWO, 1, (TWO, THREE)) == (state.leader, state.leader_epoch, state.in_sync)
    state = without_replicas(new_state(ALL), {ONE}, ends(n2=(0, 4), n3=(0, 5)))
    assert THREE == state.leader


def test_a_later_epoch_is_more_than_a_longer_log():
    """Records of a later epoch are newer than all records of earlier epochs, even if the other log is longer."""
    state = elect(new_state(ALL), ends(n1=(0, 9), n2=(1, 5)))
    assert (TWO, 2) == (state.leader, state.leader_epoch)


def test_the_last_in_sync_stay_so():
    """If all replicas fail, there is no leader, and the next leader must be one of the last replicas in sync."""
    state = without_replicas(new_state((ONE, TWO)), {TWO}, ends(n1=(0, 5)))
    state = without_replicas(state, {ONE}, {})
    assert (None, (ONE,)) == (state.leader, state.in_sync)
    assert None is elect(state, ends(n2=(0, 5))).leader
    assert ONE == elect(state, ends(n1=(0, 5), n2=(0, 5))).leader


def test_an_unclean_election_makes_the_leader_the_only_one_in_sync():
    """After an unclean election only the leader is in sync; its epoch is higher than every epoch in any log."""
    state = elect_unclean(new_state(ALL), ends(n3=(7, 2)), THREE)
    assert ((THREE,), THREE, 8) == (state.in_sync, state.leader, state.leader_epoch)


def test_the_preferred_leader_of_equals_leads():
    """If no replica has more records than the present leader, that leader stays."""
    assert TWO == elect(new_state(ALL), ends(n1=(0, 5), n2=(0, 5)), prefer=TWO).leader
    assert ONE == elect(new_state(ALL), ends(n1=(0, 6), n2=(0, 5)), prefer=TWO).leader


def test_replicas_in_sync_are_in_the_order_of_the_assignment():
    """The in-sync replicas are ordered as they are assigned, not as they join."""
    state = ReplicaState(ALL, (THREE,), THREE)
    assert ALL == joined(joined(state, TWO), ONE).in_sync


def test_a_leader_that_is_assigned_no_more_is_none():
    """If the leader is no longer assigned, no replica leads, and the caller elects one of the remaining replicas."""
    state = reassigned(new_state(ALL), (TWO, THREE))
    assert ((TWO, THREE), None) == (state.in_sync, state.leader)


def test_somebody_is_always_in_sync():
    """A state without in-sync replicas is refused, and so is a state whose leader is not in sync."""
    with pytest.raises(ValueError, match="in sync"):
        ReplicaState(ALL, (), None)
    with pytest.raises(ValueError, match="not in sync"):
        ReplicaState(ALL, (TWO,), ONE)


def test_the_high_watermark_is_the_least_end_and_never_falls():
    """The high watermark does not move while too few replicas are in sync.

    If fewer replicas than min.insync.replicas are assigned, it is enough that all assigned replicas are in sync.
    """
    two = [Offset(7), Offset(5)]
    assert 5 == high_watermark(Offset(3), two, min_in_sync=1, assigned=2)
    assert 6 == high_watermark(Offset(6), two, min_in_sync=1, assigned=2)
    assert 3 == high_watermark(Offset(3), [Offset(7)], min_in_sync=2, assigned=2)
    assert 7 == high_watermark(Offset(3), [Offset(7)], min_in_sync=2, assigned=1)


def test_replicas_and_leaders_are_spread_evenly():
    """Each directory gets the same number of replicas, and leads the same number of partitions."""
    taken: list[ReplicaState] = []
    for _ in range(6):
        taken.append(new_state(place(ALL, taken, 2)))
    assert [4, 4, 4] == [sum(one in state.assigned for state in taken) for one in ALL]
    assert [2, 2, 2] == [sum(state.leader == one for state in taken) for one in ALL]
