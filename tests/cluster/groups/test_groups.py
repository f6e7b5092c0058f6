"""Tests of groups in a real cluster: members of this engine and of other clients share partitions and positions."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkasPartition

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing
from tests.doubles.relay import Relay
from tests.doubles.waiting import wait_until
from topicfs.cluster.brokers.coordinators import Coordinators
from topicfs.cluster.engine import ClusterEngine, open_engine
from topicfs.cluster.errors import NOT_COORDINATOR
from topicfs.cluster.groups.requests import GroupClient
from topicfs.cluster.place import ClusterAddress, cluster_address
from topicfs.coordination.groups.runtime.member import LocalMember
from topicfs.coordination.membership import GroupState, Membership, Position, Subscription
from topicfs.protocol.group_messages import DESCRIBE_GROUPS, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT
from topicfs.storage import errors
from topicfs.storage.model import TopicPartition

pytestmark = pytest.mark.java

TIMEOUT_SECONDS = 60


@pytest.fixture(scope="module")
def engine(broker: Broker) -> Iterator[ClusterEngine]:
    with closing(open_engine(cluster_address(f"kafka://{broker.bootstrap_server}"))) as engine:
        yield engine


@pytest.fixture
def topic(client: Client, engine: ClusterEngine, request: pytest.FixtureRequest) -> str:
    """The test's own topic, with two partitions of three records; its group has the same name."""
    name = request.node.originalname
    client.create_topic(name, partitions=2)
    for number in range(2):
        client.produce(name, [Outgoing(b"%d.%d" % (number, at)) for at in range(3)], partition=number)
    wait_until(
        lambda: name in engine.topics() and len(engine.topic(name).partitions()) == 2, "the topic is known"
    )
    return name


def joined(engine: ClusterEngine, group: str, *topics: str, patterns: tuple[str, ...] = ()) -> Membership:
    return engine.groups.join(
        group,
        Subscription(topics=frozenset(topics), patterns=frozenset(patterns)),
        client_id="cat-4711",
        reader="cat 4711",
        listener=lambda: None,
    )


def numbers(member: Membership) -> list[int]:
    """Return the numbers of the partitions that a member holds and need not give back."""
    held = member.held()
    return sorted(one.partition for one in held.partitions - held.wanted_back)


def gives_back(member: Membership) -> None:
    """Give back the partitions that the member must revoke, as a reader does."""
    member.give_up(member.held().wanted_back)


def until(holds: Callable[[], bool], *members: Membership) -> None:
    """Wait until `holds` is true; meanwhile `members` give back the partitions they must revoke."""

    def looks() -> bool:
        for member in members:
            gives_back(member)
        return holds()

    wait_until(looks, "partitions are shared out")


def alone(engine: ClusterEngine, topic: str) -> Membership:
    """Return the only member of the topic's group, which holds both partitions."""
    member = joined(engine, topic, topic)
    until(lambda: numbers(member) == [0, 1], member)
    return member


@contextmanager
def consumer(broker: Broker, group: str, topic: str, **options: Any) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_server,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    made.subscribe([topic])
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_a_member_here_and_one_of_librdkafka_share_the_partitions(
    engine: ClusterEngine, broker: Broker, topic: str, assignor: str
) -> None:
    """Two members have one partition each; when one leaves, the other has both. Both members see all positions."""
    group = f"{topic}-{assignor}"
    engine.groups.create(group)
    engine.groups.alter_config(group, {"assignor": assignor})
    member = joined(engine, group, topic)
    until(lambda: numbers(member) == [0, 1], member)
    assert {None} == set(member.held().positions.values())
    member.commit({TopicPartition(topic, 0): Position(2, "cat 4711")}).result(TIMEOUT_SECONDS)
    with consumer(broker, group, topic, partition_assignment_strategy=assignor) as other:

        def shared() -> bool:
            other.poll(0.05)
            return len(numbers(member)) == 1 and len(other.assignment()) == 1

        until(shared, member)
        described = engine.groups.describe(group)
        assert (GroupState.STABLE, assignor, 2) == (
            described.state,
            described.assignor,
            len(described.members),
        )
        assert {TopicPartition(topic, 0), TopicPartition(topic, 1)} == {
            one for found in described.members for one in found.partitions
        }
        assert {"cat 4711", ""} == {one.reader for one in described.members}
        (theirs,) = other.assignment()
        other.commit(offsets=[KafkasPartition(topic, theirs.partition, 3)], asynchronous=False)
        (place,) = other.committed([KafkasPartition(topic, 0)], TIMEOUT_SECONDS)
        assert place.offset in {2, 3}
    until(lambda: numbers(member) == [0, 1], member)
    assert 3 == engine.groups.positions(group).committed[TopicPartition(topic, theirs.partition)].offset
    member.leave().result(TIMEOUT_SECONDS)
    assert GroupState.EMPTY is engine.groups.describe(group).state


def test_two_members_here_split_and_take_over(engine: ClusterEngine, topic: str) -> None:
    """A second member gets partitions that the first revokes; if one leaves, the other takes over its positions."""
    one = alone(engine, topic)
    two = joined(engine, topic, topic)
    until(lambda: len(numbers(one)) == len(numbers(two)) == 1, one, two)
    (moved,) = numbers(two)
    two.commit({TopicPartition(topic, moved): Position(3)}).result(TIMEOUT_SECONDS)
    two.leave().result(TIMEOUT_SECONDS)
    until(lambda: numbers(one) == [0, 1], one)
    found = one.held().positions[TopicPartition(topic, moved)]
    assert found is not None
    assert 3 == found.offset
    one.leave().result(TIMEOUT_SECONDS)


def test_a_removed_member_rejoins(engine: ClusterEngine, topic: str) -> None:
    """A removed member's commit fails, as the member holds nothing any more; then it rejoins and gets partitions."""
    member = alone(engine, topic)
    before = member.member_id
    GroupClient(Coordinators(engine.leaders.brokers), topic).leave(before, "the test removes it")
    until(lambda: member.member_id not in {"", before} and numbers(member) == [0, 1], member)
    member.commit({TopicPartition(topic, 1): Position(1)}).result(TIMEOUT_SECONDS)
    with pytest.raises(errors.NotAssignedError):
        member.commit({TopicPartition(topic, 7): Position(1)}).result(TIMEOUT_SECONDS)
    with pytest.raises(errors.InvalidPositionError):
        member.commit({TopicPartition(topic, 1): Position(-1)}).result(TIMEOUT_SECONDS)
    member.leave().result(TIMEOUT_SECONDS)


def test_patterns_follow_topics_and_partitions_that_come(
    engine: ClusterEngine, client: Client, topic: str
) -> None:
    """A new topic that matches the pattern, and an added partition, are assigned automatically."""
    member = joined(engine, topic, patterns=(f"{topic}*",))
    until(lambda: numbers(member) == [0, 1], member)
    client.create_topic(f"{topic}-2")
    until(lambda: TopicPartition(f"{topic}-2", 0) in member.held().partitions, member)
    engine.add_partitions(topic, total=3)
    until(lambda: TopicPartition(topic, 2) in member.held().partitions, member)
    member.leave().result(TIMEOUT_SECONDS)


def test_positions_are_set_and_deleted(engine: ClusterEngine, broker: Broker, topic: str) -> None:
    """As in Kafka's reset tool, positions can be set and deleted only while the group has no members."""
    groups, first = engine.groups, TopicPartition(topic, 0)
    groups.set_positions(topic, {first: Position(2, "a note")})
    (told,) = engine_of(broker, topic, first)
    assert (2, "a note") == (told.offset, told.metadata)
    assert {first: (2, "a note")} == {
        place: (one.offset, one.metadata) for place, one in groups.positions(topic).committed.items()
    }
    assert GroupState.EMPTY is groups.listed()[topic].state
    with pytest.raises(errors.UnknownTopicError):
        groups.set_positions(topic, {TopicPartition(topic, 9): Position(0)})
    with pytest.raises(errors.InvalidPositionError):
        groups.set_positions(topic, {first: Position(-1)})
    with pytest.raises(errors.InvalidPositionError, match="OFFSET_METADATA_TOO_LARGE"):
        groups.set_positions(topic, {first: Position(0, "x" * 5000)})
    member = alone(engine, topic)
    for change in (
        lambda: groups.set_positions(topic, {first: Position(0)}),
        lambda: groups.delete_positions(topic, [first]),
        lambda: groups.delete(topic),
        lambda: groups.alter_config(topic, {"assignor": "range"}),
    ):
        with pytest.raises(errors.GroupNotEmptyError):
            change()
    member.leave().result(TIMEOUT_SECONDS)
    groups.delete_positions(topic, [first])
    assert {} == groups.positions(topic).committed
    groups.delete(topic)
    with pytest.raises(errors.UnknownGroupError):
        groups.describe(topic)


def test_one_answer_has_all_groups_of_a_topic(engine: ClusterEngine, topic: str) -> None:
    """One answer has all groups with a position in the topic, each with its positions in that topic only."""
    groups, first, second = engine.groups, TopicPartition(topic, 0), TopicPartition(topic, 1)
    groups.set_positions(f"{topic}-a", {first: Position(2)})
    groups.set_positions(f"{topic}-b", {first: Position(0), second: Position(3)})
    groups.create(f"{topic}-c")
    expected = {f"{topic}-a": {first: 2}, f"{topic}-b": {first: 0, second: 3}}

    def offsets() -> dict[str, dict[TopicPartition, int]]:
        return {
            group: {place: one.offset for place, one in own.items()}
            for group, own in groups.positions_in(topic).items()
        }

    assert expected == offsets()
    assert {} == groups.positions_in("nobody-reads-it")


def engine_of(broker: Broker, group: str, place: TopicPartition) -> list[KafkasPartition]:
    """Return a partition's committed position as librdkafka's admin client sees it."""
    request = ConsumerGroupTopicPartitions(group, [KafkasPartition(*place)])
    answers = Client(broker.bootstrap_server).admin.list_consumer_group_offsets([request])
    return list(answers[group].result(TIMEOUT_SECONDS).topic_partitions)


def test_groups_of_others_are_shown(engine: ClusterEngine, broker: Broker, topic: str) -> None:
    """Groups of kcat and of a consumer with Kafka 4's protocol are shown with members, topics and partitions."""
    process = subprocess.Popen(
        ["kcat", "-b", broker.bootstrap_server, "-G", f"{topic}-kcat", "-q", topic],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with consumer(broker, f"{topic}-newer", topic, group_protocol="consumer") as newer:
            for group in (f"{topic}-kcat", f"{topic}-newer"):

                def has_all(group: str = group) -> bool:
                    newer.poll(0.05)
                    if group not in engine.groups.listed():
                        return False
                    members = engine.groups.describe(group).members
                    return [2] == [len(one.partitions) for one in members]

                wait_until(has_all, "the member has both partitions")
                (member,) = engine.groups.describe(group).members
                assert ((topic,), "rdkafka") == (member.topics, member.client_id)
    finally:
        process.kill()
        process.wait()


def test_what_makes_no_sense_is_refused(engine: ClusterEngine, topic: str) -> None:
    """Invalid names, creating an existing group, using a missing one, and an assignor that others lack are errors."""
    with pytest.raises(errors.InvalidGroupError):
        engine.groups.create("")
    engine.groups.create(topic)
    assert GroupState.EMPTY is engine.groups.describe(topic).state
    with pytest.raises(errors.GroupExistsError):
        engine.groups.create(topic)
    engine.groups.delete(topic)
    assert topic not in engine.groups.listed()
    for call in (engine.groups.delete, engine.groups.describe):
        with pytest.raises(errors.UnknownGroupError):
            call(topic)
    member = alone(engine, topic)
    # This is the state after another mount of the cluster has set the assignor.
    engine.groups._overrides[topic] = {"assignor": "range"}
    other = joined(engine, topic, topic)
    wait_until(lambda: other.held().lost is not None, "the reader gets the error")
    assert isinstance(other.held().lost, errors.IncompatibleMemberError)
    with pytest.raises(errors.IncompatibleMemberError):
        other.commit({}).result(TIMEOUT_SECONDS)
    other.leave().result(TIMEOUT_SECONDS)
    member.leave().result(TIMEOUT_SECONDS)


def test_a_read_only_engine_shows_and_changes_nothing(address: ClusterAddress, topic: str) -> None:
    """A read-only engine shows positions, and refuses to join groups and to set positions."""
    with closing(open_engine(address, read_only=True)) as engine:
        assert {} == engine.groups.positions(topic).committed
        for change in (
            lambda: joined(engine, topic, topic),
            lambda: engine.groups.set_positions(topic, {TopicPartition(topic, 0): Position(0)}),
            lambda: engine.groups.create(topic),
        ):
            with pytest.raises(errors.ReadOnlyError):
                change()


def test_the_end_of_an_engine_ends_its_members(
    address: ClusterAddress, engine: ClusterEngine, topic: str
) -> None:
    """When an engine closes, its members leave, so that other members need not wait for session timeouts."""
    with closing(open_engine(address)) as other:
        member = alone(other, topic)
        assert 1 == len(engine.groups.describe(topic).members)
    assert isinstance(member.held().lost, errors.NotAssignedError)
    # A session lasts 45 seconds.
    wait_until(lambda: not engine.groups.describe(topic).members, "the member has left", timeout_seconds=30)


class HeldAnswer:
    """An answer that the test withholds from the client until the test releases it."""

    def __init__(self) -> None:
        self.came, self.released = threading.Event(), threading.Event()

    def __call__(self, answer: dict[str, Any]) -> Mapping[str, Any]:
        self.came.set()
        self.released.wait(TIMEOUT_SECONDS)
        return answer


def member_that_leaves(engine: ClusterEngine, topic: str, relay: Relay, held: HeldAnswer) -> LocalMember:
    """Return a member that leaves, while the answer to its last commit is withheld."""
    wait_until(lambda: topic in engine.topics(), "the topic is known")
    member = alone(engine, topic)
    assert isinstance(member, LocalMember)
    relay.do(OFFSET_COMMIT, held)
    member.commit({TopicPartition(topic, 0): Position(1)})
    assert held.came.wait(TIMEOUT_SECONDS)
    member.leave()
    return member


CALLS: Mapping[str, Callable[[ClusterEngine, str], object]] = {
    "set a position": lambda engine, group: engine.groups.set_positions(
        group, {TopicPartition(group, 0): Position(2)}
    ),
    "delete": lambda engine, group: engine.groups.delete(group),
    "another assignor": lambda engine, group: engine.groups.alter_config(group, {"assignor": "range"}),
    "members": lambda engine, group: len(engine.groups.describe(group).members) or None,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_request_about_a_group_waits_for_members_that_leave(
    relayed: ClusterEngine, topic: str, relay: Relay, call: str
) -> None:
    """After a member's file is closed, the next command of a shell finds the group without that member."""
    held = HeldAnswer()
    # `_waiters` shows which calls wait for the member.
    leaving: Any = member_that_leaves(relayed, topic, relay, held).leave()
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(CALLS[call], relayed, topic)
        wait_until(lambda: leaving._waiters or asked.done(), "the call waits for the member, or has returned")
        held.released.set()
        assert asked.result(TIMEOUT_SECONDS) is None


def test_two_changes_of_settings_at_once_both_count(relayed: ClusterEngine, topic: str, relay: Relay) -> None:
    """While one change of settings waits for a leaving member, another thread changes other settings.

    Both changes take effect.
    """
    held = HeldAnswer()
    # `_waiters` shows which calls wait for the member.
    leaving: Any = member_that_leaves(relayed, topic, relay, held).leave()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(relayed.groups.alter_config, topic, {"assignor": "range"})
        wait_until(
            lambda: leaving._waiters or waiting.done(), "the call waits for the member, or has returned"
        )
        relayed.groups.alter_config(topic, {"commit": "manual"})
        held.released.set()
        assert waiting.result(TIMEOUT_SECONDS) is None
    config = relayed.groups.config(topic)
    assert ("range", "manual") == (config.assignor, config.commit)


@pytest.mark.parametrize("call", ["set a position", "delete"])
def test_a_change_waits_for_the_end_of_a_rebalance_that_all_members_left(
    relayed: ClusterEngine, topic: str, relay: Relay, call: str
) -> None:
    """If all members of a group have left during a rebalance, a change waits for the end of the rebalance."""
    wait_until(lambda: 0 in relayed.groups.partitions_of(topic), "the topic is known")
    relayed.groups.set_positions(topic, {TopicPartition(topic, 0): Position(1)})
    before = relay.requests["DescribeGroups"]

    def rebalancing(answer: dict[str, Any]) -> Mapping[str, Any]:
        groups = [{**one, "groupState": "PreparingRebalance", "members": []} for one in answer["groups"]]
        return {**answer, "groups": groups}

    relay.do(DESCRIBE_GROUPS, rebalancing)
    CALLS[call](relayed, topic)
    assert 2 == relay.requests["DescribeGroups"] - before


def test_a_leaving_member_follows_a_moved_coordinator(
    relayed: ClusterEngine, topic: str, relay: Relay
) -> None:
    """If the group's coordinator moves while a member leaves, the member asks the new coordinator."""
    wait_until(lambda: topic in relayed.topics(), "the topic is known")
    member = alone(relayed, topic)
    relay.do(LEAVE_GROUP, lambda answer: {**answer, "errorCode": NOT_COORDINATOR})
    member.leave().result(TIMEOUT_SECONDS)
    assert 2 == relay.requests["LeaveGroup"]


def test_a_member_that_cannot_leave_is_waited_for_a_bounded_time(
    relayed: ClusterEngine, topic: str, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the coordinator does not answer a leaving member, other callers wait only for a limited time.

    The error names the coordinator as the cause, not an open file.
    """
    monkeypatch.setattr(relayed.leaders, "timeout_seconds", 0.01)
    held = HeldAnswer()
    member = member_that_leaves(relayed, topic, relay, held)
    with pytest.raises(
        errors.GroupNotEmptyError, match="its coordinator has not answered a member that leaves"
    ):
        relayed.groups.set_positions(topic, {TopicPartition(topic, 0): Position(2)})
    held.released.set()
    member.leave().result(TIMEOUT_SECONDS)


def test_a_member_counts_before_its_coordinator_knows_it(
    relayed: ClusterEngine, topic: str, relay: Relay
) -> None:
    """As soon as a file of a group is opened, the group cannot be deleted, and its positions cannot be set."""
    held = HeldAnswer()
    relay.do(JOIN_GROUP, held)
    member = joined(relayed, topic, topic)
    wait_until(lambda: 0 in relayed.groups.partitions_of(topic), "the other engine knows the topic")
    for call in ("set a position", "delete", "another assignor"):
        with pytest.raises(errors.GroupNotEmptyError):
            CALLS[call](relayed, topic)
    held.released.set()
    member.leave().result(TIMEOUT_SECONDS)
