"""Tests of committed positions of a topic that was recreated before this engine noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest

import topicfs
from testing.broker.client import Client
from tests.doubles.relay import Relay
from tests.doubles.servers import Start
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.engine import ClusterEngine
from topicfs.cluster.place import ClusterAddress
from topicfs.coordination.membership import Position, Subscription
from topicfs.protocol.group_messages import OFFSET_COMMIT
from topicfs.protocol.messages import API_VERSIONS, METADATA
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.errors import NotAssignedError, UnknownTopicError
from topicfs.storage.model import TopicPartition

pytestmark = pytest.mark.java

TOPIC = "made-again"
FIRST = TopicPartition(TOPIC, 0)


def knowing_commits_up_to(version: int) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """Return a function that makes a broker advertise no version of OffsetCommit above `version`."""

    def change(answer: dict[str, Any]) -> Mapping[str, Any]:
        keys = [
            {**one, "maxVersion": version} if one["apiKey"] == OFFSET_COMMIT.key else one
            for one in answer["apiKeys"]
        ]
        return {**answer, "apiKeys": keys}

    return change


def lagging_behind(topic_id: UUID) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """Return a function that makes a Metadata answer stale: the answer gives TOPIC its former id, `topic_id`."""

    def change(answer: dict[str, Any]) -> Mapping[str, Any]:
        topics = answer["topics"]
        if len(topics) == 1:  # The request asked for this topic by name.
            return answer
        former = [{**one, "topicId": topic_id} if one["name"] == TOPIC else one for one in topics]
        return {**answer, "topics": former}

    return change


@pytest.fixture(params=[9, 10])
def relay(served: Start, request: pytest.FixtureRequest) -> Relay:
    """A relay to a broker of an older or newer kind: commits name topics by name up to version 9, by id from 10 on."""
    relay = Relay(served)
    relay.always(API_VERSIONS, knowing_commits_up_to(request.param))
    return relay


@pytest.fixture
def engine(address: ClusterAddress, relay: Relay) -> Iterator[ClusterEngine]:
    leaders = Leaders(Brokers(address, relay.connect))
    with closing(ClusterEngine(leaders, read_only=False)) as engine:
        yield engine


def test_no_position_is_committed_to_a_recreated_topic(
    engine: ClusterEngine, relay: Relay, client: Client
) -> None:
    """A position in the deleted topic is not set in the new one: a member's commit and a user's `set` both fail."""
    topic_id = decode_id(client.create_topic(TOPIC))
    wait_until(lambda: TOPIC in engine.topics(), "the topic is known")
    wanted = Subscription(topics=frozenset({TOPIC}))
    member = engine.groups.join("reads", wanted, client_id="cat", listener=lambda: None)
    wait_until(lambda: FIRST in member.held().partitions, "the partition is assigned")
    member.commit({FIRST: Position(1)}).result(TIMEOUT_SECONDS)
    generation = member.held().generation
    engine.groups.set_positions("set", {FIRST: Position(1)})
    relay.always(METADATA, lagging_behind(topic_id))
    client.delete_topics([TOPIC])
    client.create_topic(TOPIC)

    with pytest.raises(NotAssignedError, match="its topic was deleted"):
        member.commit({FIRST: Position(2)}).result(TIMEOUT_SECONDS)
    with pytest.raises(UnknownTopicError):
        engine.groups.set_positions("set", {FIRST: Position(2)})
    assert [{}, {}] == [engine.groups.positions(group).committed for group in ("reads", "set")]
    relay.always(METADATA, None)
    wait_until(lambda: member.held().generation > generation, "the member rejoins")
    wait_until(lambda: FIRST in member.held().partitions, "the member has the new partition")
    member.commit({FIRST: Position(3)}).result(TIMEOUT_SECONDS)
    assert 3 == engine.groups.positions("reads").committed[FIRST].offset
    member.leave().result(TIMEOUT_SECONDS)
    client.delete_topics([TOPIC])


def test_a_member_of_the_api_begins_a_recreated_topic_at_its_start(
    address: ClusterAddress, client: Client
) -> None:
    """A member of the API begins a recreated topic at its start, and does not commit positions of the deleted topic."""
    with topicfs.open(str(address)) as topics:
        first = topics.create(TOPIC)
        first[0].append_many([b"one", b"two"])
        group = topics.group("api")
        with group.join(TOPIC) as member:
            assert [b"one", b"two"] == [one.value for one in member.poll(TIMEOUT_SECONDS)]
            client.delete_topics([TOPIC])
            client.create_topic(TOPIC)
            wait_until(lambda: TOPIC in topics and topics[TOPIC].id != first.id, "the new topic shows")
            topics[TOPIC].append(b"another")
            member.commit()
            assert {} == group.positions()
            assert [b"another"] == [one.value for one in member.poll(TIMEOUT_SECONDS)]
            member.commit()
        assert {FIRST: 1} == group.positions()
        topics.delete(TOPIC, with_records=True)
