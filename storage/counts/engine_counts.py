"""The counts of one engine: plain numbers that only grow, from the opening on.

Adding in compiled code takes no lock, for Python changes threads in no addition; rare events take one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from topicfs.storage.counts.topic_counts import TopicCounts

MAX_COUNTED_TOPICS = 1000
"""Number of topics that are counted by themselves; what is opened when there are as many is counted together."""

OTHERS = "@others"
"""The name under which the others are counted: no topic may have it."""

BUCKETS = 41
"""Number of buckets of durations: the last one holds all from 2^39 ns, nine minutes, on."""


class Durations:
    """A histogram of durations: bucket N counts those of at least 2^(N-1) and less than 2^N nanoseconds. Safe from any thread."""

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
        """Count how long the block takes, also where it fails."""
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
        """Logs that were recovered, because they were not closed in order."""
        self.recovery_bytes_cut = 0
        """Bytes that recovery cut off, for they were no whole batches."""
        self.cleanings = 0
        self.cleaned_bytes = 0
        self.isr_shrinks = 0
        """Changes after which fewer replicas of a partition were in sync."""
        self.isr_expands = 0
        self.cache_hits = 0
        """Reads that were answered by what a cluster's records were kept of; for an engine that is remote."""
        self.cache_misses = 0
        """Reads for which a broker was asked."""

    def topic(self, name: str) -> TopicCounts:
        """Return the counts to which a topic's logs add: its own, or those of all that find no place any more."""
        with self._lock:
            found = self._topics.get(name)
            if found is None and len(self._topics) < self._max_topics:
                found = self._topics[name] = TopicCounts(self)
            return self._others if found is None else found

    def topic_deleted(self, name: str) -> None:
        """Keep what was counted of a topic among the others': no sum ever goes back."""
        with self._lock:
            gone = self._topics.pop(name, None)
            if gone is not None:
                self._others.add(gone)

    def by_topic(self) -> Mapping[str, TopicCounts]:
        """Return the counts of each topic, and of all others under `OTHERS`; the mapping is the caller's."""
        with self._lock:
            return {**self._topics, OTHERS: self._others}
