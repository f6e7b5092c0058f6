"""Tests of one group: protocol votes, leaders, static members, and the bytes of its record."""

from __future__ import annotations

from tests.doubles.group_coordinator import subscribed
from tests.doubles.refusals import refusal
from topicfs.coordination.groups.group import Group, GroupMember
from topicfs.coordination.groups.requests import Code, JoinAnswer, Protocol, SyncAnswer
from topicfs.coordination.records.consumer_protocol import ASSIGNMENT, write_versioned
from topicfs.storage.model import Timestamp
from topicfs.storage.partitioning import hash_map_order

T = Timestamp(1_700_000_000_000)


def member(member_id: str, *protocols: str, instance_id: str | None = None) -> GroupMember:
    return GroupMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=300_000,
        session_timeout_ms=45_000,
        protocols=tuple(Protocol(name, subscribed("t")) for name in protocols),
    )


def group_of(*members: GroupMember) -> Group:
    group = Group(name="g", state_since=T)
    for one in members:
        group.add(one, "consumer")
    return group


def test_the_protocol_with_the_most_votes_is_chosen():
    """Row 197: Each member votes for the first protocol on its list that all members support."""
    assert "range" == group_of(member("a", "range", "roundrobin")).select_protocol()
    both = group_of(
        member("a", "range", "roundrobin"),
        member("b", "roundrobin", "range"),
        member("c", "roundrobin", "range"),
    )
    assert "roundrobin" == both.select_protocol()
    common = group_of(member("a", "range", "roundrobin"), member("b", "blah", "roundrobin"))
    assert "roundrobin" == common.select_protocol()


def test_common_protocols_follow_the_members():
    """The common protocols are always those that all present members support."""
    one, other = member("a", "range", "roundrobin"), member("b", "range")
    group = group_of(one, other)
    assert {"range"} == group.common_protocols()
    group.remove("b")
    assert {"range", "roundrobin"} == group.common_protocols()
    group.add(member("c", "roundrobin", "sticky"), "consumer")
    assert {"roundrobin"} == group.common_protocols()
    group.set_protocols(one, member("", "sticky", "roundrobin").protocols)
    assert {"sticky", "roundrobin"} == group.common_protocols()
    for name in ("a", "c"):
        group.remove(name)
    assert set() == group.common_protocols()


def test_all_have_joined_when_the_last_one_has():
    """All have joined if each member has joined and no client has a pending id.

    The order of the joins does not matter. The group does not wait for a member that leaves.
    """
    group = group_of(*(member(name, "range") for name in "abcd"))
    for name in "cad":
        assert not group.all_joined
        group.members[name].join_reply = lambda _: None
    assert not group.all_joined
    group.remove("b")
    assert group.all_joined
    group.pending.add("e")
    assert not group.all_joined
    group.pending.clear()
    group.members["a"].answer_join(JoinAnswer(member_id="a"))
    assert not group.all_joined


def test_a_tie_is_decided_by_the_order_of_a_java_hash_map():
    """If protocols have equally many votes, the order of a Java HashMap decides.

    The bucket of a name with hash h is (h ^ h >>> 16) & 15: sticky 8, range 9, roundrobin 10, cooperative-sticky 15.
    """
    names = ["cooperative-sticky", "roundrobin", "range", "sticky"]
    assert ["sticky", "range", "roundrobin", "cooperative-sticky"] == hash_map_order(names)
    tied = group_of(member("a", "roundrobin", "range"), member("b", "range", "roundrobin"))
    assert "range" == tied.select_protocol()


def test_a_hash_map_grows_with_its_keys():
    """Thirteen keys need 32 buckets. Keys in the same bucket stay in insertion order."""
    few, more = [chr(97 + n) for n in range(12)], [chr(97 + n) for n in range(20)]
    # In Java 'a' is 97, in bucket 1 of 16 and of 32; 'p' is 112, in bucket 0 of 16 and bucket 16 of 32.
    assert few == hash_map_order(few)
    assert more == hash_map_order(more)
    assert ["p", "a", "q"] == hash_map_order(["a", "q", "p", "a"])


def test_the_first_that_joined_leads_in_an_absent_leaders_place():
    """Row 198: A leader that has joined stays the leader. Otherwise the first member that joined becomes the leader."""
    group = group_of(member("a", "range"), member("b", "range"), member("c", "range"))
    assert "a" == group.leader
    assert not group.elect_joined_leader()

    group.members["c"].join_reply = lambda _: None
    assert group.elect_joined_leader()
    assert "c" == group.leader
    group.members["b"].join_reply = lambda _: None
    assert group.elect_joined_leader()
    assert "c" == group.leader


def test_a_replaced_instance_is_fenced_and_the_new_id_takes_over():
    """Row 199: If a static member gets a new id, waiting requests with the old id are answered with an error.

    The new id takes over the assignment. It also takes over the leadership if the old id led the group.
    """
    old = member("old", "range", instance_id="i")
    group = group_of(old)
    old.assignment = b"mine"
    joins: list[JoinAnswer] = []
    syncs: list[SyncAnswer] = []
    old.join_reply, old.sync_reply = joins.append, syncs.append

    new = group.replace_static("i", "old", "new")

    assert [JoinAnswer(code=Code.FENCED_INSTANCE_ID, member_id="old")] == joins
    assert [SyncAnswer(Code.FENCED_INSTANCE_ID)] == syncs
    assert ("new", {"i": "new"}, ["new"]) == (group.leader, group.static, list(group.members))
    assert b"mine" == new.assignment


def test_members_are_checked_by_instance_first():
    """The instance id is checked before the member id.

    An unknown instance is UNKNOWN_MEMBER_ID. An instance with another member id is FENCED_INSTANCE_ID. Without an
    instance, an unknown member id is UNKNOWN_MEMBER_ID.
    """
    group = group_of(member("a", "range", instance_id="i"), member("b", "range"))
    cases = {
        ("a", "other"): Code.UNKNOWN_MEMBER_ID,
        ("b", "i"): Code.FENCED_INSTANCE_ID,
        ("x", None): Code.UNKNOWN_MEMBER_ID,
    }
    for (member_id, instance_id), code in cases.items():
        assert code is refusal(group.check_member, member_id, instance_id)
    assert "a" == group.check_member("a", "i").member_id


def test_a_record_has_kafkas_bytes():
    """A new group, an emptied group and a group with a static member have the bytes that Kafka 4.3 writes."""
    assert (
        bytes.fromhex("0002000167"),
        bytes.fromhex("0003000000000000ffffffff0000018bcfe5680000000000"),
    ) == Group(name="g", state_since=T).record()

    emptied = Group(name="g", state_since=T, generation=2, protocol_type="consumer")
    assert (
        bytes.fromhex("00030008636f6e73756d657200000002ffffffff0000018bcfe5680000000000")
        == emptied.record()[1]
    )

    group = group_of(member("m-1", "range", instance_id="i"))
    group.generation, group.protocol = 1, "range"
    partitions = [{"topic": "t", "partitions": [1, 0]}]
    assignment = write_versioned(ASSIGNMENT, {"assignedPartitions": partitions})
    expected = (
        "00030008636f6e73756d657200000001000572616e676500036d2d310000018bcfe568000000000100036d2d31000169000163000a"
        "2f3132372e302e302e31000493e00000afc800000017"
        "000300000001000174ffffffff00000000ffffffffffff"
        "00000019000300000001000174000000020000000100000000ffffffff"
    )
    assert expected == group.record({"m-1": assignment})[1].hex()
