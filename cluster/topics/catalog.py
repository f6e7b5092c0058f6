"""The topics of a cluster as last seen: which there are, and the bounds of their partitions."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from cluster.brokers.bounds import PartitionBounds, ask_bounds
from cluster.brokers.brokers import Metadata, TopicMetadata
from cluster.brokers.leaders import METADATA_SECONDS, Leaders
from cluster.cache.cache import Cache
from cluster.errors import LEADER_NOT_AVAILABLE, NONE
from cluster.topics.partition import ClusterPartition, PartitionServices
from cluster.topics.producer import Production
from cluster.topics.reader import WindowCache
from cluster.topics.topic import ClusterTopic
from storage.counts.engine_counts import EngineCounts
from storage.engine import Listeners
from storage.errors import ClusterError
from storage.model import TopicPartition

MOST_THREADS = 16
LAG_SECONDS = 2.0
"""Time for which a topic may be missing in the metadata before it counts as deleted: a broker may lag behind.

One that was away for longer may lag for longer: a topic that is named again is there again.
"""


class Catalog:
    """The topics, as an immutable mapping that is replaced as a whole. Safe from any thread."""

    def __init__(
        self,
        leaders: Leaders,
        windows: WindowCache,
        production: Production | None = None,
        cache: Cache | None = None,
        counts: EngineCounts | None = None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Make the catalog. Without `production` partitions are read-only; with `cache` fetched records are kept on disk."""
        self.topics: Mapping[str, ClusterTopic] = {}
        self.listeners = Listeners()
        """Notified after topics or partitions were added or removed."""
        self.generation = 0
        """A number that grows with each change of the topics, and of the partitions that have listeners."""
        self._leaders, self._windows = leaders, windows
        self._services = PartitionServices(leaders, windows, production, cache, counts or EngineCounts())
        self._lock = threading.Lock()
        self._stirred = threading.Condition()
        self._clock = clock
        self._missing_since: dict[str, float] = {}
        """The time of the first look at the metadata in which a topic was missing, by its id, until it is seen again."""
        self._deleted: set[str] = set()
        """Ids of topics that were deleted here: a broker that lags behind may still name them."""
        self._tried: set[str] = set()
        """Ids of topics whose partitions' bounds were asked for."""

    def partitions(self) -> list[ClusterPartition]:
        return [one for topic in self.topics.values() for one in topic.known.values()]

    def stir(self) -> None:
        """Wake those that wait for a change."""
        with self._stirred:
            self.generation += 1
            self._stirred.notify_all()

    def wait_after(self, generation: int, seconds: float) -> bool:
        """Wait until there is a later generation; false if there was none in time."""
        with self._stirred:
            return self._stirred.wait_for(lambda: self.generation != generation, seconds)

    def follow(self, metadata: Metadata, *, deleted: str | None = None) -> None:
        """Take over a broker's metadata; `deleted` is the id of a topic that is gone, whatever the metadata say (blocking)."""
        with self._lock:
            if deleted is not None:
                self._deleted.add(deleted)
            found = self._found(metadata)
            lacking = {
                TopicPartition(name, number): topic
                for name, topic in found.items()
                if name in metadata.topics and metadata.topics[name].topic_id == topic.topic_id
                for number in metadata.topics[name].leaders.keys() - topic.known.keys()
            }
            answers = self._ask_bounds(metadata, list(lacking))
            self._add(lacking, answers)
            listed = {
                name: topic for name, topic in found.items() if topic.known or topic.topic_id in self._tried
            }
            self._tried = {topic.topic_id for topic in found.values()}
            before, self.topics = self.topics, dict(sorted(listed.items()))
            for name, topic in before.items():
                if listed.get(name) is not topic:
                    for one in topic.known.values():
                        one.end()
            changed = before != self.topics or any(
                isinstance(one, PartitionBounds) for one in answers.values()
            )
        if changed:
            self.stir()
            self.listeners.notify()

    def _found(self, metadata: Metadata) -> dict[str, ClusterTopic]:
        """Return the topics that exist, those already known as they are."""
        found = {
            name: self._topic(topic)
            for name, topic in metadata.topics.items()
            if topic.error == NONE and topic.topic_id not in self._deleted
        }
        now, missing_since = self._clock(), {}
        for name, topic in self.topics.items():
            if name not in found and topic.topic_id not in self._deleted:
                since = self._missing_since.get(topic.topic_id, now)
                if now - since < LAG_SECONDS:
                    missing_since[topic.topic_id] = since
                    found[name] = topic
        self._missing_since = missing_since
        return found

    def _topic(self, metadata: TopicMetadata) -> ClusterTopic:
        known = self.topics.get(metadata.name)
        if known is not None and known.topic_id == metadata.topic_id:
            return known
        return ClusterTopic(metadata, self._leaders, self._windows.threads)

    def _add(
        self,
        lacking: Mapping[TopicPartition, ClusterTopic],
        answers: Mapping[TopicPartition, PartitionBounds | int],
    ) -> None:
        added: dict[ClusterTopic, dict[int, ClusterPartition]] = defaultdict(dict)
        for name, topic in lacking.items():
            bounds = answers[name]
            if isinstance(bounds, PartitionBounds):
                added[topic][name.partition] = ClusterPartition(
                    name,
                    topic.topic_id,
                    self._services,
                    bounds=bounds,
                    ask_settings=topic.ask_settings,
                    followed=self.stir,
                )
        for topic, partitions in added.items():
            topic.known = dict(sorted({**topic.known, **partitions}.items()))

    def _ask_bounds(
        self, metadata: Metadata, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, PartitionBounds | int]:
        """Return the bounds, asked of all leaders at once, or Kafka's error codes."""
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for one in partitions:
            leader = metadata.leader(one)
            if leader.node in metadata.brokers:
                by_leader[leader.node][one] = leader.epoch
        found: dict[TopicPartition, PartitionBounds | int] = dict.fromkeys(partitions, LEADER_NOT_AVAILABLE)
        if by_leader:
            with ThreadPoolExecutor(min(MOST_THREADS, len(by_leader))) as threads:
                for answer in threads.map(self._bounds_at, by_leader, by_leader.values()):
                    found |= answer
        return found

    def _bounds_at(
        self, node: int, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, PartitionBounds | int]:
        try:
            return ask_bounds(self._leaders.brokers, node, epochs, seconds=METADATA_SECONDS)
        except ClusterError:
            return {}
