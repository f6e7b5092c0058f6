"""The known topics of a cluster, and the bounds of their partitions."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic

from topicfs.cluster import errors
from topicfs.cluster.brokers.bounds import NO_LEADER, PartitionBounds, ask_bounds
from topicfs.cluster.brokers.brokers import Metadata, TopicMetadata
from topicfs.cluster.brokers.leaders import METADATA_TIMEOUT_SECONDS, Leaders
from topicfs.cluster.cache.cache import Cache
from topicfs.cluster.topics.partition import ClusterPartition, PartitionServices
from topicfs.cluster.topics.producer import Production
from topicfs.cluster.topics.reader import WindowCache
from topicfs.cluster.topics.topic import ClusterTopic
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.engine import Listeners
from topicfs.storage.errors import ClusterError
from topicfs.storage.model import TopicPartition

MAX_WATCH_THREADS = 16
LAG_SECONDS = 2.0
"""How long a topic may be missing in the metadata before brokers are asked why it is missing: one broker may lag
behind.

If a broker lags longer than this, a topic may disappear. It is listed again once the metadata has it.
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
        """Make the catalog.

        Without `production`, partitions are read-only. With `cache`, fetched batches are also stored in the disk cache.
        """
        self.topics: Mapping[str, ClusterTopic] = {}
        self.listeners = Listeners()
        """Called after topics or partitions were added or removed."""
        self.generation = 0
        """A counter that grows when topics change, or when the first listener of a partition is added."""
        self._leaders, self._windows = leaders, windows
        self._services = PartitionServices(leaders, windows, production, cache, counts or EngineCounts())
        self._lock = threading.Lock()
        self._stirred = threading.Condition()
        self._clock = clock
        self._missing_since: dict[str, float] = {}
        """When each topic id was first missing in the metadata. An entry is removed when its topic reappears."""
        self._denied: set[str] = set()
        """Names of topics that the user may no longer describe. They stay listed, and using their partitions raises
        the error.
        """
        self._deleted: set[str] = set()
        """Ids of topics that this engine deleted, which a broker that lags behind may still report."""
        self._tried: set[str] = set()
        """Ids of topics for which leaders have been asked for the bounds of the partitions."""

    def partitions(self) -> list[ClusterPartition]:
        return [one for topic in self.topics.values() for one in topic.known.values()]

    def notify_changed(self) -> None:
        """Count a change, and wake waiting threads."""
        with self._stirred:
            self.generation += 1
            self._stirred.notify_all()

    def wait_after(self, generation: int, seconds: float) -> bool:
        """Wait until the generation changes. Return False if it does not change in time."""
        with self._stirred:
            return self._stirred.wait_for(lambda: self.generation != generation, seconds)

    def follow(self, metadata: Metadata, *, deleted: str | None = None) -> None:
        """Apply a broker's metadata; `deleted` is the id of a topic to drop, even if the metadata has it (blocking)."""
        with self._lock:
            if deleted is not None:
                self._deleted.add(deleted)
            found, denied = self._found(metadata)
            partitions = {topic: self._partitions_of(topic, metadata) for topic in found.values()}
            unknown = [
                one for those in partitions.values() for one in those.values() if one.unknown is not None
            ]
            self._ask(metadata, unknown)
            for name in (denied ^ self._denied) & found.keys():
                for one in found[name].known.values():
                    one.deny(
                        str(errors.error_of(errors.TOPIC_AUTHORIZATION_FAILED, str(one)))
                        if name in denied
                        else None
                    )
            self._denied = denied
            changed = any(one.unknown is None for one in unknown)
            for topic, those in partitions.items():
                changed = changed or len(those) > len(topic.known)
                topic.known = those
            listed = {
                name: topic
                for name, topic in found.items()
                if topic.topic_id in self._tried or all(one.unknown is None for one in topic.known.values())
            }
            self._tried = {topic.topic_id for topic in found.values()}
            before, self.topics = self.topics, dict(sorted(listed.items()))
            for name, topic in before.items():
                if listed.get(name) is not topic:
                    for one in topic.known.values():
                        one.end()
            changed = changed or before != self.topics
        if changed:
            self.notify_changed()
            self.listeners.notify()

    def _found(self, metadata: Metadata) -> tuple[dict[str, ClusterTopic], set[str]]:
        """Return the existing topics, and the names of denied topics (blocking). Known topics keep their objects."""
        found = {
            name: self._topic(topic)
            for name, topic in metadata.topics.items()
            if topic.error == errors.NONE and topic.topic_id not in self._deleted
        }
        now, late = self._clock(), dict[str, ClusterTopic]()
        missing_since: dict[str, float] = {}
        for name, topic in self.topics.items():
            if name not in found and topic.topic_id not in self._deleted:
                since = missing_since[topic.topic_id] = self._missing_since.get(topic.topic_id, now)
                if now - since < LAG_SECONDS:
                    found[name] = topic
                else:
                    late[name] = topic
        self._missing_since = missing_since
        ids = {name: topic.topic_id for name, topic in late.items()}
        try:
            codes = self._leaders.brokers.answers_by_id(ids, seconds=METADATA_TIMEOUT_SECONDS) if ids else {}
        except errors.UnreachableError:  # Without an answer, missing topics stay listed.
            codes = dict.fromkeys(self._denied & ids.keys(), errors.TOPIC_AUTHORIZATION_FAILED)
        existing = {name: topic for name, topic in late.items() if codes.get(name) not in errors.DELETED}
        denied = {name for name, code in codes.items() if code == errors.TOPIC_AUTHORIZATION_FAILED}
        return found | existing, denied

    def _topic(self, metadata: TopicMetadata) -> ClusterTopic:
        known = self.topics.get(metadata.name)
        if known is not None and known.topic_id == metadata.topic_id:
            return known
        return ClusterTopic(metadata, self._leaders, self._windows.threads)

    def _partitions_of(self, topic: ClusterTopic, metadata: Metadata) -> Mapping[int, ClusterPartition]:
        """Return all partitions in the metadata, reusing known objects."""
        seen = metadata.topics.get(topic.name)
        if seen is None or seen.topic_id != topic.topic_id or seen.leaders.keys() <= topic.known.keys():
            return topic.known
        added = {
            number: ClusterPartition(
                TopicPartition(topic.name, number),
                topic.topic_id,
                self._services,
                ask_settings=topic.ask_settings,
                followed=self.notify_changed,
            )
            for number in seen.leaders.keys() - topic.known.keys()
        }
        return dict(sorted({**topic.known, **added}.items()))

    def _ask(self, metadata: Metadata, partitions: list[ClusterPartition]) -> None:
        """Ask all leaders in parallel for bounds (blocking); each partition records its bounds or why it has none."""
        by_leader: dict[int, list[ClusterPartition]] = defaultdict(list)
        for one in partitions:
            leader = metadata.leader(one.name)
            if leader.node in metadata.brokers:
                by_leader[leader.node].append(one)
            else:
                one.note_silence(NO_LEADER)
        if by_leader:
            with ThreadPoolExecutor(min(MAX_WATCH_THREADS, len(by_leader))) as threads:
                list(threads.map(partial(self._ask_leader, metadata), by_leader, by_leader.values()))

    def _ask_leader(self, metadata: Metadata, node: int, partitions: list[ClusterPartition]) -> None:
        epochs = {one.name: metadata.leader(one.name).epoch for one in partitions}
        try:
            answers = ask_bounds(self._leaders.brokers, node, epochs, seconds=METADATA_TIMEOUT_SECONDS)
        except ClusterError as error:
            for one in partitions:
                one.note_silence(str(error))
            return
        for one in partitions:
            answer = answers.get(one.name, errors.LEADER_NOT_AVAILABLE)
            if isinstance(answer, PartitionBounds):
                one.learn(answer)
            else:
                one.note_silence(f"its leader answers {errors.kind_of(answer).name}")
