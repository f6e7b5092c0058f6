"""The engine over a Kafka cluster (`storage.engine`); threads keep the topics and the partitions' bounds up to date."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from topicfs.cluster.brokers.admin import Admin
from topicfs.cluster.brokers.bounds import ask_leader_for_bounds
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.cache.cache import Cache
from topicfs.cluster.groups.groups import ClusterGroups
from topicfs.cluster.place import ClusterAddress
from topicfs.cluster.protocol.connection import Connection
from topicfs.cluster.protocol.security import PLAINTEXT, Security
from topicfs.cluster.topics.catalog import Catalog
from topicfs.cluster.topics.partition import ClusterPartition
from topicfs.cluster.topics.producer import Production
from topicfs.cluster.topics.producer_ids import ProducerIds
from topicfs.cluster.topics.reader import WindowCache
from topicfs.cluster.topics.topic import ClusterTopic
from topicfs.cluster.topics.watch import Watch
from topicfs.coordination.engine import Replication
from topicfs.coordination.shares.groups import NoShareGroups, ShareGroups
from topicfs.storage import errors
from topicfs.storage.codec.headers import Codec
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.disk.names import check_new_topic, check_partitions
from topicfs.storage.engine import Cancel, records_of
from topicfs.storage.messages import WarningBook
from topicfs.storage.model import DirectoryStatus, Timestamp

NO_SHARE_GROUPS = NoShareGroups(
    "the client of a cluster does not speak the protocol of share groups; use kafka-share-groups and kafka-console-share-consumer"
)


class CacheSettings(NamedTuple):
    directory: Path
    max_bytes: int


def open_engine(
    address: ClusterAddress,
    security: Security = PLAINTEXT,
    *,
    read_only: bool = False,
    cache: CacheSettings | None = None,
    codec: Codec | None = None,
) -> ClusterEngine:
    """Open a cluster (blocking). Starts threads, so call it after any fork, in the process that uses the engine.

    Appended lines are compressed with `codec`, or if it is None, their topic's codec.

    Raises UnreachableError, NotKafkaError, AuthenticationError, ClusterError, CacheError, OSError.
    """
    brokers = Brokers(address, partial(Connection, security=security))
    try:
        return ClusterEngine(Leaders(brokers), read_only=read_only, cache=cache, codec=codec)
    except BaseException:
        brokers.close()
        raise


class ClusterEngine:
    """Implements `coordination.engine.Engine` over a Kafka cluster."""

    remote = True
    foreign = False
    doing: str | None = None
    scrub: str | None = None
    scrubber: None = None
    share_groups: ShareGroups = NO_SHARE_GROUPS
    replication: Replication | None = None

    def __init__(
        self,
        leaders: Leaders,
        *,
        read_only: bool,
        cache: CacheSettings | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Connect to the cluster, and open the cache if `cache` is given. Raises CacheError, OSError."""
        self.read_only = read_only
        self.leaders = leaders
        self._windows = WindowCache()
        self._warnings = WarningBook(lambda: Timestamp(time.time_ns() // 1_000_000))
        self._cache: Cache | None = None
        if cache is not None:
            self._cache = Cache(cache.directory, cache.max_bytes, self._warnings)
            topics = leaders.metadata.topics.values()
            self._cache.find(leaders.metadata.cluster_id, {one.topic_id for one in topics})
        production = None if read_only else Production(ProducerIds(leaders), codec)
        self.counts = EngineCounts()
        self._catalog = Catalog(leaders, self._windows, production, self._cache, self.counts)
        self._catalog.follow(leaders.metadata)
        self._admin = Admin(leaders)
        for one in self._catalog.partitions() if self._cache else ():
            self._windows.threads.submit(one.look_at_cache)
        self._watch = Watch(leaders, self._catalog)
        self.groups = ClusterGroups(leaders, self._catalog, read_only=read_only)

    @property
    def warnings(self) -> Sequence[str]:
        if self.leaders.closed:  # The engine is closed: do not report anything.
            return tuple(self._warnings.lines)
        now = filter(None, (self._watch.warning, self.leaders.metadata.warning))
        return (*self._warnings.lines, *now, *self.leaders.waiting())

    def call_before_waiting(self, hook: Callable[[], None]) -> None:
        self.leaders.before_waiting = hook

    def topics(self) -> Mapping[str, ClusterTopic]:
        return self._catalog.topics

    def topic(self, name: str) -> ClusterTopic:
        found = self._catalog.topics.get(name)
        if found is None:
            raise errors.UnknownTopicError.of(name)
        return found

    def partition(self, topic: str, number: int) -> ClusterPartition:
        known = self.topic(topic).known
        found = known.get(number)
        if found is None:
            raise errors.UnknownTopicError.of_partition(topic, number, known)
        return found

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> ClusterTopic:
        self._check_writable(name)
        if topic_id is not None:
            raise errors.InvalidConfigError(f"{name}: a cluster assigns topic ids itself")
        check_new_topic(name, self._catalog.topics)
        if partitions is not None:
            check_partitions(partitions)
        made = self._admin.create_topic(name, partitions=partitions, overrides=overrides or {})
        self._wait_until(
            name, lambda topic: topic is not None and topic.topic_id == made and self._is_whole(topic)
        )
        return self.topic(name)

    def add_partitions(self, topic: str, *, total: int) -> None:
        self._check_writable(topic)
        check_partitions(total)
        if total > len(self.topic(topic).known):
            before = self.topic(topic).known.keys()
            self._admin.add_partitions(topic, total=total)
            self._wait_until(
                topic,
                lambda found: (
                    found is None
                    or (len(found.known) >= total and _are_known(found, found.known.keys() - before))
                ),
            )

    def delete_topic(self, name: str, *, with_records: bool = True) -> None:
        self._check_writable(name)
        topic = self.topic(name)
        if not with_records:
            self._check_empty(topic)
        self._admin.delete_topic(name, topic.topic_id)
        self.look(deleted=topic.topic_id)
        self.counts.topic_deleted(name)

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        self._check_writable(topic)
        found = self.topic(topic)
        self._admin.alter_settings(topic, changes)
        found.wait_for_settings(changes)

    def reconfigure(self, config: EngineConfig) -> None:  # noqa: ARG002 - the protocol hands settings to every engine
        raise errors.StorageError(
            "the settings of a cluster's brokers cannot be changed here; topicfs config changes settings of a topic"
        )

    def reopen_partition(self, topic: str, number: int) -> ClusterPartition:
        """Return the partition. It is not reopened, because only brokers open replicas."""
        return self.partition(topic, number)

    def directories(self) -> Sequence[DirectoryStatus]:
        return ()

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self._catalog.listeners.add(listener)

    def maintenance(self, now: Timestamp) -> None:
        """Do nothing: brokers do their own maintenance."""

    def keep_log_starts(self) -> None:
        """Do nothing: the brokers store the log starts on disk."""

    def close(self) -> None:
        self.groups.close()
        self.leaders.close()
        self._windows.close()
        if self._cache is not None:
            self._cache.close()

    def look(self, *, deleted: str | None = None) -> None:
        """Refresh the cluster's metadata, and notify the listeners of changes (blocking).

        Each change of topics calls this method before it returns. `deleted` is the id of a topic that the change
        deleted. Raises the errors of `Brokers.metadata`.
        """
        self._catalog.follow(self.leaders.look(), deleted=deleted)

    def _check_writable(self, what: str) -> None:
        if self.read_only:
            raise errors.ReadOnlyError(f"{what}: the cluster was opened read-only")

    def _is_whole(self, topic: ClusterTopic) -> bool:
        """Return whether all partitions of a topic are known."""
        named = self.leaders.metadata.topics[topic.name].leaders.keys()
        return named == topic.known.keys() and _are_known(topic, named)

    def _check_empty(self, topic: ClusterTopic) -> None:
        """Raise TopicNotEmptyError if the leaders report records, also records that other clients have just written.

        Raises PartitionOfflineError if the leader of a partition does not answer, because the partition may have
        records.
        """
        self.look()
        for one in topic.known.values():
            one.learn(ask_leader_for_bounds(self.leaders, one.name, one.topic_id))
        if records := records_of(topic):
            raise errors.TopicNotEmptyError(topic.name, records)

    def _wait_until(self, name: str, shown: Callable[[ClusterTopic | None], bool]) -> None:
        """Refresh metadata until `shown` returns True for the topic (blocking). Raises ClusterError after a limit."""

        def seen() -> bool:
            with suppress(errors.ClusterError):  # The change was made; a later refresh may show it.
                self.look()
            return shown(self._catalog.topics.get(name))

        self._admin.wait_until(seen, name)


def _are_known(topic: ClusterTopic, numbers: Collection[int]) -> bool:
    """Return whether the bounds of all these partitions are known."""
    return all(topic.known[number].unknown is None for number in numbers)
