"""Tests of the known topics of a cluster, as reported by brokers that lag behind each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from topicfs.cluster.brokers.bounds import PartitionBounds
from topicfs.cluster.brokers.brokers import Leader, Metadata, Server, TopicMetadata
from topicfs.cluster.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UnreachableError
from topicfs.cluster.topics import catalog as catalog_module
from topicfs.cluster.topics.catalog import LAG_SECONDS, Catalog
from topicfs.cluster.topics.reader import WindowCache
from topicfs.storage.errors import NotAuthorizedError, PartitionGoneError
from topicfs.storage.model import Offset

BROKERS = {1: Server("one", 9092)}
BOUNDS = PartitionBounds(Offset(0), Offset(0), Offset(0), 0)


class NoCluster:
    """Replaces the leaders and brokers. The catalog asks them only about topics that are missing in the metadata."""

    def __init__(self) -> None:
        self.brokers = self
        self.hidden: dict[str, int] = {}
        """Error codes of topics that are missing in the metadata, by topic id. All other missing topics were deleted."""
        self.away = False

    def answers_by_id(self, topics: Mapping[str, str], *, seconds: float) -> dict[str, int]:
        assert seconds > 0
        if self.away:
            raise UnreachableError("no broker answers")
        return {name: self.hidden.get(one, UNKNOWN_TOPIC_ID) for name, one in topics.items()}


class Looks:
    """A catalog, and the metadata that it gets over time."""

    def __init__(self, windows: WindowCache) -> None:
        self.now = 0.0
        self.cluster = NoCluster()
        leaders: Any = self.cluster
        self.catalog = Catalog(leaders, windows, clock=lambda: self.now)

    def see(self, deleted: str | None = None, **ids: str) -> dict[str, str]:
        """Process metadata with the topics `ids`; return the ids of the topics that the catalog then has."""
        topics = {name: TopicMetadata(name, one, False, {0: Leader(1, 0)}) for name, one in ids.items()}
        self.catalog.follow(Metadata("cluster", BROKERS, topics), deleted=deleted)
        return {name: topic.topic_id for name, topic in self.catalog.topics.items()}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    def bounds(_brokers: object, _node: int, epochs: Any, **_: object) -> Any:
        return dict.fromkeys(epochs, BOUNDS)

    monkeypatch.setattr(catalog_module, "ask_bounds", bounds)
    windows = WindowCache()
    with closing(windows):
        yield Looks(windows)


def test_a_topic_is_missing_for_a_while_before_it_is_gone(looks: Looks):
    """A topic is deleted only after metadata omit it for a time, however many answers arrive, as brokers may lag."""
    assert {"orders": "a"} == looks.see(orders="a")
    partition = looks.catalog.topics["orders"].known[0]
    for _ in range(10):
        assert {"orders": "a"} == looks.see()
        looks.now += LAG_SECONDS / 20
    assert {"orders": "a"} == looks.see(orders="a")
    looks.now += 2 * LAG_SECONDS
    assert {"orders": "a"} == looks.see()
    assert partition is looks.catalog.topics["orders"].known[0]
    looks.now += LAG_SECONDS
    assert {} == looks.see()
    with pytest.raises(PartitionGoneError):
        partition.read(Offset(0), max_bytes=1)


def test_a_topic_that_reappears_has_new_partition_objects(looks: Looks):
    """A topic that reappears after its deletion has new partition objects.

    Users of the old partition objects have already noticed the deletion.
    """
    looks.see(orders="a")
    before = looks.catalog.topics["orders"]
    looks.see()
    looks.now += LAG_SECONDS
    assert {} == looks.see()
    assert {"orders": "a"} == looks.see(orders="a")
    assert before is not looks.catalog.topics["orders"]
    assert [0] == list(looks.catalog.topics["orders"].known)


def test_a_topic_that_was_deleted_here_stays_away(looks: Looks):
    """If a topic was deleted through this engine, it is gone at once, even if lagging brokers still report it.

    A topic of the same name with another id is a new topic.
    """
    looks.see(orders="a")
    assert {} == looks.see(deleted="a", orders="a")
    looks.now += 2 * LAG_SECONDS
    assert {} == looks.see(orders="a")
    assert {"orders": "b"} == looks.see(orders="b")


def test_a_topic_that_may_not_be_described_is_not_deleted(looks: Looks):
    """Partitions of a denied topic fail with the reason, until the topic is in the metadata again or was deleted."""
    looks.see(orders="a")
    partition = looks.catalog.topics["orders"].known[0]
    looks.cluster.hidden = {"a": TOPIC_AUTHORIZATION_FAILED}
    looks.see()
    for _ in range(2):
        looks.now += LAG_SECONDS
        assert {"orders": "a"} == looks.see()
        with pytest.raises(NotAuthorizedError, match="TOPIC_AUTHORIZATION_FAILED"):
            partition.find_bounds()
    looks.see(orders="a")
    assert partition is looks.catalog.topics["orders"].known[0]
    partition.find_bounds()
    looks.see()
    looks.now += LAG_SECONDS
    looks.see()
    looks.cluster.hidden = {}
    assert {} == looks.see()
    with pytest.raises(PartitionGoneError):
        partition.find_bounds()


def test_a_topic_that_a_broker_knows_by_id_is_not_deleted(looks: Looks):
    """If a user loses and regains the right to describe a topic, its open partitions continue."""
    looks.see(orders="a")
    partition = looks.catalog.topics["orders"].known[0]
    for code in (TOPIC_AUTHORIZATION_FAILED, NONE):
        looks.cluster.hidden = {"a": code}
        looks.see()
        looks.now += LAG_SECONDS
        assert {"orders": "a"} == looks.see()
    partition.find_bounds()
    assert {"orders": "a"} == looks.see(orders="a")
    assert partition is looks.catalog.topics["orders"].known[0]


def test_a_missing_topic_stays_while_nobody_can_be_asked_by_id(looks: Looks):
    """While no broker can look up topic ids, other topics are updated.

    A missing topic stays listed, and a topic without the right to describe it still fails.
    """
    looks.see(orders="a", hidden="b")
    partition = looks.catalog.topics["hidden"].known[0]
    looks.cluster.hidden = {"b": TOPIC_AUTHORIZATION_FAILED}
    looks.see(orders="a")
    looks.now += LAG_SECONDS
    looks.see(orders="a")
    looks.cluster.away = True
    assert {"hidden": "b", "new": "c", "orders": "a"} == looks.see(orders="a", new="c")
    with pytest.raises(NotAuthorizedError):
        partition.find_bounds()
