"""Reads partitions: from fetched windows, else from the cache or the leader, with read-ahead for sequential readers.

    read ─► a window that holds the offset ─► a part of it; meanwhile the next window is fetched
                    │ none
                    ▼
            the files of the cache (`cluster.cache`), if there is one
                    │ not there
                    ▼
            fetched from the leader ─► kept as a window, and in the cache

A partition keeps at most two windows, and the total size of all windows is limited.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress

from topicfs.cluster.brokers.bounds import KnownBounds, PartitionBounds, ask_leader_for_bounds
from topicfs.cluster.brokers.brokers import Leader
from topicfs.cluster.brokers.fetch import FetchedPartition, FetchPartition, fetch
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, Leaders
from topicfs.cluster.cache.cache_file import FetchedBatches
from topicfs.cluster.cache.read_through import ReadThroughCache
from topicfs.cluster.errors import OFFSET_OUT_OF_RANGE, MalformedAnswerError, UnreachableError, error_of
from topicfs.storage.codec.batch import find_end
from topicfs.storage.errors import OffsetOutOfRangeError, PartitionOfflineError, StorageError
from topicfs.storage.model import Fetched, Isolation, Offset, Position, TopicPartition

FIRST_WINDOW_BYTES = 1 << 18
"""Size of a sequential reader's first window. Each following window is twice as large."""
LARGEST_WINDOW_BYTES = 4 << 20
WINDOW_CACHE_BYTES = 64 << 20
"""Maximum size of all partitions' windows. The windows of the least recently read partition are dropped first."""
FETCH_AHEAD_THREADS = 4
"""Number of threads for read-ahead."""


class WindowCache:
    """The windows of all readers of an engine, with a common size limit, and the read-ahead threads."""

    def __init__(self, kept_bytes: int = WINDOW_CACHE_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._readers: OrderedDict[PartitionReader, int] = OrderedDict()
        """The size of each reader's windows, the least recently used reader first."""
        self._bytes = 0
        self._lock = threading.Lock()
        self.threads = ThreadPoolExecutor(FETCH_AHEAD_THREADS, thread_name_prefix="read ahead")

    def note(self, reader: PartitionReader, size: int) -> None:
        """Record that a reader was used just now, and the size of its windows."""
        with self._lock:
            self._bytes += size - self._readers.pop(reader, 0)
            self._readers[reader] = size
            dropped = []
            while self._bytes > self._kept_bytes and len(self._readers) > 1:
                oldest, taken = self._readers.popitem(last=False)
                self._bytes -= taken
                dropped.append(oldest)
        for one in dropped:
            one.forget()

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)


class PartitionReader:
    """Reads one partition. Safe from any thread."""

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: str,
        leaders: Leaders,
        cache: WindowCache,
        *,
        known: KnownBounds,
        kept: ReadThroughCache | None = None,
    ) -> None:
        """Make the reader. With `kept`, fetched batches are also stored in the disk cache."""
        self._partition, self._topic_id = partition, topic_id
        self._leaders, self._cache, self._known = leaders, cache, known
        self._kept = kept
        self._windows: tuple[FetchedBatches, ...] = ()
        self._latest: tuple[FetchedBatches, ...] = ()
        """Windows with the most recently appended records, if the partition has listeners."""
        self._ahead: Future[None] | None = None
        """The read-ahead in progress, or the last one."""
        self._goes_on_at = Offset(-1)
        """Where the last read ended. A read that starts at this offset is sequential."""
        self._window_bytes = 0
        self._lock = threading.Lock()

    def at_hand(
        self, offset: Offset, max_bytes: int, isolation: Isolation, known: PartitionBounds
    ) -> Fetched | None:
        """Return batches that were fetched before; None without such batches, or if the leader's log may differ."""
        for window in (*self._windows, *self._latest):
            if (
                window.offset <= offset < window.next_offset
                and window.isolation in (None, isolation)
                and window.leader_epoch == known.leader_epoch
            ):
                found = window.part(offset, max_bytes)
                self._fetch_ahead(window, offset, isolation, known)
                self._goes_on_at = found.next_offset
                return found
        kept = self._kept and self._kept.window(offset, max_bytes, isolation, known)
        if kept:
            found = kept.part(offset, max_bytes)
            self._goes_on_at = found.next_offset
            return found
        return None

    def read(self, offset: Offset, max_bytes: int, isolation: Isolation) -> Fetched:
        """Return batches from the leader (blocking). Raises OffsetOutOfRangeError, and the errors of `Leaders.ask`."""
        with self._lock:
            grown = max(2 * self._window_bytes, FIRST_WINDOW_BYTES) if offset == self._goes_on_at else 0
            self._window_bytes = min(grown, LARGEST_WINDOW_BYTES)
        window = self._fetch(offset, max(max_bytes, self._window_bytes), isolation)
        self.keep(window)
        if not window.data:
            return Fetched(window.data, Position(0), Offset(0), offset)
        found = window.part(offset, max_bytes)
        self._goes_on_at = found.next_offset
        return found

    def wait_for_ahead(self) -> None:
        """Wait for the read-ahead in progress, if any, even if it fails."""
        ahead = self._ahead
        if (
            ahead is not None and not ahead.cancel()
        ):  # Cancel a read-ahead that has not started, because all threads may be waiting for other brokers.
            with suppress(StorageError, CancelledError):
                ahead.result()

    def forget(self) -> None:
        """Drop the windows to free memory."""
        self._windows = self._latest = ()

    def take(self, window: FetchedBatches) -> None:
        """Keep records that were just appended, because readers usually want them next."""
        self._latest = (*self._latest[-1:], window)
        self._note()

    def _fetch_ahead(
        self, window: FetchedBatches, offset: Offset, isolation: Isolation, known: PartitionBounds
    ) -> None:
        """Read ahead after a window that is read sequentially, unless the next records are fetched or being fetched."""
        end = known.visible_end(isolation)
        if offset != self._goes_on_at or self._windows[-1:] != (window,) or window.next_offset >= end:
            return
        with self._lock:
            if self._ahead is None or self._ahead.done():
                self._window_bytes = min(max(2 * len(window.data), FIRST_WINDOW_BYTES), LARGEST_WINDOW_BYTES)
                with suppress(RuntimeError):  # The engine is closing.
                    self._ahead = self._cache.threads.submit(self._fetch_next, window.next_offset, isolation)

    def _fetch_next(self, offset: Offset, isolation: Isolation) -> None:
        self.keep(self._fetch(offset, self._window_bytes, isolation))

    def keep(self, window: FetchedBatches) -> None:
        """Keep a window for the next reads."""
        if self._kept is not None:
            self._kept.put(window, self._known.bounds)
        if window.data:
            with self._lock:
                self._windows = (*self._windows[-1:], window)
            self._note()

    def _note(self) -> None:
        self._cache.note(self, sum(len(one.data) for one in (*self._windows, *self._latest)))

    def _fetch(self, offset: Offset, max_bytes: int, isolation: Isolation, tries: int = 3) -> FetchedBatches:
        epoch = 0

        def attempt(leader: Leader) -> FetchedPartition:
            nonlocal epoch
            epoch = leader.epoch
            wanted = FetchPartition(
                self._partition, self._topic_id, offset, leader.epoch, max_bytes=max_bytes
            )
            return self._fetched(leader, wanted, isolation)

        known = self._known
        answer = self._leaders.ask(self._partition, self._topic_id, attempt, since=known.bounds.leader_epoch)
        if answer.error == OFFSET_OUT_OF_RANGE:
            raise self._out_of_range(offset)
        if answer.error:
            raise error_of(answer.error, str(self._partition))
        bounds = PartitionBounds(
            answer.log_start_offset, answer.last_stable_offset, answer.high_watermark, epoch
        )
        known.learn(bounds)
        if epoch != known.bounds.leader_epoch:  # Another leader was elected meanwhile.
            return self._fetch(offset, max_bytes, isolation)
        if not answer.records and bounds.visible_end(isolation) <= offset < known.bounds.visible_end(
            isolation
        ):
            # A new leader may not know its high watermark yet: its answer does not show the end of the log.
            self._ask_bounds()
            if offset < known.bounds.visible_end(isolation):
                if not tries:
                    raise PartitionOfflineError(
                        f"{self._partition}: its leader does not know its high watermark yet"
                    )
                return self._fetch(offset, max_bytes, isolation, tries - 1)
        size, last_offset = find_end(answer.records)
        if answer.records and not offset <= last_offset:
            raise MalformedAnswerError(f"{self._partition}: no batch with offset {offset} is in the answer")
        after = Offset(last_offset + 1) if size else offset
        return FetchedBatches(offset, after, answer.records[:size], answer.aborted, isolation, epoch)

    def _ask_bounds(self) -> PartitionBounds:
        """Ask the leader for its bounds, apply the bounds, and return them."""
        bounds = ask_leader_for_bounds(self._leaders, self._partition, self._topic_id)
        self._known.learn(bounds)
        return bounds

    def _fetched(self, leader: Leader, wanted: FetchPartition, isolation: Isolation) -> FetchedPartition:
        """Return the leader's answer about the partition. If a throttled answer omits it, ask again."""
        brokers = self._leaders.brokers
        while True:
            answer = fetch(
                brokers,
                leader.node,
                [wanted],
                max_bytes=wanted.max_bytes,
                isolation=isolation,
                seconds=ATTEMPT_SECONDS,
            )
            found = answer.partitions.get(self._partition)
            if found is not None:
                return found
            if answer.throttle_ms <= 0:
                raise UnreachableError(f"{self._partition}: the answer does not mention it")

    def _out_of_range(self, offset: Offset) -> OffsetOutOfRangeError:
        """Return the error for `offset`, with the present bounds, which the leader's answer lacks."""
        bounds = self._ask_bounds()
        return OffsetOutOfRangeError(
            offset, bounds.log_start_offset, bounds.high_watermark, str(self._partition)
        )
