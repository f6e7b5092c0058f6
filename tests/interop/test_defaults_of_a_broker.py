"""Tests of a broker's settings when nothing is configured."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import ConfigResource, ConfigSource

from testing.broker.client import TIMEOUT_SECONDS, Client

pytestmark = pytest.mark.java

COPIES = "offsets.topic.replication.factor"


def test_consumer_offsets_has_three_copies_by_default(client: Client):
    """By default __consumer_offsets has three replicas; the test broker sets one, like the quickstarts in articles."""
    node = ConfigResource(ConfigResource.Type.BROKER, "1")
    entry = client.admin.describe_configs([node])[node].result(TIMEOUT_SECONDS)[COPIES]
    default = [one for one in entry.synonyms.values() if one.source == ConfigSource.DEFAULT_CONFIG.value]
    assert ["3"] == [one.value for one in default]
    assert "1" == entry.value
