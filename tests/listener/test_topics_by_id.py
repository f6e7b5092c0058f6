"""A topic id in a request never matches a later topic of the same name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.listener.serving import RawClient, Served
from topicfs.coordination.groups.runtime.client_requests import ClientRequests
from topicfs.listener.address import Endpoint
from topicfs.listener.broker import Broker
from topicfs.listener.errors import RefusedError
from topicfs.listener.limits import ListenerLimits
from topicfs.protocol.error_codes import ErrorCode
from topicfs.protocol.group_messages import OFFSET_COMMIT, OFFSET_FETCH
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.engine import Topic


@pytest.fixture
def broker(served: Served) -> Broker:
    return Broker(served.engine, Endpoint("127.0.0.1", 9092), EngineConfig(), ListenerLimits())


def test_a_new_topic_of_the_name_is_another_one(broker: Broker) -> None:
    """A partition of a deleted topic is refused, even if a new topic has its name."""
    broker.engine.create_topic("orders", partitions=1)
    known = broker.engine.topic("orders")
    broker.engine.delete_topic("orders")
    broker.engine.create_topic("orders", partitions=1)
    with pytest.raises(RefusedError) as refused:
        broker.partition(known, 0)
    assert ErrorCode.UNKNOWN_TOPIC_ID == refused.value.code
    assert broker.partition(broker.engine.topic("orders"), 0)


def test_a_deletion_while_topics_are_listed_is_not_lost(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic deleted while the map of ids is being built is unknown to the next request."""
    engine = broker.engine
    engine.create_topic("orders", partitions=1)
    unique = decode_id(engine.topic("orders").topic_id)
    listed = engine.topics

    def deleted_afterwards() -> dict[str, Topic]:
        topics = dict(listed())
        monkeypatch.undo()
        engine.delete_topic("orders")
        return topics

    monkeypatch.setattr(engine, "topics", deleted_afterwards)
    assert unique in broker.topics_by_id()
    assert unique not in broker.topics_by_id()


def test_positions_by_id(client: RawClient, served: Served) -> None:
    """OffsetCommit and OffsetFetch by id refuse a deleted topic's id, even if a new topic has its name."""
    old = client.topic("orders")["topicId"]
    assert 0 == commit(client, old, 5)
    assert [(0, 5)] == fetch(client, [{"topicId": old, "partitionIndexes": [0]}])
    assert [(0, 5)] == fetch(client, None)
    served.engine.delete_topic("orders")
    assert ErrorCode.UNKNOWN_TOPIC_ID == commit(client, old, 7)
    new = client.topic("orders")["topicId"]
    assert 0 == commit(client, new, 9)
    assert ErrorCode.UNKNOWN_TOPIC_ID == commit(client, old, 7)
    topics = [{"topicId": unique, "partitionIndexes": [0]} for unique in (old, new)]
    assert [(ErrorCode.UNKNOWN_TOPIC_ID, -1), (0, 9)] == fetch(client, topics)


def test_positions_of_a_topic_that_is_replaced_meanwhile(
    client: RawClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a topic is replaced while its position is fetched or set, no position of the new topic is read or set."""
    old = client.topic("orders")["topicId"]
    requests = ClientRequests

    def replaced_first(name: str) -> None:
        call = getattr(requests, name)

        def replace(self: ClientRequests, *asked: Any, **how: Any) -> None:
            monkeypatch.undo()
            served.engine.delete_topic("orders")
            assert 0 == commit(other, other.topic("orders")["topicId"], 9)
            call(self, *asked, **how)

        monkeypatch.setattr(requests, name, replace)

    other = served.client()
    replaced_first("fetch")
    assert [(ErrorCode.UNKNOWN_TOPIC_ID, -1)] == fetch(client, [{"topicId": old, "partitionIndexes": [0]}])
    new = client.topic("orders")["topicId"]
    replaced_first("commit")
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == commit(client, new, 7)
    assert [(0, 9)] == fetch(client, None)


def commit(client: RawClient, topic: UUID, offset: int) -> int:
    """Commit a position in partition 0 by the topic's id, and return the error code."""
    position = {"partitionIndex": 0, "committedOffset": offset, "committedLeaderEpoch": -1}
    partitions = [{**position, "committedMetadata": None}]
    asked = {"groupId": "g", "generationIdOrMemberEpoch": -1, "memberId": "", "groupInstanceId": None}
    asked |= {"topics": [{"topicId": topic, "partitions": partitions}]}
    [answer] = client.ask(OFFSET_COMMIT, asked, 10)["topics"]
    return int(answer["partitions"][0]["errorCode"])


def fetch(client: RawClient, topics: Any) -> list[tuple[int, int]]:
    """Return the error code and the position of each topic."""
    group = {"groupId": "g", "memberId": None, "memberEpoch": -1, "topics": topics}
    [answer] = client.ask(OFFSET_FETCH, {"groups": [group], "requireStable": False}, 10)["groups"]
    return [
        (each["errorCode"], each["committedOffset"])
        for topic in answer["topics"]
        for each in topic["partitions"]
    ]
