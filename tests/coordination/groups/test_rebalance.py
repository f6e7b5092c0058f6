"""Tests of syncs, heartbeats, leaves, timeouts, loading and unloading."""

from __future__ import annotations

import pytest

from tests.doubles.group_coordinator import (
    RANGE,
    REBALANCE_MS,
    ROUND_ROBIN,
    SESSION_MS,
    Coordination,
    G,
)
from topicfs.coordination.groups.requests import Code, RequestError, SyncAnswer
from topicfs.coordination.membership import GroupState
from topicfs.coordination.records.group_records import read_value


def completing(all_: Coordination, count: int) -> list[str]:
    """Bring a group of `count` members to CompletingRebalance in generation 1. The first member leads."""
    answers = [all_.join(version=3) for _ in range(count)]
    while not all(answers):
        all_.advance(0)
    return [one[0].member_id for one in answers]


def test_a_follower_waits_for_the_leaders_assignment(all_):
    """Row 189: A follower's sync is answered with the follower's assignment once the assignments are in the log."""
    leader, follower = completing(all_, 2)
    waiting = all_.sync(follower, 1)
    assert [] == waiting
    mine = all_.sync(leader, 1, {leader: b"l", follower: b"f"})

    assert [SyncAnswer(Code.NONE, b"l", "consumer", "range")] == mine
    assert [SyncAnswer(Code.NONE, b"f", "consumer", "range")] == waiting
    assert [SyncAnswer(Code.NONE, b"f", "consumer", "range")] == all_.sync(follower, 1)
    value = all_.written()[-1][2]
    assert value is not None
    assert ("range", leader, 1) == (value["protocol"], value["leader"], value["generation"])


def test_members_that_the_leader_leaves_out_get_nothing(all_):
    """Members that the leader leaves out get empty bytes, not null."""
    leader, follower = completing(all_, 2)
    waiting = all_.sync(follower, 1)
    all_.sync(leader, 1, {leader: b"l"})
    assert [SyncAnswer(Code.NONE, b"", "consumer", "range")] == waiting


def test_the_record_has_the_time_at_which_the_group_began_to_complete(all_):
    """The group's record has the time of the change to CompletingRebalance, not the later time of the append."""
    (leader,) = completing(all_, 1)
    since = all_.clock.now
    all_.advance(5_000)
    all_.sync(leader, 1, {leader: b"l"})
    value = read_value(2, all_.log[-1][1] or b"")[1]
    assert since == value["currentStateTimestamp"]
    assert all_.clock.now == all_.group.state_since


def test_an_assignment_that_cannot_be_written_is_reported_to_all(all_):
    """Row 190: If the assignments cannot be written, all members get the mapped error.

    The group rebalances, and no member has an assignment.
    """
    leader, follower = completing(all_, 2)
    waiting = all_.sync(follower, 1)
    all_.refuse = Code.NOT_COORDINATOR
    mine = all_.sync(leader, 1, {leader: b"l", follower: b"f"})

    assert [Code.NOT_COORDINATOR] * 2 == [one.code for one in (*mine, *waiting)]
    assert GroupState.PREPARING_REBALANCE is all_.group.state
    assert {b""} == {one.assignment for one in all_.group.members.values()}


def test_a_leader_that_fails_ends_the_waiting_for_it(all_):
    """Row 191: If the leader fails, waiting syncs are answered with an error that makes the members rejoin."""
    leader, follower = completing(all_, 2)
    waiting = all_.sync(follower, 1)
    all_.advance(SESSION_MS)

    assert [Code.REBALANCE_IN_PROGRESS] == [one.code for one in waiting]
    assert ([follower], follower) == (list(all_.group.members), all_.group.leader)
    assert Code.UNKNOWN_MEMBER_ID is all_.sync(leader, 1)[0].code


def test_members_that_do_not_sync_are_removed(all_):
    """Row 192: A member that does not sync is removed after the rebalance timeout.

    Neither heartbeats nor the change of the group to Stable prevent the removal.
    """
    leader, follower = completing(all_, 2)
    all_.sync(leader, 1, {leader: b"l", follower: b"f"})
    assert GroupState.STABLE is all_.group.state
    for _ in range(5):
        all_.advance(REBALANCE_MS // 6)
        assert Code.NONE is all_.heartbeat(leader, 1)
        assert Code.NONE is all_.heartbeat(follower, 1)
    all_.advance(REBALANCE_MS // 6)

    assert (GroupState.PREPARING_REBALANCE, [leader]) == (all_.group.state, list(all_.group.members))


def test_a_silent_member_is_removed_during_a_rebalance(all_):
    """Row 193: The session of a silent member ends, and the join phase ends without this member."""
    first, second = all_.stable(None, None)
    again = all_.join(first)
    all_.advance(SESSION_MS)
    assert [(2, 1)] == [(one.generation, len(one.members)) for one in again]
    assert [first] == list(all_.group.members)
    assert Code.UNKNOWN_MEMBER_ID is all_.heartbeat(second, 2)


def test_ids_that_are_given_back_end_the_waiting_for_them(all_):
    """Row 194: When the clients with pending ids leave, the members that joined are answered."""
    (old,) = all_.stable()
    pending = [all_.join()[0].member_id for _ in range(2)]
    again = all_.join(old)
    assert [Code.NONE] == all_.leave(pending[0])
    assert [] == again
    assert [Code.NONE] == all_.leave(pending[1])
    assert [2] == [one.generation for one in again]


def test_a_group_that_is_too_large_when_it_is_loaded_rebalances():
    """Row 195: A loaded group that is too large rebalances.

    Its members may commit and must rejoin. The members that rejoin last are refused.
    """
    before = Coordination()
    before.stable(None, None)
    after = Coordination(max_size=1)
    after.coordinator.replay(G, read_value(2, before.log[-1][1] or b"")[1])
    assert [] == after.coordinator.loaded()
    assert (GroupState.PREPARING_REBALANCE, 2) == (after.group.state, len(after.group.members))


def test_waiting_syncs_are_answered_when_the_group_is_no_longer_served(all_):
    """Row 196: When the group is unloaded, waiting joins and syncs get NOT_COORDINATOR, and the group is Dead."""
    _, follower = completing(all_, 2)
    syncs = all_.sync(follower, 1)
    group = all_.group
    joins = all_.join(follower, protocols=(RANGE, ROUND_ROBIN))
    later = Coordination()
    _, other = completing(later, 2)
    waiting = later.sync(other, 1)
    all_.coordinator.unload()
    later.coordinator.unload()

    assert [Code.REBALANCE_IN_PROGRESS] == [one.code for one in syncs]
    assert [Code.NOT_COORDINATOR] == [one.code for one in joins]
    assert [Code.NOT_COORDINATOR] == [one.code for one in waiting]
    assert GroupState.DEAD is group.state
    assert all_.coordinator.timers.next_due() is None


def test_members_that_are_loaded_are_alive_until_their_sessions_end():
    """A loaded group with members is Stable, and the members have their assignments.

    A loaded group without members is Empty.
    """
    before = Coordination()
    leader, follower = before.stable(None, None)
    after = Coordination()
    after.coordinator.replay(G, read_value(2, before.log[-1][1] or b"")[1])
    after.coordinator.loaded()

    assert (GroupState.STABLE, 1, leader) == (after.group.state, after.group.generation, after.group.leader)
    assert [SyncAnswer(Code.NONE, follower.encode(), "consumer", "range")] == after.sync(follower, 1)
    assert Code.NONE is after.heartbeat(leader, 1)
    after.advance(SESSION_MS)
    assert {} == after.group.members


def test_syncs_are_checked_in_kafkas_order(all_):
    """Syncs are checked in this order: member, generation, protocol, state."""
    assert Code.UNKNOWN_MEMBER_ID is all_.sync("m", 1)[0].code
    first, second = all_.stable(None, None)
    codes = [
        all_.sync("m", 7)[0].code,
        all_.sync(first, 7, protocol="roundrobin")[0].code,
        all_.sync(first, 1, protocol="roundrobin")[0].code,
        all_.sync(first, 1, protocol_type="connect")[0].code,
        all_.sync(first, 1, protocol="range", protocol_type="consumer")[0].code,
    ]
    assert [
        Code.UNKNOWN_MEMBER_ID,
        Code.ILLEGAL_GENERATION,
        Code.INCONSISTENT_GROUP_PROTOCOL,
        Code.INCONSISTENT_GROUP_PROTOCOL,
        Code.NONE,
    ] == codes
    all_.join(first)
    assert Code.REBALANCE_IN_PROGRESS is all_.sync(second, 1)[0].code


def test_the_last_that_leaves_leaves_an_empty_group(all_):
    """If the last members leave together, one record is written: an empty group with the next generation."""
    ids = all_.stable(None, None, None)
    written = len(all_.log)
    assert [Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.NONE, Code.NONE] == all_.leave(ids[0], "x", *ids[1:])
    assert (GroupState.EMPTY, 2) == (all_.group.state, all_.group.generation)
    assert 1 == len(all_.log) - written


def test_a_group_without_members_is_deleted_and_one_with_members_is_not(all_):
    """A group's state decides whether it can be deleted. Deleting an unknown group fails with GROUP_ID_NOT_FOUND."""
    with pytest.raises(RequestError, match="GROUP_ID_NOT_FOUND"):
        all_.coordinator.check_deletable(G)
    all_.stable()
    with pytest.raises(RequestError, match="NON_EMPTY_GROUP"):
        all_.coordinator.check_deletable(G)

    all_ = Coordination()
    all_.call(lambda reply: all_.coordinator.create(G, reply))
    assert all_.group is all_.coordinator.check_deletable(G)
    all_.coordinator.deleted(G)
    assert {} == all_.coordinator.groups


def test_removing_all_members_empties_a_group_in_any_state():
    """Removing all members of a group writes one record, whatever the group's state is.

    The coordinator does not wait for members that have not joined yet.
    """
    for bring in (
        lambda all_: all_.join(version=3),
        lambda all_: completing(all_, 2),
        lambda all_: all_.stable(None, None),
        lambda all_: all_.join(all_.stable(None, None)[0]),
        lambda all_: (all_.stable(), all_.join()),
    ):
        all_ = Coordination()
        bring(all_)
        writes = all_.coordinator.remove_all([G], "the end")
        for write in writes:
            all_.append(write)
        assert 1 == len(writes)
        assert (GroupState.EMPTY, {}, set()) == (all_.group.state, all_.group.members, all_.group.pending)


def test_a_join_that_is_sent_again_ends_the_wait_of_the_first(all_):
    """If a client repeats a join on a new connection, the first request is answered with an error."""
    leader, follower = all_.stable(None, None)
    first = all_.join(follower, protocols=(RANGE, ROUND_ROBIN))
    again = all_.join(follower, protocols=(RANGE, ROUND_ROBIN))
    assert [Code.REBALANCE_IN_PROGRESS] == [one.code for one in first]
    all_.join(leader)
    assert [(Code.NONE, 2)] == [(one.code, one.generation) for one in again]


def test_a_sync_that_is_sent_again_ends_the_wait_of_the_first(all_):
    """If a client repeats a sync, the first sync is answered with an error: its connection may have been lost."""
    leader, follower = completing(all_, 2)
    first, again = all_.sync(follower, 1), all_.sync(follower, 1)
    assert [Code.REBALANCE_IN_PROGRESS] == [one.code for one in first]
    all_.sync(leader, 1, {follower: b"f"})
    assert [(Code.NONE, b"f")] == [(one.code, one.assignment) for one in again]
