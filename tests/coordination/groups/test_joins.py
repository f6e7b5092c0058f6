"""Tests of how members join: order of checks, member ids, group size and delays."""

from __future__ import annotations

from tests.doubles.group_coordinator import (
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    ROUND_ROBIN,
    SESSION_MS,
    Coordination,
    G,
)
from topicfs.coordination.groups.requests import Code
from topicfs.coordination.membership import GroupState

NEW_MEMBER_MS = 5 * 60 * 1000


def test_the_first_join_writes_the_empty_group(all_):
    """Row 170: The empty group is written immediately, before its first member has an id."""
    (answer,) = all_.join()

    assert Code.MEMBER_ID_REQUIRED is answer.code
    assert [
        (
            2,
            {"group": G},
            {
                "protocolType": "",
                "generation": 0,
                "protocol": None,
                "leader": None,
                "currentStateTimestamp": all_.clock.now,
                "members": [],
            },
        )
    ] == all_.written()


def test_a_group_that_cannot_be_written_does_not_exist(all_):
    """If the group cannot be written, the join fails with the mapped error, and the group does not exist."""
    all_.refuse = Code.NOT_COORDINATOR

    assert [Code.NOT_COORDINATOR] == [one.code for one in all_.join(version=3)]
    assert {} == all_.coordinator.groups
    assert all_.coordinator.timers.next_due() is None


def test_joins_are_checked_in_kafkas_order(all_):
    """Joins are checked in this order: group id, session timeout, member id in an unknown group, protocols."""
    codes = [
        all_.join("m", group="", session_timeout_ms=1)[0].code,
        all_.join("m", session_timeout_ms=5_999)[0].code,
        all_.join("m", session_timeout_ms=1_800_001)[0].code,
        all_.join("m")[0].code,
        all_.join(protocols=())[0].code,
        all_.join(protocol_type="")[0].code,
    ]
    assert [
        Code.INVALID_GROUP_ID,
        Code.INVALID_SESSION_TIMEOUT,
        Code.INVALID_SESSION_TIMEOUT,
        Code.UNKNOWN_MEMBER_ID,
        Code.INCONSISTENT_GROUP_PROTOCOL,
        Code.INCONSISTENT_GROUP_PROTOCOL,
    ] == codes
    all_.stable()
    assert Code.INCONSISTENT_GROUP_PROTOCOL is all_.join(protocols=(ROUND_ROBIN,))[0].code
    assert Code.INCONSISTENT_GROUP_PROTOCOL is all_.join(protocol_type="connect")[0].code
    assert Code.UNKNOWN_MEMBER_ID is all_.join("nobody")[0].code


def test_ids_that_are_given_out_do_not_count_as_members():
    """Row 171: In a group of at most ten members eleven clients may get an id. Ten of them can join."""
    all_ = Coordination(delay_ms=DELAY_MS, max_size=10)
    ids = [all_.join()[0].member_id for _ in range(11)]
    assert 11 == len(set(ids))

    answers = [all_.join(one) for one in ids]
    all_.advance(2 * DELAY_MS)

    assert [Code.NONE] * 10 + [Code.GROUP_MAX_SIZE_REACHED] == [one[0].code for one in answers]
    assert 10 == len(all_.group.members)


def test_members_that_wait_may_join_again_whatever_the_size():
    """Row 172: A waiting member is counted in the group's size and may join again. A new member is refused."""
    all_ = Coordination(max_size=2)
    ids = all_.stable(None, None)
    all_.join(ids[0], protocols=(RANGE, ROUND_ROBIN))
    all_.join(ids[1], protocols=(RANGE, ROUND_ROBIN))
    assert GroupState.COMPLETING_REBALANCE is all_.group.state

    all_.join(ids[0])
    assert GroupState.PREPARING_REBALANCE is all_.group.state
    assert [] == all_.join(ids[0])
    assert Code.NONE is all_.join(ids[1])[0].code
    assert Code.GROUP_MAX_SIZE_REACHED is all_.join(version=3)[0].code


def test_an_empty_group_waits_the_initial_delay():
    """Row 173: The first join of an empty group is answered after the whole initial delay."""
    all_ = Coordination(delay_ms=DELAY_MS)
    answer = all_.join(version=3)
    all_.advance(DELAY_MS // 2)
    assert [] == answer
    all_.advance(DELAY_MS // 2)
    assert [(Code.NONE, 1)] == [(one.code, one.generation) for one in answer]


def test_a_join_during_the_delay_adds_another_delay():
    """Row 174: A join during the initial delay adds one more delay, which begins when the first delay ends."""
    all_ = Coordination(delay_ms=DELAY_MS)
    first = all_.join(version=3)
    all_.advance(DELAY_MS - 1)
    second = all_.join(version=3)
    all_.advance(DELAY_MS)
    assert ([], []) == (first, second)
    all_.advance(1)
    assert [1, 1] == [one[0].generation for one in (first, second)]
    assert [2, 0] == [len(one[0].members) for one in (first, second)]


def test_all_delays_together_take_the_rebalance_timeout():
    """Row 175: All delays together take at most the rebalance timeout, however many members join.

    Here the rebalance timeout is as long as two delays.
    """
    all_ = Coordination(delay_ms=DELAY_MS)
    answers = [all_.join(version=3, rebalance_timeout_ms=2 * DELAY_MS)]
    for _ in range(2):
        all_.advance(DELAY_MS - 1)
        answers.append(all_.join(version=3, rebalance_timeout_ms=2 * DELAY_MS))
    assert [[], [], []] == answers
    all_.advance(2)
    assert [1, 1, 1] == [one[0].generation for one in answers]


def test_a_new_member_that_waits_too_long_is_dropped(all_):
    """Row 176: A new member that waits is dropped after five minutes, because it cannot send heartbeats."""
    (old,) = all_.stable()
    new = all_.join(version=3, rebalance_timeout_ms=2 * NEW_MEMBER_MS, session_timeout_ms=6_000)
    for _ in range(NEW_MEMBER_MS // 5_000 - 1):
        all_.advance(5_000)
        assert Code.REBALANCE_IN_PROGRESS is all_.heartbeat(old, 1)
    assert [] == new
    all_.advance(5_000)

    assert [Code.UNKNOWN_MEMBER_ID] == [one.code for one in new]
    assert [old] == list(all_.group.members)


def test_after_its_join_a_new_member_goes_by_its_session_timeout():
    """Row 177: If the new member sends neither a sync nor a heartbeat, the new member's session ends.

    The coordinator then writes the empty group with generation 2.
    """
    all_ = Coordination(delay_ms=DELAY_MS)
    answer = all_.join(version=3)
    all_.advance(DELAY_MS + SESSION_MS)

    assert 1 == answer[0].generation
    assert (GroupState.EMPTY, 2, {}) == (all_.group.state, all_.group.generation, all_.group.members)
    value = all_.written()[-1][2]
    assert value is not None
    assert (2, "consumer", None, None, []) == tuple(
        value[name] for name in ("generation", "protocolType", "protocol", "leader", "members")
    )


def test_an_id_that_is_not_used_expires(all_):
    """Row 178: An id that no client uses within the session timeout expires. A later join with this id is refused."""
    (answer,) = all_.join()
    assert {answer.member_id} == all_.group.pending
    all_.advance(SESSION_MS)
    assert set() == all_.group.pending
    assert Code.UNKNOWN_MEMBER_ID is all_.join(answer.member_id)[0].code


def test_an_id_that_is_given_out_holds_up_the_join_phase(all_):
    """Row 179: Members that joined wait for a client with an unused id, and are answered when this id expires."""
    (old,) = all_.stable()
    all_.join()
    again = all_.join(old)
    assert [] == again
    all_.advance(SESSION_MS)
    assert [(Code.NONE, 2)] == [(one.code, one.generation) for one in again]


def test_a_follower_that_joins_again_unchanged_gets_the_same_answer(all_):
    """Row 180: A follower that joins a Stable group again without a change gets the same answer as before.

    If the leader joins again, the group rebalances, because the leader may assign the partitions differently.
    """
    leader, follower = all_.stable(None, None)
    (answer,) = all_.join(follower)
    assert (Code.NONE, 1, leader, ()) == (answer.code, answer.generation, answer.leader, answer.members)
    assert GroupState.STABLE is all_.group.state

    assert [] == all_.join(leader)
    assert GroupState.PREPARING_REBALANCE is all_.group.state


def test_while_completing_the_same_join_is_answered_again(all_):
    """While the group completes, the leader's repeated join gets the list of members again.

    A join with changed metadata starts a rebalance.
    """
    leader, follower = all_.stable(None, None)
    all_.join(leader)
    all_.join(follower)
    assert GroupState.COMPLETING_REBALANCE is all_.group.state
    assert [(2, 2), (2, 0)] == [
        (one.generation, len(one.members)) for member in (leader, follower) for one in all_.join(member)
    ]
    assert [] == all_.join(follower, protocols=(RANGE, ROUND_ROBIN))
    assert GroupState.PREPARING_REBALANCE is all_.group.state


def test_a_member_that_comes_too_late_is_of_an_old_generation(all_):
    """Row 188: A member that does not rejoin in time is removed, and its requests get UNKNOWN_MEMBER_ID.

    A request of a present member with an old generation gets ILLEGAL_GENERATION.
    """
    first, second = all_.stable(None, None)
    all_.join(first)
    for _ in range(4):
        all_.advance(REBALANCE_MS // 5)
        assert Code.REBALANCE_IN_PROGRESS is all_.heartbeat(second, 1)
    all_.advance(REBALANCE_MS // 5)

    assert (2, [first]) == (all_.group.generation, list(all_.group.members))
    assert Code.UNKNOWN_MEMBER_ID is all_.heartbeat(second, 1)
    assert Code.ILLEGAL_GENERATION is all_.heartbeat(first, 1)


def test_members_of_this_process_get_the_id_they_propose_and_have_no_session(all_):
    """Members of this process need no session timer, because the process itself knows when they end."""
    answer = all_.join(heartbeats=False, proposed_id="cat-1")
    all_.advance(0)
    assert ["cat-1"] == [one.member_id for one in answer]
    all_.sync("cat-1", 1, {"cat-1": b"x"})
    all_.advance(10 * NEW_MEMBER_MS)
    assert ["cat-1"] == list(all_.group.members)
