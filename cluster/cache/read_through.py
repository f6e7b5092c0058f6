"""The cache of a partition, as the partition's reader uses it.

The reader looks in the cache first, compares the cache with each new leader's log, and stores what it fetches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from topicfs.cluster.brokers.bounds import PartitionBounds
from topicfs.cluster.brokers.fetch import epoch_ends
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.brokers.settings import TopicSettings
from topicfs.cluster.cache.cache import Cache
from topicfs.cluster.cache.cache_file import DamagedError, FetchedBatches
from topicfs.cluster.cache.partition_cache import PartitionCache
from topicfs.storage.checkpoints.leader_epochs import EpochEnd
from topicfs.storage.errors import ClusterError, StorageError
from topicfs.storage.model import Isolation, Offset, TopicPartition

PLAIN_SECONDS = 60.0
"""How long a topic counts as not compacted after its settings were read and had no compaction."""


class ReadThroughCache:
    """The cached records of a partition. Safe from any thread. Never raises errors: after an error, ask the cluster."""

    def __init__(
        self,
        cache: Cache,
        leaders: Leaders,
        partition: TopicPartition,
        topic_id: str,
        ask_settings: Callable[[], TopicSettings],
    ) -> None:
        self._cache, self._leaders = cache, leaders
        self._partition, self._topic_id = partition, topic_id
        self._ask_settings = ask_settings
        self._found: PartitionCache | None = None
        """The partition's cache; None until a thread that may wait has loaded it."""
        self._plain_until = 0.0
        """The time until which the topic is assumed not to be compacted."""

    def window(
        self, offset: Offset, max_bytes: int, isolation: Isolation, known: PartitionBounds
    ) -> FetchedBatches | None:
        """Return batches from the one containing `offset`; None if they are not cached."""
        if self._found is None or time.monotonic() >= self._plain_until:
            return None
        return self._found.window(offset, max_bytes, isolation, known)

    def end_from(self, offset: Offset, known: PartitionBounds) -> Offset:
        """Return the exclusive end of the records cached from `offset` without a gap; `offset` if there are none."""
        return self._found.end_from(offset, known) if self._found else offset

    def check(self, known: PartitionBounds) -> None:
        """Check the cached records again after the leader or cleanup.policy has changed (blocking)."""
        if not self._cache.working and self._found is None:
            return
        files = self._files()
        if not files.empty and self._is_compacted():
            files.remove()
        if files.needs_check(known):
            with suppress(StorageError):  # The next call tries again.
                files.check(partial(self._ask_epoch_end, known.leader_epoch), known.leader_epoch)

    def put(self, window: FetchedBatches, known: PartitionBounds) -> None:
        """Cache a window (blocking), unless the topic is compacted: compaction may change batches at any time."""
        if not window.data or not self._cache.working:
            return
        try:
            compacted = self._is_compacted()
            if compacted:
                self._files().remove()
            elif compacted is not None:
                self._files().put(window, known)
        except OSError as error:
            self._cache.fail(error)
        except (DamagedError, StorageError) as error:
            self._cache.damaged(str(error))
        self._cache.make_room()

    def remove(self) -> None:
        """Remove the cached records of a deleted topic."""
        self._files().remove()

    def _is_compacted(self) -> bool | None:
        """Return whether the topic is compacted. If no broker answers, return the last known value, or None."""
        now = time.monotonic()
        if now < self._plain_until:
            return False
        try:
            settings = self._ask_settings()
            if settings.refused is not None:
                raise settings.refused
            if settings.config.compacts:
                return True
        except StorageError:
            if not self._plain_until:
                return None
        self._plain_until = now + PLAIN_SECONDS
        return False

    def _files(self) -> PartitionCache:
        if self._found is None:
            self._found = self._cache.partition(
                self._leaders.metadata.cluster_id, self._topic_id, self._partition.partition
            )
        return self._found

    def _ask_epoch_end(self, leader_epoch: int, epoch: int) -> EpochEnd:
        name, node = self._partition, self._leaders.metadata.leader(self._partition).node
        ends = epoch_ends(self._leaders.brokers, node, {name: epoch}, {name: leader_epoch})
        if name not in ends:
            raise ClusterError(f"{name}: broker {node} does not lead it in epoch {leader_epoch}")
        return ends[name]
