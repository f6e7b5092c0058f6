"""Tests that a topic's settings are cached for a while, and stay in force if no broker answers."""

from __future__ import annotations

import pytest

from tests.doubles.producing import found
from topicfs.cluster.errors import UnreachableError
from topicfs.cluster.topics import topic as topic_module
from topicfs.storage.errors import PartitionOfflineError

pytestmark = pytest.mark.java


@pytest.fixture
def silent(monkeypatch):
    """Return a function that leaves requests for a topic's settings unanswered.

    Its parameter is the number of requests; None means all.
    """
    describe = topic_module.describe_topic

    def silence(times=None):
        left = [times]

        def instead(*asked, **how):
            if left[0] == 0:
                return describe(*asked, **how)
            left[0] = None if left[0] is None else left[0] - 1
            raise UnreachableError("nobody")

        monkeypatch.setattr(topic_module, "describe_topic", instead)

    return silence


def test_appends_use_the_last_known_settings(engine, silent, monkeypatch):
    """If no broker answers, appends use the last known settings, whereas a caller that reads settings gets an error."""
    topic = engine.create_topic("last-settings", overrides={"max.message.bytes": "1234"})
    assert 1234 == topic.config.max_message_bytes
    for name in ("SETTINGS_CACHE_SECONDS", "STALE_SETTINGS_SECONDS"):
        monkeypatch.setattr(topic_module, name, 0.0)
    topic._settings_until = 0.0
    silent()
    assert 1234 == topic.config.max_message_bytes
    assert 1234 == topic.partitions()[0].config.max_message_bytes
    with pytest.raises(PartitionOfflineError, match="last-settings: nobody"):
        topic.settings()


def test_settings_that_nobody_knows_yet_are_waited_for(engine, client, silent):
    """If a topic's settings were never known, an append waits for them as long as for a leader."""
    client.create_topic("first-settings", settings={"max.message.bytes": "1234"})
    found(engine, "first-settings")
    silent(2)
    assert 1234 == engine.topic("first-settings").config.max_message_bytes
    client.create_topic("no-settings")
    found(engine, "no-settings")
    engine.leaders.timeout_seconds = 0.2
    silent()
    with pytest.raises(PartitionOfflineError, match="no-settings: nobody"):
        engine.topic("no-settings").config  # noqa: B018 (it asks)
