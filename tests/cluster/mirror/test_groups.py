"""Tests that a group continues from its mirrored positions after the mirror is handed to another cluster."""

from __future__ import annotations

import pytest

from testing.broker.client import Outgoing
from topicfs.cluster.mirror.topics import GROUPS_TOPIC

pytestmark = pytest.mark.java


def test_without_being_asked_kafkas_own_topics_are_left_out(copy, client):
    """Kafka's internal topics are not copied unless groups are mirrored, even if a name or pattern matches them."""
    client.create_topic("owned")
    client.produce("owned", [Outgoing(b"a")])
    client.consume_in_group("owners", "owned", 1)
    copy.once("owned", GROUPS_TOPIC)
    assert [] == list(copy.directory.glob("__*"))
