"""Tests of positions: commits, transactions, fetches, deletion and expiry."""

from __future__ import annotations

import uuid

import pytest

from tests.doubles.group_coordinator import RANGE, T0, Coordination, G
from topicfs.coordination.groups.group import Group
from topicfs.coordination.groups.offsets import check_commit
from topicfs.coordination.groups.requests import Code, OffsetCommitRequest, RequestError
from topicfs.coordination.membership import GroupState, Position
from topicfs.storage.model import ProducerId, Timestamp, TopicPartition

T1 = TopicPartition("t", 1)
PID = ProducerId(7)
HOUR = 3_600_000


def offset(all_: Coordination, partition: TopicPartition = T0) -> int | None:
    found = all_.fetch(partition)
    return None if found is None else found.position.offset


def test_a_position_without_a_generation_creates_the_group(all_):
    """Row 202: A commit without a generation creates the group in memory only; no group record is written."""
    assert Code.NONE is all_.commit(42)
    assert (GroupState.EMPTY, None) == (all_.group.state, all_.group.protocol_type)
    assert [1] == [kind for kind, _, _ in all_.written()]
    assert 42 == offset(all_)


def test_a_position_with_a_generation_needs_the_group(all_):
    """A commit with a generation fails if the group is unknown.

    The error is GROUP_ID_NOT_FOUND. Requests before version 9 get ILLEGAL_GENERATION.
    """
    assert Code.GROUP_ID_NOT_FOUND is all_.commit(member_id="m", generation=1)
    assert Code.ILLEGAL_GENERATION is all_.commit(member_id="m", generation=1, version=8)
    assert {} == all_.coordinator.groups


def test_no_position_is_committed_while_the_group_completes(all_):
    """Row 203: A commit in state CompletingRebalance makes the member rejoin. Commits before this state succeed."""
    leader, follower = all_.stable(None, None)
    assert Code.NONE is all_.commit(1, member_id=follower, generation=1)
    all_.join(leader)
    assert Code.NONE is all_.commit(2, member_id=follower, generation=1)
    all_.join(follower)
    assert Code.REBALANCE_IN_PROGRESS is all_.commit(3, member_id=follower, generation=2)
    assert 2 == offset(all_)


def test_a_commits_retention_is_written_as_an_expiry(all_):
    """Row 204: A commit with a retention is written as record version 1, because only this version has an expiry."""
    all_.commit(42, retention_ms=1_000)
    value = all_.written()[-1][2]
    assert value is not None
    assert (all_.clock.now, all_.clock.now + 1_000) == (value["commitTimestamp"], value["expireTimestamp"])
    assert b"\x00\x01" == (all_.log[-1][1] or b"")[:2]


def test_records_have_kafkas_bytes():
    """A record of version 4 has the topic's id in tag 0. Without an id, or in a transaction, a record has no tag."""
    topic_id = uuid.UUID(bytes=bytes(range(1, 17)))
    all_ = Coordination()
    all_.clock.now = 1_700_000_000_000
    all_.topics[T0] = topic_id
    all_.commit(positions={T0: Position(42, "m", 5)})
    all_.commit(positions={T0: Position(42)}, producer_id=PID)
    assert [
        "0004000000000000002a00000005026d0000018bcfe568000100100102030405060708090a0b0c0d0e0f10",
        "0004000000000000002affffffff010000018bcfe5680000",
    ] == [(value or b"").hex() for _, value in all_.log]
    assert {"0001000567726f757000017400000000"} == {key.hex() for key, _ in all_.log}


def test_each_partition_is_judged_for_itself(all_):
    """A position is refused if its partition is unknown or its metadata are too long; other positions are committed."""
    unknown, long = TopicPartition("nothing", 0), TopicPartition("t", 3)
    answer = all_.commit(
        positions={
            unknown: Position(1),
            long: Position(1, "é" * 4_097),
            T1: Position(1, "é" * 4_096),
        }
    )
    assert {
        unknown: Code.UNKNOWN_TOPIC_OR_PARTITION,
        long: Code.OFFSET_METADATA_TOO_LARGE,
        T1: Code.NONE,
    } == answer
    assert [T1] == list(all_.offsets.committed(G))
    surrogates = all_.commit(positions={T0: Position(1, "😀" * 2_049)})
    assert {T0: Code.OFFSET_METADATA_TOO_LARGE} == surrogates


def test_a_pending_position_is_unstable_only_for_stable_requests(all_):
    """Row 205: Requests without require_stable get the committed position even while another position is pending."""
    all_.commit(42)
    all_.commit(50, producer_id=PID)
    assert 42 == offset(all_)
    with pytest.raises(RequestError, match="UNSTABLE_OFFSET_COMMIT"):
        all_.fetch(stable=True)
    assert all_.fetch(T1, stable=True) is None
    all_.offsets.end_transaction(PID, committed=True)
    assert 50 == offset(all_)


def test_a_position_is_seen_when_it_is_in_the_log(all_):
    """Row 206: A position is visible once it is in the log. A failed write leaves no position."""
    all_.commit(42)
    write = all_.offsets.commit(
        all_.group, OffsetCommitRequest(group=G, positions={T0: Position(50)}), all_.clock(), lambda _: None
    )
    assert 42 == offset(all_)
    all_.append(write)
    assert 50 == offset(all_)
    all_.refuse = Code.NOT_COORDINATOR
    assert Code.NOT_COORDINATOR is all_.commit(60)
    assert 50 == offset(all_)


def test_a_position_in_a_former_topic_of_the_name_does_not_count(all_):
    """Row 207: Topic ids are compared, so a former topic's position does not count. A position without an id counts."""
    all_.topics[T0] = uuid.UUID(int=1)
    all_.commit(42)
    assert 42 == offset(all_)
    all_.topics[T0] = uuid.UUID(int=2)
    assert offset(all_) is None
    all_.topics[T1] = uuid.UUID(int=0)
    all_.commit(positions={T1: Position(7)})
    all_.topics[T1] = uuid.UUID(int=3)
    assert 7 == offset(all_, T1)


def test_a_newer_position_holds_against_a_transaction_that_ends(all_):
    """Row 208: The position with the larger record offset counts, in whatever order transactions end."""
    all_.commit(100, producer_id=PID)
    all_.commit(101)
    all_.offsets.end_transaction(PID, committed=True)
    assert 101 == offset(all_)

    all_.commit(102, producer_id=PID)
    all_.offsets.end_transaction(PID, committed=False)
    assert 101 == offset(all_)
    all_.commit(103, producer_id=PID)
    all_.offsets.end_transaction(PID, committed=True)
    assert 103 == offset(all_)


def test_a_tombstone_takes_pending_positions_too(all_):
    """Row 209: A tombstone also deletes pending positions, so that the end of their transaction restores none."""
    all_.commit(100, producer_id=PID)
    all_.commit(99)
    all_.offsets.forget(G, T0)
    all_.offsets.end_transaction(PID, committed=True)
    assert offset(all_) is None


def test_positions_in_topics_that_are_read_are_not_deleted(all_):
    """Row 210: The deletion of positions is refused for unknown groups, other protocol types and subscribed topics."""
    assert Code.GROUP_ID_NOT_FOUND is all_.call(lambda reply: all_.offsets.delete(None, [T0], reply))
    all_.commit(42)
    all_.commit(positions={(other := TopicPartition("other", 0)): Position(1)})
    all_.topics[other] = uuid.UUID(int=0)
    all_.commit(positions={other: Position(1)})
    all_.stable()
    assert {T0: Code.GROUP_SUBSCRIBED_TO_TOPIC, other: Code.NONE} == all_.call(
        lambda reply: all_.offsets.delete(all_.group, [T0, other], reply)
    )
    assert [T0] == list(all_.offsets.committed(G))

    foreign = Coordination()
    foreign.commit(42)
    answer = foreign.join(version=3, protocol_type="connect")
    foreign.advance(0)
    foreign.sync_all(answer)
    assert Code.NON_EMPTY_GROUP is foreign.call(
        lambda reply: foreign.offsets.delete(foreign.group, [T0], reply)
    )


def test_positions_expire_at_exactly_the_retention():
    """Row 211: Positions of a group without members expire. A group without any position left may be deleted."""
    all_ = Coordination(retention_ms=HOUR)
    all_.commit(42)
    all_.clock.advance(1_000)
    all_.commit(positions={T1: Position(1)})
    all_.clock.advance(HOUR - 1_001)
    assert ([], False) == all_.offsets.expired(all_.group, all_.clock())
    all_.clock.advance(1)
    assert ([T0], False) == all_.offsets.expired(all_.group, all_.clock())
    all_.append(all_.offsets.tombstones(G, [T0], lambda _: None))
    assert (all_.log[-1][1], [T1]) == (None, list(all_.offsets.committed(G)))
    all_.clock.advance(1_000)
    assert ([T1], True) == all_.offsets.expired(all_.group, all_.clock())
    all_.append(all_.offsets.tombstones(G, [T1], lambda _: None))
    assert ([], True) == all_.offsets.expired(all_.group, all_.clock())


def test_what_a_transaction_may_move_does_not_expire():
    """Row 212: A position that an open transaction may change does not expire, and its group stays."""
    all_ = Coordination(retention_ms=HOUR)
    all_.commit(42)
    all_.commit(43, producer_id=PID)
    all_.clock.advance(HOUR)
    assert ([], False) == all_.offsets.expired(all_.group, all_.clock())
    all_.offsets.end_transaction(PID, committed=False)
    assert ([T0], True) == all_.offsets.expired(all_.group, all_.clock())


def test_who_may_commit(all_):
    """Row 200: State, generation, member and instance decide who may commit, inside and outside of transactions."""
    (member,) = all_.stable("one")
    group = all_.group

    def code(transactional: bool = False, **fields: object) -> Code:
        request = OffsetCommitRequest(group=G, positions={}, **fields)  # type: ignore[arg-type]
        try:
            check_commit(group, request, transactional=transactional)
        except RequestError as error:
            return error.code
        return Code.NONE

    assert Code.UNKNOWN_MEMBER_ID is code()
    assert Code.NONE is code(transactional=True)
    assert Code.UNKNOWN_MEMBER_ID is code(member_id="x", generation=1)
    assert Code.UNKNOWN_MEMBER_ID is code(member_id=member, instance_id="x", generation=1)
    assert Code.FENCED_INSTANCE_ID is code(member_id="x", instance_id="one", generation=1)
    assert Code.ILLEGAL_GENERATION is code(member_id=member, instance_id="one", generation=2)
    assert Code.ILLEGAL_GENERATION is code(member_id=member)
    assert Code.NONE is code(member_id=member, instance_id="one", generation=1)
    all_.join(member, instance_id="one", protocols=(RANGE,))
    assert GroupState.COMPLETING_REBALANCE is group.state
    assert Code.REBALANCE_IN_PROGRESS is code(member_id=member, generation=2)
    assert Code.NONE is code(transactional=True, member_id=member, generation=2)
    all_.leave(member)
    assert (GroupState.EMPTY, Code.NONE) == (group.state, code())
    assert Code.UNKNOWN_MEMBER_ID is code(member_id=member, generation=2)
    group.state = GroupState.DEAD
    assert Code.COORDINATOR_NOT_AVAILABLE is code()


def test_since_when_a_position_ages():
    """Row 201: The age of a position counts from its commit, or from the time at which the group became empty.

    In a Stable group only positions in topics without a subscriber expire. In the other states with members no
    position expires.
    """
    all_ = Coordination(retention_ms=HOUR)
    other = TopicPartition("other", 0)
    all_.topics[other] = uuid.UUID(int=0)
    all_.commit(positions={T0: Position(1), other: Position(1)})

    def gone(group: Group, later: int) -> list[TopicPartition]:
        return all_.offsets.expired(group, Timestamp(all_.clock.now + later))[0]

    assert [T0, other] == gone(all_.group, HOUR)
    (member,) = all_.stable()
    assert [other] == gone(all_.group, HOUR)
    all_.join(member)
    assert [] == gone(all_.group, HOUR)
    all_.clock.advance(1_000)
    all_.leave(member)
    assert [] == gone(all_.group, HOUR - 1)
    assert [T0, other] == gone(all_.group, HOUR)


def test_positions_go_with_their_topic(all_):
    """When a topic is deleted, all positions with its id or without an id are deleted, even pending ones."""
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    all_.topics[T0] = first
    all_.topics[T1] = second
    all_.commit(positions={T0: Position(1), T1: Position(1)})
    all_.commit(positions={TopicPartition("t", 2): Position(1)}, producer_id=PID)
    for write in all_.offsets.topics_deleted({"t": first}):
        all_.append(write)
    assert [T1] == list(all_.offsets.committed(G))
    assert [] == list(all_.offsets.pending(G))
    assert [] == all_.offsets.topics_deleted({"other": first})
