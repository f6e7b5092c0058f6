"""Tests of group descriptions that brokers of another release return."""

from __future__ import annotations

import pytest

from tests.doubles.producing import connected, found
from tests.doubles.relay import Relay
from topicfs.coordination.membership import Position
from topicfs.protocol.group_messages import CONSUMER_GROUP_DESCRIBE
from topicfs.storage.errors import UnknownGroupError
from topicfs.storage.model import Offset, TopicPartition

pytestmark = pytest.mark.java


def test_an_older_broker_has_no_groups_of_newer_types(address, client, served):
    """Kafka 3.9 answers UNSUPPORTED_VERSION for newer group types; the group counts as missing and can be created."""
    relay = Relay(served)

    def refused(answer):
        return {**answer, "groups": [{**one, "errorCode": 35} for one in answer["groups"]]}

    client.create_topic("other-release")
    relay.always(CONSUMER_GROUP_DESCRIBE, refused)
    with connected(address, relay.connect) as engine:
        found(engine, "other-release")
        with pytest.raises(UnknownGroupError):
            engine.groups.describe("none-of-the-release")
        place = TopicPartition("other-release", 0)
        engine.groups.set_positions("first-of-the-release", {place: Position(Offset(0))})
        assert [place] == list(engine.groups.positions("first-of-the-release").committed)
    assert relay.requests[CONSUMER_GROUP_DESCRIBE.name]
