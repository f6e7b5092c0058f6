"""The part of a log that only looks: its bounds, its segments, reads by offset and by time.

Readers take `_end`, then `_chain`, both immutable values, and hold no lock: what an append or a roll publishes
meanwhile is for the next read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from storage.checkpoints.leader_epochs import LeaderEpochs
from storage.codec.headers import BatchHeader
from storage.config.topic import TopicConfig
from storage.disk.filesystem import Clock, FileSystem
from storage.disk.names import SegmentFileKind
from storage.engine import Cancel
from storage.errors import (
    OffsetOutOfRangeError,
    SegmentDeletedError,
)
from storage.indexes.transaction_index import AbortedSpan
from storage.log import describe
from storage.log.durability import Durability
from storage.log.flusher import Flusher
from storage.log.listeners import Listeners
from storage.log.producers import LogProducers
from storage.log.read import Bound, Reader, nothing_at
from storage.log.removal import Removal
from storage.log.times import Search, TimeSearch
from storage.model import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    CleaningState,
    Fetched,
    Isolation,
    Offset,
    PartitionOffsets,
    PartitionStatus,
    SegmentInfo,
    Timestamp,
    TimestampOffset,
    TopicPartition,
)
from storage.segment.chain import Chain, aborted_spans, overlapping
from storage.segment.trace import SegmentsSearched, Trace

_LOGGER = logging.getLogger(__name__)

_Value = TypeVar("_Value")


class Surroundings(NamedTuple):
    """What a log is given and does not change."""

    partition: TopicPartition
    files: FileSystem
    clock: Clock
    random: Random
    flusher: Flusher


class LogState(NamedTuple):
    """What loading a partition's directory found out."""

    chain: Chain
    log_end_offset: Offset
    log_start_offset: Offset
    recovery_point: Offset
    high_watermark: Offset | None
    """None: one replica, the high watermark is always the log end."""


class SmallFiles(NamedTuple):
    """What stands beside a log's segments."""

    epochs: LeaderEpochs
    producers: LogProducers
    removal: Removal


class Location(NamedTuple):
    """Where an offset was found."""

    segment_base_offset: Offset
    batch: BatchHeader
    """Its position is that in the segment's `.log`."""


class ReadableLog:
    """See the module's text; `storage.log.log.Log` adds what changes it."""

    def __init__(
        self,
        directory: Path,
        state: LogState,
        surroundings: Surroundings,
        *,
        config: TopicConfig,
        small_files: SmallFiles,
    ) -> None:
        self._lock = threading.Lock()
        """Held by who changes the log; by readers only where files were renamed under them."""
        self._directory = directory
        self._partition = surroundings.partition
        self._files = surroundings.files
        self._config = config
        self._epochs = small_files.epochs
        self._leader_epoch = self._epochs.latest.epoch if self._epochs.latest else 0
        self._durability = Durability(self._files, state.recovery_point, surroundings.clock())
        self._chain = state.chain
        self._end = Bound(state.log_end_offset, state.chain.active, state.chain.active.size)
        self._log_start_offset = state.log_start_offset
        self._high_watermark = state.high_watermark
        self._reader = Reader()
        self._times = TimeSearch()
        self._listeners = Listeners()
        self._producers = small_files.producers
        self._first_unstable: Offset | None = None
        self._aborted = aborted_spans(state.chain.segments)
        """Of all segments, by ascending last offset."""
        self._publish_stable()
        self._offline: str | None = None
        self._gone = False
        """Whether it is offline for good."""
        self._superseded = False
        """Whether another log serves in its place."""
        self.first_dirty_offset: Offset | None = None
        """Where the cleaner goes on; None before it came by for the first time."""
        self.describe_cleaning: Callable[[], CleaningState | None] = lambda: None
        """Tells how much compaction has to do; given by whoever keeps a cleaner."""
        self._rewrites = 0

    @property
    def topic(self) -> str:
        return self._partition.topic

    @property
    def number(self) -> int:
        return self._partition.partition

    @property
    def config(self) -> TopicConfig:
        return self._config

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def epochs(self) -> LeaderEpochs:
        return self._epochs

    @property
    def chain(self) -> Chain:
        """The segments as they are now."""
        return self._chain

    @property
    def log_start_offset(self) -> Offset:
        return self._log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self._end.offset

    @property
    def high_watermark(self) -> Offset:
        return self._end.offset if self._high_watermark is None else self._high_watermark

    @property
    def recovery_point(self) -> Offset:
        return self._durability.recovery_point

    @property
    def unflushed_records(self) -> int:
        """Offsets between the recovery point and the log end."""
        return self._end.offset - self._durability.recovery_point

    @property
    def last_flush_ms(self) -> Timestamp:
        return self._durability.last_flush_ms

    @property
    def offline_reason(self) -> str | None:
        """Why it takes no more writes; None while it does."""
        return self._offline

    @property
    def rewrites(self) -> int:
        """How often compaction has put a segment in the place of others since this was loaded."""
        return self._rewrites

    @property
    def aborted(self) -> tuple[AbortedSpan, ...]:
        """The aborted transactions of all segments, by ascending last offset."""
        return self._aborted

    @property
    def newest_timestamp(self) -> Timestamp:
        return self._as_known(lambda: describe.largest_timestamp(self._chain), NO_TIMESTAMP)

    def offsets(self) -> PartitionOffsets:
        end_offset = self._end.offset
        high_watermark = end_offset if self._high_watermark is None else self._high_watermark
        return PartitionOffsets(
            log_start_offset=self._log_start_offset,
            last_stable_offset=self._stable_end(high_watermark),
            high_watermark=high_watermark,
            log_end_offset=end_offset,
            recovery_point=min(self._durability.recovery_point, end_offset),
            leader_epoch=self._leader_epoch,
        )

    def status(self) -> PartitionStatus:
        end, chain = self._end, self._chain
        cleaning = self.describe_cleaning()
        return PartitionStatus(
            offsets=self.offsets(),
            state="online" if self._offline is None else f"offline: {self._offline}",
            segments=len(chain.segments),
            log_bytes=describe.log_bytes(chain, end),
            index_bytes=self._as_known(
                lambda: describe.index_bytes(self._chain, self._directory, self._files), 0
            ),
            first_timestamp=self._as_known(lambda: describe.first_timestamp(self._chain), NO_TIMESTAMP),
            last_timestamp=self.newest_timestamp,
            directory=str(self._directory),
            first_dirty_offset=cleaning and cleaning.first_dirty_offset,
            cleanable_ratio=cleaning and cleaning.cleanable_ratio,
            last_flush=self._durability.last_flush_ms,
        )

    def segments(self) -> Sequence[SegmentInfo]:
        def look() -> tuple[SegmentInfo, ...]:
            end = self._end
            return describe.describe_segments(self._chain, end)

        return self._looking(look)

    def segment_of(self, name: str) -> SegmentInfo | None:
        def look() -> SegmentInfo | None:
            end, chain = self._end, self._chain
            segment = describe.segment_of(name, chain)
            if segment is None:
                return None
            return describe.describe_segment(chain, chain.floor(segment.base_offset), end)

        return self._looking(look)

    def open_segment_file(self, name: str) -> memoryview:
        return self._looking(lambda: self._map_segment_file(name))

    def _map_segment_file(self, name: str) -> memoryview:
        end = self._end
        segment = describe.segment_of(name, self._chain)
        if segment is None:
            raise SegmentDeletedError(f"{self._directory / name}: no file of a segment, or no longer")
        file = self._files.open(self._directory / name, read_only=True)
        try:
            is_log = name.endswith(SegmentFileKind.LOG.value)
            return file.map(describe.segment_bytes(segment, end) if is_log else file.size())
        finally:
            file.close()

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self._listeners.add(listener)

    # Reading.

    def read(
        self, offset: Offset, *, max_bytes: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> Fetched:
        while True:
            chain = self._chain
            try:
                return self._read(offset, max_bytes, isolation)
            except FileNotFoundError as error:
                self._wait_for_change(chain, error)

    def _check_serves(self) -> None:
        """Raise SegmentDeletedError once another log serves its files, which may be renamed, cut or rewritten."""
        if self._superseded:
            raise SegmentDeletedError(f"{self._partition}: it was opened anew; open the file again")

    def _read(self, offset: Offset, max_bytes: int, isolation: Isolation) -> Fetched:
        self._check_serves()
        # First: a place that this read remembers must not outlive the segments that it read.
        places = self._reader.places
        end = self._end
        if not self._log_start_offset <= offset <= end.offset:
            raise OffsetOutOfRangeError(offset, self._log_start_offset, end.offset, str(self._partition))
        bound = self._bound(isolation)
        if offset >= bound.offset:
            return nothing_at(offset, end.segment)
        fetched = self._reader.read(self._chain, bound, offset, max_bytes, places=places)
        if self._aborted and isolation is Isolation.READ_COMMITTED:
            return fetched._replace(aborted=overlapping(self._aborted, offset, fetched.next_offset))
        return fetched

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        return self.locate_timestamp(timestamp, isolation=isolation, max_bytes=max_bytes)

    def locate_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        trace: Trace | None = None,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        """As `offset_for_timestamp`, telling `trace` each step."""

        def look() -> TimestampOffset | None:
            bound = self._bound(isolation)
            search = Search(timestamp, self._log_start_offset, trace, max_bytes)
            return self._times.find(self._chain, bound, search)

        return self._looking(look)

    def earliest(self) -> TimestampOffset:
        """The log start, with the epoch that wrote it where it is known (ListOffsets -2)."""
        start = self._log_start_offset
        epoch = self._epochs.epoch_for_offset(start)
        return TimestampOffset(NO_TIMESTAMP, start, NO_LEADER_EPOCH if epoch is None else epoch)

    def latest(self) -> TimestampOffset:
        """The log end, with the latest epoch (ListOffsets -1 of the log itself)."""
        latest = self._epochs.latest
        return TimestampOffset(NO_TIMESTAMP, self._end.offset, latest.epoch if latest else NO_LEADER_EPOCH)

    def largest_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp, None in an empty log (ListOffsets -3)."""

        def look() -> TimestampOffset | None:
            bound = self._bound(Isolation.READ_UNCOMMITTED)
            return self._times.find_largest(self._chain, bound)

        return self._looking(look)

    def locate(self, offset: Offset, trace: Trace | None = None) -> Location | None:
        """The batch that holds `offset` or the next one after a gap, telling `trace` each step.

        Raises OffsetOutOfRangeError, CorruptionError, SegmentDeletedError.
        """
        return self._looking(lambda: self._locate(offset, trace))

    def _locate(self, offset: Offset, trace: Trace | None) -> Location | None:
        end, chain = self._end, self._chain
        if not self._log_start_offset <= offset < end.offset:
            raise OffsetOutOfRangeError(offset, self._log_start_offset, end.offset, str(self._partition))
        first = chain.floor(offset)
        for segment in chain.segments[first:]:
            if trace:
                trace(SegmentsSearched(offset, chain.base_offsets, segment.base_offset))
            batch = segment.find_batch(offset, describe.segment_bytes(segment, end), trace)
            if batch is not None:
                return Location(segment.base_offset, batch)
        return None

    def _looking(self, look: Callable[[], _Value]) -> _Value:
        """Look at files of segments; again where others took their places meanwhile.

        Raises SegmentDeletedError where a file of the segments that are there is gone.
        """
        while True:
            self._check_serves()
            chain = self._chain
            try:
                return look()
            except FileNotFoundError as error:
                self._wait_for_change(chain, error)

    def _wait_for_change(self, chain: Chain, error: FileNotFoundError) -> None:
        """Wait until whoever renames files has published what becomes of them; SegmentDeletedError if nobody does."""
        with self._lock:
            changed = self._chain is not chain
        if not changed:
            raise SegmentDeletedError(
                f"{error.filename or self._directory}: removed while it was read"
            ) from error

    def _as_known(self, ask: Callable[[], _Value], otherwise: _Value) -> _Value:
        """Ask the disk, and do without an answer: a status is read for the very reason that the disk is gone."""
        try:
            return self._looking(ask)
        except (OSError, SegmentDeletedError):
            return otherwise

    def _publish_stable(self) -> None:
        """State where the first undecided transaction begins, after an append or a move of the bounds."""
        state = self._producers.state
        state.high_watermark_moved(self.high_watermark)
        first = state.first_unstable_offset
        self._first_unstable = None if first is None else max(first, self._log_start_offset)

    def _stable_end(self, high_watermark: Offset) -> Offset:
        first = self._first_unstable
        return high_watermark if first is None else min(first, high_watermark)

    def _bound(self, isolation: Isolation) -> Bound:
        """Where readers of `isolation` stop (kafka-storage.md#isolation)."""
        end = self._end
        visible_end = end.offset if self._high_watermark is None else self._high_watermark
        if isolation is Isolation.READ_COMMITTED:
            visible_end = self._stable_end(visible_end)
        if visible_end >= end.offset:
            return end
        chain = self._chain
        segment = chain.segments[chain.floor(visible_end)]
        limit = describe.segment_bytes(segment, end)
        batch = segment.find_batch(visible_end, limit)
        return Bound(visible_end, segment, limit if batch is None else batch.position)
