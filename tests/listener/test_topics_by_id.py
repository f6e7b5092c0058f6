"""A topic id in a request never matches a later topic of the same name."""

from __future__ import annotations

import pytest

from tests.listener.serving import Served
from topicfs.listener.address import Endpoint
from topicfs.listener.broker import Broker
from topicfs.listener.errors import RefusedError
from topicfs.listener.limits import ListenerLimits
from topicfs.protocol.error_codes import ErrorCode
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
