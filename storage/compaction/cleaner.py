"""A cleaning pass over one log: builds the map of keys, writes cleaned segments, and replaces the old segments by them.

Appends and reads continue during the pass. It holds the log's lock only while files are renamed. A crash at any point
leaves the old or the new segments of each group (kafka-storage.md#segment-replacement).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from topicfs.storage.codec.batch import scan
from topicfs.storage.compaction.batch_decision import LastOfProducer, PassTransactions, RetentionParams
from topicfs.storage.compaction.offset_map import DEFAULT_BYTES, OffsetMap
from topicfs.storage.compaction.rewriter import Rewriter, build_map
from topicfs.storage.compaction.selection import (
    CleanableSegment,
    CleaningParams,
    CleaningPlan,
    GroupingSegment,
    group,
)
from topicfs.storage.errors import CorruptBatchError, CorruptionError, PartitionOfflineError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset, ProducerId, Timestamp
from topicfs.storage.segment.chain import aborted_spans
from topicfs.storage.segment.scan import Window, windows
from topicfs.storage.segment.segment import Segment
from topicfs.storage.segment.sparse import Placed, PlacedBatch

CLEANER_WINDOW_BYTES = 1 << 18
"""Bytes read at a time, and collected before each write, so that an append waits for at most one window."""


class CleaningStoppedError(StorageError):
    """The pass was asked to stop. Segments that it has replaced stay replaced; unfinished ones are discarded."""


class Cleaned(NamedTuple):
    """The result of a pass."""

    end_offset: Offset
    """The log is clean below this offset, which becomes the cleaner's checkpoint."""
    records_read: int
    records_kept: int
    segments_before: tuple[Offset, ...]
    """Base offsets of the segments that were read."""
    segments_after: tuple[Offset, ...]
    """Base offsets of the cleaned segments, which replaced the segments of `segments_before`."""
    bytes_before: int
    bytes_after: int


def cleaning_params(log: Log, checkpoint: Offset | None, now: Timestamp) -> CleaningParams:
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


def clean(
    log: Log,
    plan: CleaningPlan,
    *,
    now: Timestamp,
    map_bytes: int = DEFAULT_BYTES,
    proceed: Callable[[], bool] = lambda: True,
) -> Cleaned:
    """Carry out `plan`; stop early if `proceed` returns False. Blocks.

    Segments that were replaced before the stop stay replaced. Raises CorruptionError, CleaningStoppedError,
    PartitionOfflineError, OSError.
    """
    return _Pass(log, plan, now=now, map_bytes=map_bytes, proceed=proceed).run()


class _Pass:
    def __init__(
        self, log: Log, plan: CleaningPlan, *, now: Timestamp, map_bytes: int, proceed: Callable[[], bool]
    ) -> None:
        self._log = log
        self._plan = plan
        self._now = now
        self._proceed = proceed
        self._segments = [s for s in log.chain.segments[:-1] if s.base_offset < plan.end_offset]
        # Also the aborted transactions of segments below the log start, because a marker stays as long as the
        # files have records of its transaction.
        self._aborted = {*log.aborted, *aborted_spans(self._segments)}
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
        # A pass removes a record because of a newer record or of a transaction marker. Both must be on disk
        # before the removal.
        self._log.appender.flush()
        touched = [s for s in self._segments if s.base_offset < map_end]
        groups = self._groups(touched, map_end)
        after = []
        for members in groups:
            transactions.retained.clear()
            after.append(self._clean_group(members, rewriter, transactions))
        return Cleaned(
            end_offset=map_end,
            records_read=rewriter.records_read,
            records_kept=rewriter.records_kept,
            segments_before=tuple(segment.base_offset for segment in touched),
            segments_after=tuple(segment.base_offset for segment in after),
            bytes_before=sum(segment.size for segment in touched),
            bytes_after=sum(segment.size for segment in after),
        )

    def _build_map(self) -> Offset:
        """Put the keys from `first_dirty_offset` on into the map; return the offset up to which it has all keys."""
        transactions = PassTransactions(self._aborted)
        start = end = self._plan.first_dirty_offset
        bases = [segment.base_offset for segment in self._segments]
        for segment in self._segments[max(0, bisect_right(bases, start) - 1) :]:
            for window in self._read(segment):
                with _located(segment, window):
                    end, full = build_map(self._newest, _content(window), transactions, start_offset=end)
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
        found = group(
            shapes,
            segment_bytes=config.effective_segment_bytes,
            index_bytes=config.segment_index_bytes,
            end_offset=map_end,
        )
        return [tuple(by_base[member.base_offset] for member in members) for members in found]

    def _clean_group(
        self, members: Sequence[Segment], rewriter: Rewriter, transactions: PassTransactions
    ) -> Segment:
        cleaned = self._log.replacer.new_cleaned_segment(members[0].base_offset)
        try:
            for segment in members:
                self._fill(cleaned, segment, rewriter)
            for span in transactions.retained:
                cleaned.add_aborted(span)
            cleaned.deactivate()
            cleaned.set_modified_time(members[-1].modified_time)
            cleaned.sync()
            if self._log.replacer.replace_segments(members, cleaned):
                return cleaned
        except PartitionOfflineError:
            # The next load of the log completes or undoes the replacement.
            cleaned.close()
            raise
        except BaseException:
            self._log.replacer.discard_segment(cleaned)
            raise
        self._log.replacer.discard_segment(cleaned)
        raise CleaningStoppedError(
            f"{self._log.topic}-{self._log.number}: segments were removed while they were cleaned"
        )

    def _fill(self, cleaned: Segment, source: Segment, rewriter: Rewriter) -> None:
        modified = source.modified_time
        for window in self._read(source):
            data = bytearray()
            with _located(source, window):
                for batches in rewriter.rewrite(_content(window), modified=modified):
                    data += batches
            if data:
                cleaned.append(data, _placed(data))

    def _read(self, segment: Segment) -> Iterator[Window]:
        """Yield the segment's windows. Checksums are not verified here, but when a window is decoded."""
        for window in windows(segment.log, 0, segment.size, window_bytes=CLEANER_WINDOW_BYTES):
            if not self._proceed():
                raise CleaningStoppedError(f"{self._log.topic}-{self._log.number}: asked to stop cleaning")
            window.raise_problem(segment.log)
            yield window

    def _live_producers(self) -> dict[ProducerId, LastOfProducer]:
        return {
            entry.producer_id: LastOfProducer(
                entry.last_data_offset if entry.last_data_offset >= 0 else None, entry.epoch
            )
            for entry in self._log.producers()
        }

    def _legacy_horizon(self) -> Timestamp:
        """Return the time for tombstones of old formats: a tombstone stays if its segment changed after this time."""
        clean = [s for s in self._segments if s.base_offset < self._plan.first_dirty_offset]
        if not clean:
            return Timestamp(0)
        return Timestamp(clean[-1].modified_time - self._log.config.delete_retention_ms)


def _content(window: Window) -> memoryview:
    return memoryview(window.data)[: window.batches.stop]


def _placed(data: bytearray) -> list[Placed]:
    """Return the batches of `data` in the form that the indexes accept."""
    batches = scan(data)
    sizes, last_offsets, max_timestamps = (batches.column(name).tolist() for name in PlacedBatch._fields)
    return list(zip(sizes, last_offsets, max_timestamps, strict=True))


@contextmanager
def _located(segment: Segment, window: Window) -> Iterator[None]:
    """Add the file and the position to errors of the codec that the block raises."""
    try:
        yield
    except CorruptBatchError as error:
        position = window.position + error.position
        raise CorruptionError(segment.log.path, position, error.cause) from error
