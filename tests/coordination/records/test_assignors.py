"""Tests of the partition assignors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topicfs.coordination.records import assignors
from topicfs.storage.model import TopicPartition


def member(name, *topics, **fields):
    return assignors.SubscribedMember(member_id=name, topics=frozenset(topics), **fields)


def numbers(assignment):
    return {name: [p.partition for p in assigned] for name, assigned in assignment.items()}


def test_range_gives_the_first_members_one_more():
    """Seven partitions over three members are assigned in ranges of 3, 2 and 2, not 3, 3 and 1."""
    members = [member("c", "t"), member("a", "t"), member("b", "t")]
    assert {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]} == numbers(assignors.assign_ranges(members, {"t": 7}))


def test_range_takes_each_topic_for_itself():
    """The first member gets the additional partition of every topic."""
    members = [member("a", "t", "u"), member("b", "t", "u")]
    assignment = assignors.assign_ranges(members, {"t": 3, "u": 3})
    assert {"a": 4, "b": 2} == {name: len(assigned) for name, assigned in assignment.items()}


def test_static_members_come_first():
    """Members with an instance id come first, ordered by that id."""
    members = [member("a", "t"), member("z", "t", instance_id="i")]
    assert {"a": [], "z": [0]} == numbers(assignors.assign_ranges(members, {"t": 1}))


def test_round_robin_deals_over_topics():
    """The partitions of all topics are dealt to the members in one circle."""
    members = [member("a", "t", "u"), member("b", "t", "u")]
    assignment = assignors.assign_round_robin(members, {"t": 3, "u": 3})
    assert assignment["a"] == [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)]
    assert assignment["b"] == [TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("u", 2)]


def test_round_robin_skips_who_is_not_subscribed():
    """A member gets no partition of a topic to which it is not subscribed."""
    members = [member("a", "t"), member("b", "t", "u")]
    assignment = assignors.assign_round_robin(members, {"t": 1, "u": 2})
    assert assignment["b"] == [TopicPartition("u", 0), TopicPartition("u", 1)]


def test_a_topic_that_does_not_exist_is_ignored():
    """A subscription to a missing topic assigns nothing."""
    assert {"a": []} == assignors.assign_ranges([member("a", "none")], {})


def test_sticky_keeps_what_was_owned():
    """A third member takes only as many partitions as balance requires."""
    owned_a = tuple(TopicPartition("t", p) for p in (0, 2, 4))
    owned_b = tuple(TopicPartition("t", p) for p in (1, 3, 5))
    members = [
        member("a", "t", owned=owned_a, generation=1),
        member("b", "t", owned=owned_b, generation=1),
        member("c", "t"),
    ]
    assert {"a": [0, 2], "b": [1, 3], "c": [4, 5]} == numbers(assignors.assign_sticky(members, {"t": 6}))


def test_an_older_generations_claim_loses():
    """If two members claim a partition, the member with the newer generation gets it."""
    claimed = (TopicPartition("t", 0),)
    old = member("a", "t", owned=claimed, generation=1)
    new = member("b", "t", owned=claimed, generation=2)
    assert {"a": [], "b": [0]} == numbers(assignors.assign_sticky([old, new], {"t": 1}))


def test_cooperative_withholds_what_another_still_owns():
    """The new member gets the partition only after the old member has released it."""
    owned = (TopicPartition("t", 0), TopicPartition("t", 1))
    members = [member("a", "t", owned=owned, generation=1), member("b", "t")]
    assert {"a": [0], "b": []} == numbers(assignors.assign_cooperative(members, {"t": 2}))


TOPICS = st.dictionaries(st.sampled_from("tuv"), st.integers(1, 7), min_size=1)


@st.composite
def groups(draw):
    partitions = draw(TOPICS)
    every = [TopicPartition(t, p) for t, count in partitions.items() for p in range(count)]
    members = []
    for name in draw(st.sets(st.sampled_from("abcde"), min_size=1)):
        topics = draw(st.frozensets(st.sampled_from(sorted(partitions)), min_size=1))
        owned = draw(st.lists(st.sampled_from(every), unique=True, max_size=4))
        members.append(member(name, *topics, owned=tuple(owned), generation=draw(st.integers(0, 2))))
    return members, partitions


@given(groups())
def test_every_partition_goes_to_exactly_one_subscriber(group):
    """With any assignor each subscribed partition has exactly one member, and this member subscribes to its topic."""
    members, partitions = group
    topics = {m.member_id: m.topics for m in members}
    wanted = {t for m in members for t in m.topics}
    expected = sorted(TopicPartition(t, p) for t in wanted for p in range(partitions[t]))
    for assign in (assignors.assign_ranges, assignors.assign_round_robin, assignors.assign_sticky):
        assignment = assign(members, partitions)
        assert all(p.topic in topics[name] for name, assigned in assignment.items() for p in assigned)
        assert expected == sorted(p for assigned in assignment.values() for p in assigned)


@given(groups())
def test_sticky_is_balanced(group):
    """The sticky assignment is balanced.

    A member that has a partition of a topic has at most one partition more than any other subscriber of this topic.
    """
    members, partitions = group
    assignment = assignors.assign_sticky(members, partitions)
    load = {name: len(assigned) for name, assigned in assignment.items()}
    for name, assigned in assignment.items():
        for partition in assigned:
            others = [m.member_id for m in members if partition.topic in m.topics]
            assert load[name] - min(load[other] for other in others) <= 1
