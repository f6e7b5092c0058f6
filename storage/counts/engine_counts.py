"""The counters of one engine. They are 0 when the engine is opened, and only grow.

Compiled code adds without a lock, because Python does not switch threads during an addition. Rare events take a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from topicfs.storage.counts.topic_counts import TopicCounts

MAX_COUNTED_TOPICS = 1000
"""Number of topics that have counters of their own; further topics are counted together."""

OTHERS = "@others"
"""The name under which further topics are counted together; no topic can have it."""

BUCKETS = 41
"""Number of buckets of durations. The last bucket counts all durations from 2^39 ns (nine minutes) on."""


class Durations:
    """A histogram of durations: bucket N counts durations in [2^(N-1), 2^N) nanoseconds. Safe from any thread."""

    __slots__ = ("_lock", "buckets", "total_ns")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.buckets = [0] * BUCKETS
        self.total_ns = 0

    def note(self, nanoseconds: int) -> None:
        with self._lock:
            self.buckets[min(max(nanoseconds, 0).bit_length(), BUCKETS - 1)] += 1
            self.total_ns += nanoseconds

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the duration of the block, even if the block fails."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            self.note(time.monotonic_ns() - began)


class EngineCounts:
    def __init__(self, max_topics: int = MAX_COUNTED_TOPICS) -> None:
        self._max_topics = max_topics
        self._lock = threading.Lock()
        self._topics: dict[str, TopicCounts] = {}
        self._others = TopicCounts(self)
        self.rolls = 0
        self.flushes = Durations()
        self.recoveries = 0
        """Logs that were recovered because they were not closed cleanly."""
        self.recovery_bytes_cut = 0
        """Bytes that recovery cut off because they were not whole batches."""
        self.cleanings = 0
        self.cleaned_bytes = 0
        self.isr_shrinks = 0
        """Number of changes after which a partition had fewer replicas in sync."""
        self.isr_expands = 0
        self.cache_hits = 0
        """Number of reads that were answered from a cluster's cached records. Counted only by a remote engine."""
        self.cache_misses = 0
        """Number of reads for which the engine asked a broker."""

    def topic(self, name: str) -> TopicCounts:
        """Return the counters of a topic.

        If MAX_COUNTED_TOPICS other topics have counters already, return the counters that all further topics share.
        """
        with self._lock:
            found = self._topics.get(name)
            if found is None and len(self._topics) < self._max_topics:
                found = self._topics[name] = TopicCounts(self)
            return self._others if found is None else found

    def topic_deleted(self, name: str) -> None:
        """Add a deleted topic's counters to the shared counters, so that no sum decreases."""
        with self._lock:
            gone = self._topics.pop(name, None)
            if gone is not None:
                self._others.add(gone)

    def by_topic(self) -> Mapping[str, TopicCounts]:
        """Return the counters by topic, and the shared counters under `OTHERS`. The caller may change the mapping."""
        with self._lock:
            return {**self._topics, OTHERS: self._others}
