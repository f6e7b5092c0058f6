"""The threads that keep a cluster's catalog up to date: they ask for metadata, and for partitions' bounds.

* The watcher (one thread) asks for the topics and their leaders.
* A follower per broker waits for changed bounds and new records of partitions with listeners.
* A sweeper per broker asks for the bounds of all its partitions from time to time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from topicfs.cluster.brokers.bounds import PartitionBounds, ask_bounds
from topicfs.cluster.brokers.brokers import Backoff, Metadata
from topicfs.cluster.brokers.fetch import FetchPartition, FetchSession, epoch_ends
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, METADATA_TIMEOUT_SECONDS, Leaders
from topicfs.cluster.errors import NONE, kind_of
from topicfs.cluster.topics.catalog import Catalog
from topicfs.cluster.topics.partition import ClusterPartition
from topicfs.cluster.topics.producer import ANSWER_VALID_SECONDS
from topicfs.storage.errors import NotAuthorizedError, PartitionOfflineError, StorageError
from topicfs.storage.model import Isolation, TopicPartition

WATCH_POLL_MS = 500
"""How long a broker may wait for new records before it answers."""
SHORTEST_PAUSE_SECONDS = 0.002
"""Minimum pause before the next request, so that following a busy partition does not use a whole CPU."""
NO_NEWS_PAUSE_SECONDS = 0.01
"""Minimum pause after an answer without changes. The pause delays no append by this engine, because the append's own
answer shows its bounds.
"""
WATCH_ANSWER_BYTES = 1 << 20
WATCH_PARTITION_BYTES = 1 << 14
"""Maximum size of new records fetched together with a partition's bounds, because a reader usually wants them."""
FIRST_PERIOD_SECONDS = 0.05
"""First interval after an event. Each following interval is twice as long."""
PERIOD_SECONDS = 1.0
"""Longest interval, which applies while nothing happens."""
PAUSE_FACTOR = 20
"""The pause after a request is this many times as long as the request took, so that a thread uses at most 1/20 of a
CPU.
"""
DENIED_SECONDS = 60.0
"""Time after which a partition that the client may not read is requested again."""


class Round(NamedTuple):
    rest_seconds: float
    """Pause before the next round."""
    refused: bool
    """True if the broker rejected a partition, which may have a new leader."""
    moved: bool = True
    """True if known bounds have changed."""


class BoundsWatcher:
    """Reads, in rounds, the bounds of partitions that one broker leads. Used by one thread."""

    def __init__(
        self, leaders: Leaders, catalog: Catalog, node: int, *, sweeps: bool, partition_bytes: int
    ) -> None:
        """Make the watcher: with `sweeps` for all partitions of the broker, else for its partitions with listeners."""
        self._leaders, self._catalog, self._node = leaders, catalog, node
        self._sweeps, self._partition_bytes = sweeps, partition_bytes
        self._session = FetchSession(leaders.brokers, node, Isolation.READ_UNCOMMITTED)
        self._partitions: dict[TopicPartition, ClusterPartition] = {}
        self._wanted: dict[TopicPartition, FetchPartition] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """Leader epochs of the watched partitions."""
        self._refused: set[TopicPartition] = set()
        self._denied: dict[TopicPartition, float] = {}
        """Partitions that the client may not read, and when each is requested again."""
        self._told: set[TopicPartition] = set()
        """Partitions that the last round left out, because the answer to an append had just given their bounds."""
        self._metadata: Metadata | None = None
        self._generation = -1

    def choose(self) -> bool:
        """Choose the partitions to watch; return whether there are any."""
        metadata, generation = self._leaders.metadata, self._catalog.generation
        if metadata is not self._metadata and self._stays(metadata, generation):
            self._metadata = metadata
        if metadata is self._metadata and generation == self._generation:
            return bool(self._partitions)
        if metadata is not self._metadata:
            self._refused.clear()
        self._metadata, self._generation = metadata, generation
        self._partitions, self._wanted = {}, {}
        now = time.monotonic()
        for one in self._catalog.partitions():
            leader = metadata.leader(one.name)
            if leader.node == self._node and one.unknown is None and (self._sweeps or one.followed):
                self._partitions[one.name] = one
                self._epochs[one.name] = leader.epoch
                if one.name not in self._refused and self._denied.get(one.name, 0.0) < now:
                    self._want(one)
        return bool(self._partitions)

    def _stays(self, metadata: Metadata, generation: int) -> bool:
        """Return whether the choice of partitions is still right under newer metadata; choosing again is slow."""
        before = self._metadata
        return (
            before is not None
            and metadata.topics is before.topics
            and generation == self._generation
            and not self._refused
            and not self._denied
            and (self._sweeps or all(one.followed for one in self._partitions.values()))
        )

    def round(self, *, wait_ms: int) -> Round:
        """Fetch changes and apply them to the partitions (blocking). Raises the errors of `FetchSession.fetch`."""
        wanted = self._untold()
        told = len(wanted) < len(self._wanted)
        if not wanted:
            return Round(ANSWER_VALID_SECONDS if told else FIRST_PERIOD_SECONDS, refused=False, moved=False)
        if told:  # The other partitions are requested soon.
            wait_ms = min(wait_ms, int(ANSWER_VALID_SECONDS * 1000))
        answer = self._session.fetch(
            wanted, max_bytes=WATCH_ANSWER_BYTES, wait_ms=wait_ms, seconds=ATTEMPT_SECONDS
        )
        refused = moved = False
        for name, fetched in answer.partitions.items():
            partition = self._partitions.get(name)
            if partition is None:
                continue
            if fetched.error == NONE:
                before, request = partition.bounds, self._wanted[name]
                partition.take(request.offset, fetched, request.leader_epoch)
                self._want(partition)
                moved = moved or partition.bounds[:3] != before[:3]
                continue
            self._wanted.pop(name, None)
            if issubclass(kind_of(fetched.error).type, NotAuthorizedError):
                self._denied[name] = time.monotonic() + DENIED_SECONDS
            else:
                self._refused.add(name)
                refused = True
        return Round(0.0, refused, moved)

    def _untold(self) -> list[FetchPartition]:
        """Return the partitions to fetch, leaving out those whose bounds are known from the answer to a recent append.

        A fetch would return the batches that were just appended here. The next fetch of such a partition starts after
        these batches. If a partition has a new leader, it is left out until `ask_for_bounds` has compared the new
        leader's log with the known log.
        """
        if self._sweeps:
            return [one for name, one in self._wanted.items() if self._has_current_epoch(name)]
        for name in self._told & self._wanted.keys():
            self._want(self._partitions[name])
        now = time.monotonic()
        self._told = {name for name in self._wanted if now < self._partitions[name].told_until}
        return [
            one
            for name, one in self._wanted.items()
            if name not in self._told and self._has_current_epoch(name)
        ]

    def _has_current_epoch(self, name: TopicPartition) -> bool:
        return self._partitions[name].bounds.leader_epoch == self._epochs[name]

    def ask_for_bounds(self) -> None:
        """Ask for bounds that fetches do not return (blocking).

        These are the bounds of partitions that cannot be fetched or were rejected, of partitions with a new leader, and
        of partitions with open transactions: a fetch session does not report a change of only the last stable offset.
        """
        asked = {
            name: self._epochs[name]
            for name, one in self._partitions.items()
            if name not in self._wanted
            or one.bounds.leader_epoch < self._epochs[name]
            or (self._sweeps and one.bounds.last_stable_offset < one.bounds.high_watermark)
        }
        found = (
            ask_bounds(self._leaders.brokers, self._node, asked, seconds=METADATA_TIMEOUT_SECONDS)
            if asked
            else {}
        )
        known = {name: self._partitions[name].bounds.leader_epoch for name in found}
        older = {name: epoch for name, epoch in known.items() if epoch < self._epochs[name]}
        ends = epoch_ends(self._leaders.brokers, self._node, older, self._epochs) if older else {}
        for name, bounds in found.items():
            if isinstance(bounds, PartitionBounds) and (name in ends or name not in older):
                if name in ends:
                    self._partitions[name].follow_leader(older[name], ends[name].end_offset, bounds)
                self._partitions[name].learn(bounds)

    def _want(self, partition: ClusterPartition) -> None:
        self._wanted[partition.name] = FetchPartition(
            partition.name,
            partition.topic_id,
            partition.bounds.high_watermark,
            self._epochs[partition.name],
            max_bytes=self._partition_bytes,
        )


class Watch:
    """The threads that watch a cluster. They end after `Leaders.close`."""

    def __init__(self, leaders: Leaders, catalog: Catalog) -> None:
        self.warning: str | None = None
        """Why the cluster's metadata is outdated; None while the cluster answers."""
        self._leaders, self._catalog = leaders, catalog
        self._refused = threading.Event()
        self._nodes: set[int] = set()
        self._start(self._watch, "watcher")

    def _start(self, run: Callable[[], None], name: str) -> None:
        def until_closed() -> None:
            try:
                run()
            except PartitionOfflineError:
                return

        threading.Thread(target=until_closed, name=f"cluster {name}", daemon=True).start()

    def _watch(self) -> None:
        period = FIRST_PERIOD_SECONDS
        while True:
            for node in self._leaders.metadata.brokers.keys() - self._nodes:
                self._nodes.add(node)
                self._start(partial(self._follow, node), f"follower {node}")
                self._start(partial(self._sweep, node), f"sweeper {node}")
            began = time.monotonic()
            try:
                self._catalog.follow(self._leaders.look())
                self.warning = None
            except StorageError as error:
                self.warning = str(error)
            period = max(min(2 * period, PERIOD_SECONDS), PAUSE_FACTOR * (time.monotonic() - began))
            if self._refused.wait(period):
                self._refused.clear()
                period = FIRST_PERIOD_SECONDS
                self._leaders.pause(period, "watcher")
            self._leaders.pause(0, "watcher")

    def _follow(self, node: int) -> None:
        """Follow the partitions of a broker that have listeners."""
        follower = BoundsWatcher(
            self._leaders, self._catalog, node, sweeps=False, partition_bytes=WATCH_PARTITION_BYTES
        )
        backoff = Backoff()
        while True:
            generation = self._catalog.generation
            if not follower.choose():
                self._catalog.wait_after(generation, PERIOD_SECONDS)
                self._leaders.pause(0, "follower")
                continue
            try:
                follower.ask_for_bounds()
                found = follower.round(wait_ms=WATCH_POLL_MS)
            except StorageError:
                self._refused.set()
                self._leaders.pause(backoff.next(), "follower")
                continue
            backoff = Backoff()
            if found.refused:
                self._refused.set()
            shortest = SHORTEST_PAUSE_SECONDS if found.moved else NO_NEWS_PAUSE_SECONDS
            self._leaders.pause(max(found.rest_seconds, shortest), "follower")

    def _sweep(self, node: int) -> None:
        """Sweep all partitions of a broker; a new listener ends the pause."""
        sweeper = BoundsWatcher(self._leaders, self._catalog, node, sweeps=True, partition_bytes=0)
        period, backoff = FIRST_PERIOD_SECONDS, Backoff()
        while True:
            generation, began = self._catalog.generation, time.monotonic()
            try:
                rest = 0.0
                if sweeper.choose():
                    rest = sweeper.round(wait_ms=0).rest_seconds
                    sweeper.ask_for_bounds()
                backoff = Backoff()
            except StorageError:
                rest = backoff.next()
            self._leaders.pause(max(rest, PAUSE_FACTOR * (time.monotonic() - began)), "sweeper")
            stirred = self._catalog.wait_after(generation, period)
            period = FIRST_PERIOD_SECONDS if stirred else min(2 * period, PERIOD_SECONDS)
            self._leaders.pause(0, "sweeper")
