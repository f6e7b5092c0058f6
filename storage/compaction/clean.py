"""One pass over one log: build the map, write the cleaned segments, put them in the place of the old ones.

The work runs beside appends and reads (blocking, in the caller's thread); the log's lock is held only while files
change names. Not before that is anything of the old segments gone, so a crash at any point leaves the old ones or the
new ones of each group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from storage.codec.batch import scan
from storage.compaction.choose import CleanableSegment, CleaningParams, CleaningPlan
from storage.compaction.group import GroupingSegment, GroupLimits, group
from storage.compaction.offset_map import DEFAULT_BYTES, OffsetMap
from storage.compaction.retain import LastOfProducer, RetentionParams
from storage.compaction.rewrite import CleaningCounts, Rewriter, build_map
from storage.compaction.transactions import PassTransactions
from storage.errors import CorruptBatchError, CorruptionError
from storage.log.log import Log
from storage.log.scan import Window, windows
from storage.log.segment import PlacedBatch, Segment
from storage.model import Offset, ProducerId, Timestamp

WINDOW_BYTES = 1 << 20
"""What is read at a time, and about what is gathered before it is written."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a pass did."""

    end_offset: Offset
    """Clean up to here: the cleaner's checkpoint."""
    counts: CleaningCounts
    segments_before: int
    segments_after: int


def cleaning_params(log: Log, checkpoint: Offset | None, now: Timestamp) -> CleaningParams:
    """The log as the choice sees it."""
    config, offsets = log.config, log.offsets()
    segments = [
        CleanableSegment(s.base_offset, s.size, s.largest_timestamp, s.first_timestamp if s.size else None)
        for s in log.chain.segments
    ]
    return CleaningParams(
        segments=segments,
        log_start_offset=offsets.log_start_offset,
        log_end_offset=offsets.log_end_offset,
        last_stable_offset=offsets.last_stable_offset,
        checkpoint=checkpoint,
        min_lag_ms=config.min_compaction_lag_ms,
        max_lag_ms=config.max_compaction_lag_ms,
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
        now=now,
    )


def clean(log: Log, plan: CleaningPlan, *, now: Timestamp, map_bytes: int = DEFAULT_BYTES) -> Cleaned:
    """Do what `plan` says (blocking). Raises CorruptionError, with nothing changed from there on; OSError."""
    pass_ = _Pass(log, plan, now=now, map_bytes=map_bytes)
    return pass_.run()


class _Pass:
    def __init__(self, log: Log, plan: CleaningPlan, *, now: Timestamp, map_bytes: int) -> None:
        self._log = log
        self._plan = plan
        self._now = now
        self._segments = [s for s in log.chain.segments[:-1] if s.base_offset < plan.end_offset]
        self._aborted = log.aborted
        self._newest = OffsetMap(map_bytes)

    def run(self) -> Cleaned:
        map_end = self._build_map()
        params = RetentionParams(
            now=self._now,
            delete_retention_ms=self._log.config.delete_retention_ms,
            keep_end_offset=self._log.high_watermark,
            producers=self._live_producers(),
            legacy_deletes_before=self._legacy_horizon(),
        )
        transactions = PassTransactions(self._aborted)
        rewriter = Rewriter(self._newest, transactions, params, map_end_offset=map_end)
        touched = [s for s in self._segments if s.base_offset < map_end]
        groups = self._groups(touched, map_end)
        for members in groups:
            transactions.retained.clear()
            self._clean_group(members, rewriter, transactions)
        return Cleaned(map_end, rewriter.counts, len(touched), len(groups))

    def _build_map(self) -> Offset:
        """Put the dirty section's keys into the map; how far it got."""
        transactions = PassTransactions(self._aborted)
        start = end = self._plan.first_dirty_offset
        for segment in self._segments:
            if segment.base_offset < start:
                continue
            for window in _read(segment):
                with _located(segment, window):
                    end, full = build_map(
                        self._newest,
                        memoryview(window.data)[: window.batches.stop],
                        transactions,
                        start_offset=end,
                    )
                if full:
                    return end
        return max(end, self._plan.end_offset)

    def _groups(self, segments: Sequence[Segment], map_end: Offset) -> list[tuple[Segment, ...]]:
        config = self._log.config
        by_base = {segment.base_offset: segment for segment in segments}
        shapes = [
            GroupingSegment(
                s.base_offset, s.size, s.offset_index.slots.used_bytes, s.time_index.slots.used_bytes
            )
            for s in segments
        ]
        limits = GroupLimits(config.effective_segment_bytes, config.segment_index_bytes)
        found = group(shapes, limits=limits, end_offset=map_end)
        return [tuple(by_base[member.base_offset] for member in members) for members in found]

    def _clean_group(
        self, members: Sequence[Segment], rewriter: Rewriter, transactions: PassTransactions
    ) -> None:
        cleaned = self._log.new_cleaned_segment(members[0].base_offset)
        try:
            for segment in members:
                _fill(cleaned, segment, rewriter)
            for span in transactions.retained:
                cleaned.add_aborted(span)
            cleaned.deactivate()
            cleaned.set_modified_time(members[-1].modified_time)
            cleaned.sync()
            if self._log.replace_segments(members, cleaned):
                return
        except BaseException:
            self._log.discard_segment(cleaned)
            raise
        self._log.discard_segment(cleaned)
        _LOGGER.info("%s-%d: segments left while they were cleaned", self._log.topic, self._log.number)

    def _live_producers(self) -> dict[ProducerId, LastOfProducer]:
        return {
            entry.producer_id: LastOfProducer(
                entry.last_data_offset if entry.last_data_offset >= 0 else None, entry.epoch
            )
            for entry in self._log.producers()
        }

    def _legacy_horizon(self) -> Timestamp:
        """Tombstones of old formats go once their segment was last changed before this."""
        clean = [s for s in self._segments if s.base_offset < self._plan.first_dirty_offset]
        if not clean:
            return Timestamp(0)
        return Timestamp(clean[-1].modified_time - self._log.config.delete_retention_ms)


def _fill(cleaned: Segment, source: Segment, rewriter: Rewriter) -> None:
    """Append what stays of one segment."""
    modified = source.modified_time
    for window in _read(source):
        data = bytearray()
        with _located(source, window):
            for batch in rewriter.rewrite(memoryview(window.data)[: window.batches.stop], modified=modified):
                data += batch
        if data:
            placed = [PlacedBatch(b.size_bytes, b.last_offset, b.max_timestamp) for b in scan(data)]
            cleaned.append(data, placed)


def _read(segment: Segment) -> Iterator[Window]:
    for window in windows(segment.log, 0, segment.size, window_bytes=WINDOW_BYTES, check_crc=True):
        if window.problem is not None:
            position = window.position + window.problem.position
            raise CorruptionError(segment.log.path, position, window.problem.cause)
        yield window


@contextmanager
def _located(segment: Segment, window: Window) -> Iterator[None]:
    """Give the codec's findings their file and position."""
    try:
        yield
    except CorruptBatchError as error:
        position = window.position + error.position
        raise CorruptionError(segment.log.path, position, error.cause) from error
