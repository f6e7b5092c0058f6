"""Tests of static members that come back under a new id and keep their place in the group."""

from __future__ import annotations

import pytest

from tests.doubles.group_coordinator import RANGE, REBALANCE_MS, ROUND_ROBIN, SESSION_MS, Coordination
from topicfs.coordination.groups.requests import Code, LeavingMember
from topicfs.coordination.membership import GroupState


def test_a_static_member_that_comes_back_disturbs_nobody(all_):
    """Row 181: If the chosen assignor stays the same, a static member that comes back causes no rebalance.

    The member gets a new id, and the group's record then has this id.
    """
    leader, follower = all_.stable("one", "two")
    written = len(all_.log)
    (answer,) = all_.join(instance_id="two")

    assert (Code.NONE, 1, leader) == (answer.code, answer.generation, answer.leader)
    assert follower != answer.member_id
    assert GroupState.STABLE is all_.group.state
    ((_, _, value),) = all_.written()[written:]
    assert value is not None
    assert {("one", leader), ("two", answer.member_id)} == {
        (one["groupInstanceId"], one["memberId"])
        for one in value["members"]  # type: ignore[attr-defined]
    }
    assert Code.FENCED_INSTANCE_ID is all_.coordinator.heartbeat("group", follower, 1, "two")
    assert follower.encode() == all_.sync(answer.member_id, 1)[0].assignment


def test_a_replacement_that_cannot_be_written_is_undone(all_):
    """Row 182: If a static member's new id cannot be written, the new id gets an error.

    The old id is the member again, with its own protocols.
    """
    leader, follower = all_.stable("one", "two")
    all_.refuse = Code.NOT_COORDINATOR
    (answer,) = all_.join(instance_id="two", protocols=(RANGE, ROUND_ROBIN), rebalance_timeout_ms=1)

    assert Code.NOT_COORDINATOR is answer.code
    assert {"one": leader, "two": follower} == all_.group.static
    member = all_.group.members[follower]
    assert ((RANGE,), REBALANCE_MS, follower) == (
        member.protocols,
        member.rebalance_timeout_ms,
        member.member_id,
    )
    assert Code.NONE is all_.heartbeat(follower, 1)


def test_a_static_leader_that_comes_back_need_not_assign(all_):
    """Row 183: A static leader that comes back gets the list of all members and a flag to skip the assignment.

    An older client gets no list, and its answer names the member's former id as leader.
    """
    leader, _ = all_.stable("one", "two")
    (answer,) = all_.join(instance_id="one")
    assert (True, 2, answer.member_id) == (answer.skip_assignment, len(answer.members), answer.leader)
    assert answer.member_id == all_.group.leader != leader

    (older,) = all_.join(instance_id="one", version=8)
    assert (False, 0, answer.member_id) == (older.skip_assignment, len(older.members), older.leader)


def test_a_duplicate_that_waits_is_fenced(all_):
    """Row 184: The waiting join of the old id gets FENCED_INSTANCE_ID as soon as a new id takes over the instance."""
    leader, follower = all_.stable("one", "two")
    waiting = all_.join(follower, instance_id="two", protocols=(RANGE, ROUND_ROBIN))
    assert [] == waiting
    new = all_.join(instance_id="two")

    assert [Code.FENCED_INSTANCE_ID] == [one.code for one in waiting]
    assert [] == new
    all_.join(leader, instance_id="one")
    assert [(Code.NONE, 2)] == [(one.code, one.generation) for one in new]


def test_a_duplicate_that_waits_for_its_assignment_is_fenced(all_):
    """The waiting sync of the old id gets FENCED_INSTANCE_ID, and the new id joins in its place."""
    leader, follower = all_.stable("one", "two")
    all_.join(follower, instance_id="two", protocols=(RANGE, ROUND_ROBIN))
    all_.join(leader, instance_id="one")
    waiting = all_.sync(follower, 2, instance_id="two")
    all_.join(instance_id="two", protocols=(RANGE, ROUND_ROBIN))

    assert [Code.FENCED_INSTANCE_ID] == [one.code for one in waiting]
    assert GroupState.PREPARING_REBALANCE is all_.group.state


LONG = {"session_timeout_ms": 10 * REBALANCE_MS}


def live_long(all_: Coordination) -> None:
    """Give every present member a session that does not end during the test."""
    for one in all_.group.members.values():
        one.session_timeout_ms = LONG["session_timeout_ms"]
        all_.coordinator.phases.keep_alive(all_.group, one)


def test_an_absent_static_follower_stays_a_member(all_):
    """Row 185: The rebalance timeout ends the join phase without the absent follower, which stays a member."""
    leader, follower = all_.stable("one", "two")
    live_long(all_)
    again = all_.join(leader, instance_id="one", **LONG)
    all_.advance(REBALANCE_MS - 1)
    assert [] == again
    all_.advance(1)

    assert [(2, leader)] == [(one.generation, one.leader) for one in again]
    assert {leader, follower} == set(all_.group.members)


def test_an_absent_static_leader_stays_a_member_and_leads_no_longer(all_):
    """Row 186: If the leader is absent, the first member that joined leads instead."""
    leader, follower = all_.stable("one", "two")
    live_long(all_)
    again = all_.join(follower, instance_id="two", protocols=(RANGE, ROUND_ROBIN), **LONG)
    all_.advance(REBALANCE_MS)

    assert [(2, follower, 2)] == [(one.generation, one.leader, len(one.members)) for one in again]
    assert {leader, follower} == set(all_.group.members)


def test_a_group_of_absent_static_members_keeps_waiting(all_):
    """Row 187: If all static members are absent, the rebalance timer starts again, and no member is removed.

    The group keeps its generation until the members join.
    """
    ids = all_.stable("one", "two")
    live_long(all_)
    (passing,) = all_.join()
    all_.join(passing.member_id)
    assert GroupState.PREPARING_REBALANCE is all_.group.state
    assert [Code.NONE] == all_.leave(passing.member_id)
    for _ in range(3):
        all_.advance(REBALANCE_MS)
        assert (GroupState.PREPARING_REBALANCE, 1) == (all_.group.state, all_.group.generation)

    assert set(ids) == set(all_.group.members)
    again = [all_.join(one, instance_id=name) for one, name in zip(ids, ("one", "two"), strict=True)]
    assert [2, 2] == [one[0].generation for one in again]


def test_static_members_are_removed_by_their_instance(all_):
    """An administrator removes a static member by its instance id alone, because the member id is unknown."""
    leader, follower = all_.stable("one", "two")
    assert [Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.UNKNOWN_MEMBER_ID] == all_.leave(
        LeavingMember(instance_id="two"), LeavingMember(instance_id="three"), LeavingMember()
    )
    assert [leader] == list(all_.group.members)
    assert [Code.FENCED_INSTANCE_ID] == all_.leave(LeavingMember(follower, "one"))


def test_another_assignor_chosen_by_the_one_that_comes_back_is_a_rebalance(all_):
    """If a returning member changes the chosen assignor, the group rebalances to get an assignment of this assignor."""
    (only,) = [all_.join(version=3, instance_id="one", protocols=(RANGE, ROUND_ROBIN))]
    all_.advance(0)
    all_.sync_all(only)
    assert [(2, "roundrobin")] == [
        (one.generation, one.protocol) for one in all_.join(instance_id="one", protocols=(ROUND_ROBIN, RANGE))
    ]
    assert SESSION_MS == all_.group.members[all_.group.leader or ""].session_timeout_ms


@pytest.mark.parametrize("timeout", [1, 0, -(2**31)])
def test_a_join_phase_in_which_nobody_joins_is_not_repeated_at_once(all_: Coordination, timeout: int) -> None:
    """If nobody joins in a join phase, the coordinator waits before it begins the next join phase.

    This holds even if the rebalance timeout is very short.
    """
    all_.stable("one", "two", "three")
    for one in ("one", "two"):
        all_.join(instance_id=one, rebalance_timeout_ms=timeout)
    all_.leave(LeavingMember(instance_id="three"))

    timers = all_.coordinator.timers
    begin = timers.take_due(max(all_.clock(), timers.next_due() or 0))
    assert begin is not None
    all_.append(begin())
    assert GroupState.PREPARING_REBALANCE is all_.group.state
    due = timers.next_due()
    assert due is not None
    assert due >= all_.clock() + 1000


def test_a_pending_id_is_not_that_of_a_static_member(all_):
    """A join with a pending id and an instance id is refused, and the instance keeps its member."""
    leader, follower = all_.stable("one", "two")
    (pending,) = all_.join()
    (answer,) = all_.join(pending.member_id, instance_id="two")
    assert Code.UNKNOWN_SERVER_ERROR is answer.code
    assert {"one": leader, "two": follower} == all_.group.static
    assert {pending.member_id} == all_.group.pending
