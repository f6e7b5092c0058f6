"""The engine over a Kafka cluster (`storage.engine`).

What is known without being asked is in its catalog, and in the bounds that each partition has; threads keep both up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from cluster.brokers import Brokers
from cluster.catalog import Catalog
from cluster.connection import Connection
from cluster.following import Watch
from cluster.leaders import Leaders
from cluster.partition import ClusterPartition
from cluster.place import ClusterAddress
from cluster.producing import ProducerIds
from cluster.reading import WindowCache
from cluster.security import PLAINTEXT, Security
from cluster.topic import ClusterTopic
from storage.engine import Cancel
from storage.errors import ReadOnlyError, UnknownTopicError
from storage.model import DirectoryStatus, Timestamp
from storage.remote import changes


def open_engine(
    address: ClusterAddress, security: Security = PLAINTEXT, *, read_only: bool = False
) -> ClusterEngine:
    """Open a cluster (blocking). It has threads: open it in the process that is to use it, after any fork.

    Raises UnreachableError, NotKafkaError, AuthenticationError, ClusterError.
    """
    brokers = Brokers(address, partial(Connection, security=security))
    try:
        return ClusterEngine(Leaders(brokers), read_only=read_only)
    except BaseException:
        brokers.close()
        raise


class ClusterEngine:
    """See `storage.engine.Engine`."""

    remote = True
    foreign = False
    doing: str | None = None

    def __init__(self, leaders: Leaders, *, read_only: bool) -> None:
        self.read_only = read_only
        self.leaders = leaders
        self._windows = WindowCache()
        self._catalog = Catalog(leaders, self._windows, None if read_only else ProducerIds(leaders))
        self._catalog.follow(leaders.metadata)
        self._watch = Watch(leaders, self._catalog)

    @property
    def warnings(self) -> Sequence[str]:
        return () if self._watch.warning is None else (self._watch.warning,)

    def topics(self) -> Mapping[str, ClusterTopic]:
        return self._catalog.topics

    def topic(self, name: str) -> ClusterTopic:
        found = self._catalog.topics.get(name)
        if found is None:
            raise UnknownTopicError(f"{name}: no such topic")
        return found

    def partition(self, topic: str, number: int) -> ClusterPartition:
        found = self.topic(topic).known.get(number)
        if found is None:
            raise UnknownTopicError(f"{topic}: no partition {number}")
        return found

    @changes
    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> ClusterTopic:
        del partitions, overrides, topic_id
        raise self._read_only(name)

    @changes
    def add_partitions(self, topic: str, *, total: int) -> None:
        del total
        raise self._read_only(topic)

    @changes
    def delete_topic(self, name: str) -> None:
        raise self._read_only(name)

    @changes
    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        del changes
        raise self._read_only(topic)

    def reopen_partition(self, topic: str, number: int) -> ClusterPartition:
        """Return the partition: its replicas are the brokers' to open."""
        return self.partition(topic, number)

    def directories(self) -> Sequence[DirectoryStatus]:
        return ()

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self._catalog.listeners.add(listener)

    def maintenance(self, now: Timestamp) -> None:
        """The brokers do their own."""

    def keep_log_starts(self) -> None:
        """The brokers do."""

    def close(self) -> None:
        self.leaders.close()
        self._windows.close()

    def look(self, *, deleted: str | None = None) -> None:
        """Find out what topics there are now, and notify the listeners of what changed (blocking).

        What changes topics calls it before it returns; `deleted` is the id of a topic that it deleted. Raises what
        `Brokers.metadata` does.
        """
        self._catalog.follow(self.leaders.look(), deleted=deleted)

    def _read_only(self, what: str) -> ReadOnlyError:
        return ReadOnlyError(f"{what}: the cluster was opened read-only")
