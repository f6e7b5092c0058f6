"""A partition of a cluster, with the same interface as a partition of a data directory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from topicfs.cluster.brokers.admin import delete_records
from topicfs.cluster.brokers.bounds import NO_LEADER, PartitionBounds, ask_leader_for_bounds, log_size
from topicfs.cluster.brokers.brokers import Leader
from topicfs.cluster.brokers.fetch import FetchedPartition, ListedOffset, epoch_ends, list_offsets
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, Leaders
from topicfs.cluster.brokers.settings import TopicSettings
from topicfs.cluster.cache.cache import Cache
from topicfs.cluster.cache.cache_file import FetchedBatches
from topicfs.cluster.cache.read_through import ReadThroughCache
from topicfs.cluster.errors import LEADER_NOT_AVAILABLE, NONE, error_of
from topicfs.cluster.topics.producer import PartitionProducer, Production
from topicfs.cluster.topics.reader import PartitionReader, WindowCache
from topicfs.cluster.topics.sent_batches import SentAppend
from topicfs.storage.codec.batch import find_end, scan
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.engine import Cancel, Listeners
from topicfs.storage.errors import (
    ClusterError,
    NotAuthorizedError,
    OffsetOutOfRangeError,
    PartitionGoneError,
    ReadOnlyError,
    SegmentDeletedError,
)
from topicfs.storage.model import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    Appended,
    Fetched,
    Isolation,
    Offset,
    PartitionOffsets,
    PartitionStatus,
    PartitionSummary,
    SegmentInfo,
    Timestamp,
    TimestampOffset,
    TopicPartition,
)

NOT_ASKED = PartitionBounds(Offset(0), Offset(0), Offset(0), NO_LEADER_EPOCH)
"""The bounds before the leader's first answer."""


class PartitionServices(NamedTuple):
    """The services that all partitions of an engine share."""

    leaders: Leaders
    windows: WindowCache
    production: Production | None
    """The producer ids and codec for appends; None if the partitions are read-only."""
    cache: Cache | None
    """The disk cache of fetched records."""
    counts: EngineCounts
    """The engine's counters."""


class ClusterPartition:
    """Implements `storage.engine.Partition`. Background threads and each answer update its bounds."""

    directory: Path | None = None

    def __init__(
        self,
        name: TopicPartition,
        topic_id: str,
        services: PartitionServices,
        *,
        ask_settings: Callable[[], TopicSettings],
        followed: Callable[[], None],
    ) -> None:
        """Make the partition. `ask_settings` returns the topic's settings and may wait.

        `followed` is called when the first listener is added, and when the bounds change to unknown values.
        """
        leaders, windows, production, cache, self._engine_counts = services
        self._counts = self._engine_counts.topic(name.topic)
        self.name = name
        self.topic_id = topic_id
        self.bounds = NOT_ASKED
        self.unknown: str | None = "its leader has not answered yet"
        """Why the bounds are unknown; None if they are known."""
        self.newest_timestamp: Timestamp = NO_TIMESTAMP
        self.told_until = 0.0
        """Until this time (`time.monotonic`), the bounds from the answer to the last append are used, and no bounds
        are requested.
        """
        self._leaders = leaders
        self._kept = None
        if cache is not None:
            self._kept = ReadThroughCache(cache, leaders, name, topic_id, ask_settings)
        self._reader = PartitionReader(name, topic_id, leaders, windows, known=self, kept=self._kept)
        self._producer = None
        if production is not None:
            self._producer = PartitionProducer(
                name,
                topic_id,
                leaders=leaders,
                production=production,
                ask_config=lambda: ask_settings().config,
                known=self,
            )
        self._ask_settings = ask_settings
        self._followed = followed
        self._listeners = Listeners()
        self._learning = threading.Lock()
        """Held while an answer is compared with the known bounds, because two answers may arrive at the same time."""
        self._gone = False
        self._denial: str | None = None
        """Why every use is refused while the user may not describe the topic; None if the user may describe it."""
        self.cuts: tuple[Offset, ...] = ()
        self._proven_end = Offset(0)
        """The end of the records that the leader in the epoch of `bounds` certainly has. Readers have seen no record
        at or after this end.
        """

    def __str__(self) -> str:
        return str(self.name)

    @property
    def topic(self) -> str:
        return self.name.topic

    @property
    def number(self) -> int:
        return self.name.partition

    @property
    def config(self) -> TopicConfig:
        self._leaders.before_waiting()
        return self._ask_settings().config

    @property
    def rewrites(self) -> int:
        return len(self.cuts)

    @property
    def log_start_offset(self) -> Offset:
        return self.bounds.log_start_offset

    def find_bounds(self) -> None:
        self._check_exists()
        if self.unknown is not None:
            self._leaders.before_waiting()
            self.learn(ask_leader_for_bounds(self._leaders, self.name, self.topic_id))

    def note_silence(self, reason: str) -> None:
        """Record why the bounds are still unknown, unless they have become known."""
        with self._learning:
            if self.unknown is not None:
                self.unknown = reason

    def offsets(self) -> PartitionOffsets:
        return self.bounds.offsets()

    def visible_end(self, isolation: Isolation) -> Offset:
        return self.bounds.visible_end(isolation)

    def summary(self) -> PartitionSummary:
        bounds, metadata = self.bounds, self._leaders.metadata
        return PartitionSummary(
            start_offset=bounds.log_start_offset,
            stable_end=bounds.last_stable_offset,
            end_offset=bounds.high_watermark,
            log_bytes=None,
            offline=self.unknown is not None or metadata.leader(self.name).node not in metadata.brokers,
        )

    def status(self) -> PartitionStatus:
        self._leaders.before_waiting()
        denial = self._denial
        if denial is None:
            self._check_exists()
        metadata = self._leaders.metadata
        leader = metadata.leader(self.name)
        offline, size = denial or self.unknown, None
        if offline is not None:
            pass
        elif leader.node in metadata.brokers:
            try:
                size = log_size(self._leaders.brokers, leader.node, self.name)
            except ClusterError as error:
                offline = str(error)
        else:
            offline = NO_LEADER
        return PartitionStatus(
            offsets=self.offsets(),
            offline=offline,
            segments=None,
            log_bytes=size,
            index_bytes=None,
            first_timestamp=NO_TIMESTAMP,
            last_timestamp=self.newest_timestamp,
        )

    def check_in_sync(self) -> None:
        """Do nothing: at each append, the broker checks the number of replicas in sync."""

    def append(self, batches: bytearray, *, durable: bool = False, encoded_here: bool = False) -> Appended:
        size = len(batches)
        appended = self._writable().append(batches, durable=durable, encoded_here=encoded_here)
        self._count(size, appended)
        return appended

    def begin_append(
        self, batches: bytearray, *, durable: bool, encoded_here: bool, unless: Callable[[], bool]
    ) -> SentAppend:
        size, producer = len(batches), self._writable()
        begun = producer.begin(batches, durable=durable, encoded_here=encoded_here, unless=unless)
        return begun.then(partial(self._count, size))

    def _count(self, size: int, appended: Appended) -> None:
        self._counts.note_append(1, appended.last_offset + 1 - appended.base_offset, size)

    def read(
        self, offset: Offset, *, max_bytes: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> Fetched:
        found = self._at_hand(offset, max_bytes, isolation)
        if found is not None:
            self._engine_counts.cache_hits += 1
        else:
            self._leaders.before_waiting()
            found = self._read(offset, max_bytes, isolation)
        self._counts.reads.size_bytes += len(found.data)
        return found

    def _read(self, offset: Offset, max_bytes: int, isolation: Isolation) -> Fetched:
        self._reader.wait_for_ahead()
        self.look_at_cache()
        found = self._at_hand(offset, max_bytes, isolation)
        if found is not None:
            self._engine_counts.cache_hits += 1
            return found
        self._engine_counts.cache_misses += 1
        return self._reader.read(offset, max_bytes, isolation)

    def _at_hand(self, offset: Offset, max_bytes: int, isolation: Isolation) -> Fetched | None:
        """Return batches fetched before; None if there are none. Raises OffsetOutOfRangeError, PartitionGoneError."""
        self._check_exists()
        bounds = self.bounds
        if offset < bounds.log_start_offset:
            raise OffsetOutOfRangeError(offset, bounds.log_start_offset, bounds.high_watermark, str(self))
        return self._reader.at_hand(offset, max_bytes, isolation, bounds)

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        del max_bytes  # Not needed: the leader does the search.
        self._leaders.before_waiting()
        self._check_exists()

        def attempt(leader: Leader) -> ListedOffset:
            found = list_offsets(
                self._leaders.brokers,
                leader.node,
                [self.name],
                max(timestamp, 0),
                isolation=isolation,
                seconds=ATTEMPT_SECONDS,
            )
            return found.get(self.name, ListedOffset(LEADER_NOT_AVAILABLE, Offset(-1)))

        found = self._leaders.ask(self.name, self.topic_id, attempt)
        if found.error:
            raise error_of(found.error, str(self))
        if found.offset < 0:
            return None
        return TimestampOffset(found.timestamp, found.offset, found.leader_epoch)

    record_at = offset_for_timestamp

    def segments(self) -> Sequence[SegmentInfo] | None:
        return None

    def segment_of(self, name: str) -> SegmentInfo | None:
        del name
        return None

    def open_segment_file(self, name: str) -> memoryview:
        raise SegmentDeletedError(f"{self}: {name}: a cluster does not show its brokers' files")

    def delete_records(self, before: Offset) -> Offset:
        self._writable()
        self.find_bounds()
        bounds = self.bounds
        start = delete_records(self._leaders, self.name, self.topic_id, before)
        if start is None:
            raise OffsetOutOfRangeError(before, bounds.log_start_offset, bounds.high_watermark, str(self))
        end = max(bounds.high_watermark, start)
        stable = max(bounds.last_stable_offset, start)
        self.learn(PartitionBounds(start, stable, end, bounds.leader_epoch), proven=False)
        return start

    def sync(self) -> None:
        """Wait until the records appended here are replicated (blocking). Raises PartitionOfflineError."""
        if self._producer is not None:
            self._producer.sync()

    def look_at_cache(self) -> None:
        """Load the partition's cache, if it has one, and compare it with the leader's log (blocking)."""
        if self._kept is not None:
            self._kept.check(self.bounds)

    def available_end(self, offset: Offset) -> Offset:
        return offset if self._kept is None else self._kept.end_from(offset, self.bounds)

    def listen(self, listener: Callable[[], None]) -> Cancel:
        followed = bool(self._listeners)
        cancel = self._listeners.add(listener)
        if not followed:
            self._followed()
        return cancel

    def note_append(self, timestamp: Timestamp, told_until: float) -> None:
        self._note_timestamp(timestamp)
        self.told_until = told_until

    def moved(self) -> None:
        self._followed()

    @property
    def followed(self) -> bool:
        """True while the partition has listeners."""
        return bool(self._listeners) and not self._gone

    def learn(self, bounds: PartitionBounds, *, proven: bool = True) -> None:
        """Apply bounds from a leader's answer, and notify the listeners if they changed. Safe from any thread.

        Answers of older leaders are ignored. The log of a new leader is first compared with the known log (blocking;
        raises the errors of `Leaders.ask`). `proven` is False if the broker did not check its leader epoch.
        """
        with self._learning:
            before, first = self.bounds, self.unknown is not None
            newer = not first and bounds.leader_epoch > before.leader_epoch
            if not newer and bounds.leader_epoch >= before.leader_epoch:
                self.bounds = bounds if first else before.raised(bounds)
                self._proven_end = max(self._proven_end, bounds.high_watermark if proven else Offset(0))
                self.unknown = None
            after = self.bounds
        if newer:
            self._compare(before.leader_epoch)
            self.learn(bounds, proven=proven)
        elif first or after[:3] != before[:3]:
            self._listeners.notify()
        if first:
            self._followed()

    def _compare(self, epoch: int) -> None:
        """Ask the new leader up to which offset its log equals the known log, and follow the leader (blocking).

        `epoch` is the last leader epoch of the known log.
        """

        def attempt(leader: Leader) -> ListedOffset:
            ends = epoch_ends(
                self._leaders.brokers, leader.node, {self.name: epoch}, {self.name: leader.epoch}
            )
            if self.name not in ends:
                return ListedOffset(LEADER_NOT_AVAILABLE, Offset(-1))
            return ListedOffset(NONE, ends[self.name].end_offset, leader_epoch=leader.epoch)

        shared = self._leaders.ask(self.name, self.topic_id, attempt, since=epoch + 1)
        bounds = self.bounds._replace(leader_epoch=shared.leader_epoch)
        if shared.offset < bounds.high_watermark:
            bounds = ask_leader_for_bounds(self._leaders, self.name, self.topic_id)
        if (
            bounds.leader_epoch == shared.leader_epoch
        ):  # If the epochs differ, yet another leader was elected meanwhile.
            self.follow_leader(epoch, shared.offset, bounds)

    def follow_leader(self, epoch: int, shared: Offset, bounds: PartitionBounds) -> None:
        """Switch to a new leader, whose log is the same as the log of leader epoch `epoch` below the offset `shared`.

        If `shared` is below the known high watermark, an unclean election lost records, and `bounds` replaces the
        known bounds.
        """
        with self._learning:
            before = self.bounds
            if before.leader_epoch != epoch:
                return
            if shared < self._proven_end:
                self.cuts = (
                    *self.cuts,
                    shared,
                )  # Set `cuts` first, so that readers that see the new bounds also see where the lost records began.
                self._proven_end = shared
            lower = shared < before.high_watermark
            self.bounds = bounds if lower else before._replace(leader_epoch=bounds.leader_epoch)
        self._listeners.notify()

    def take(self, offset: Offset, fetched: FetchedPartition, leader_epoch: int) -> None:
        """Apply a follower thread's fetch from `offset`: keep the batches for readers, and update the bounds."""
        size, last_offset = find_end(fetched.records)
        if size and self.followed:
            batches = list(scan(fetched.records, 0, size))
            self._note_timestamp(max(one.max_timestamp for one in batches))
            plain = not any(one.is_transactional or one.is_control for one in batches)
            self._reader.take(
                FetchedBatches(
                    offset,
                    Offset(last_offset + 1),
                    memoryview(bytes(fetched.records[:size])),
                    (),
                    None
                    if plain and last_offset < fetched.last_stable_offset
                    else Isolation.READ_UNCOMMITTED,
                    leader_epoch,
                )
            )
        self.learn(
            PartitionBounds(
                fetched.log_start_offset, fetched.last_stable_offset, fetched.high_watermark, leader_epoch
            )
        )

    def _note_timestamp(self, timestamp: Timestamp) -> None:
        with self._learning:
            self.newest_timestamp = max(self.newest_timestamp, timestamp)

    def end(self) -> None:
        """End the partition because its topic was deleted."""
        self._gone, self._denial = True, None
        if self._kept is not None:
            self._kept.remove()
        self._listeners.notify()

    def deny(self, reason: str | None) -> None:
        """Refuse every use from now on, for lack of permission; with None, allow it again."""
        self._denial = reason
        self._listeners.notify()

    def _check_exists(self) -> None:
        """Raise PartitionGoneError if the topic was deleted, NotAuthorizedError if the user may not describe it."""
        if self._gone:
            raise PartitionGoneError(f"{self}: its topic was deleted")
        if self._denial is not None:
            raise NotAuthorizedError(self._denial)

    def _writable(self) -> PartitionProducer:
        """Return the producer. Raises ReadOnlyError, and the errors of `_check_exists`."""
        self._check_exists()
        if self._producer is None:
            raise ReadOnlyError(f"{self}: the cluster was opened read-only")
        return self._producer
