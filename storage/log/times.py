"""Records by time (kafka-storage.md#time-lookups).

Timestamps need not ascend along a log. What is found is the *first record in log order* at or after a time: the first
segment with something as late, there the time index's entry below it, the offset index's entry for that, and from
there record by record.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from storage.codec.columns import Columns, decode
from storage.codec.headers import BatchHeader
from storage.errors import CorruptBatchError
from storage.log.chain import Chain
from storage.log.read import Bound
from storage.log.scan import Window, windows
from storage.log.segment import LOOKUP_WINDOW_BYTES, Segment
from storage.log.trace import (
    BatchFound,
    BatchPassed,
    IndexSearched,
    Probe,
    RecordFound,
    ScanBegan,
    SegmentPassed,
    SegmentTaken,
    Trace,
)
from storage.model import Offset, Timestamp, TimestampOffset


class TimeSearch:
    """Finds records of one log by time. Any thread may call."""

    def __init__(self) -> None:
        self._known: tuple[Chain | None, list[int]] = None, []

    def find(
        self, chain: Chain, bound: Bound, timestamp: int, start_offset: Offset, trace: Trace | None = None
    ) -> TimestampOffset | None:
        """The first record at or after `timestamp` and `start_offset`, below `bound`; None without one."""
        if trace:
            for segment in chain.segments[: self._first_as_late(chain, timestamp)]:
                trace(SegmentPassed(segment.base_offset, segment.largest_timestamp))
        for segment in chain.segments[self._first_as_late(chain, timestamp) :]:
            if segment.base_offset > bound.segment.base_offset:
                break
            largest_timestamp = segment.largest_timestamp
            if largest_timestamp < timestamp:
                continue
            if trace:
                trace(SegmentTaken(segment.base_offset, largest_timestamp))
            limit = bound.position if segment is bound.segment else segment.size
            found = _find_in_segment(segment, limit, timestamp, start_offset, trace)
            if found is not None:
                return found if found.offset < bound.offset else None
        return None

    def find_largest(self, chain: Chain, bound: Bound) -> TimestampOffset | None:
        """The first record with the largest timestamp of all, in the first segment that has it; None without."""
        candidates = [s for s in chain.segments if s.base_offset <= bound.segment.base_offset and s.size]
        if not candidates:
            return None
        segment = max(candidates, key=lambda candidate: candidate.largest.timestamp)
        return self.find(chain, bound, segment.largest.timestamp, segment.base_offset)

    def _first_as_late(self, chain: Chain, timestamp: int) -> int:
        """Index of the first sealed segment, or else the active one, that may hold something as late.

        A binary search over running maxima, which stay what they are as long as the chain does.
        """
        known, maxima = self._known
        if known is not chain:
            maxima = list(accumulate((s.largest_timestamp for s in chain.segments[:-1]), max))
            self._known = chain, maxima
        return bisect_left(maxima, timestamp)


def _find_in_segment(
    segment: Segment, limit: int, timestamp: int, start_offset: Offset, trace: Trace | None
) -> TimestampOffset | None:
    start = _start_position(segment, timestamp, start_offset, trace)
    for window in windows(segment.log, start, limit, window_bytes=LOOKUP_WINDOW_BYTES):
        for batch in window.batches:
            position = window.position + batch.position
            if batch.max_timestamp < timestamp or batch.last_offset < start_offset:
                if trace:
                    trace(BatchPassed(position, batch.base_offset, batch.last_offset))
                continue
            if trace:
                trace(BatchFound(position, batch.size_bytes, batch.base_offset, batch.last_offset))
            found = _find_in_batch(segment, window, batch, timestamp, start_offset)
            if found is not None:
                if trace:
                    trace(RecordFound(found.offset, found.timestamp))
                return found
        segment.raise_problem(window)
    return None


def _start_position(segment: Segment, timestamp: int, start_offset: Offset, trace: Trace | None) -> int:
    times, offsets = segment.time_index, segment.offset_index
    if trace is None:
        entry = times.lookup(Timestamp(timestamp))
        return offsets.lookup(max(entry.offset, start_offset)).position
    slots: list[int] = []
    entry = times.lookup(Timestamp(timestamp), slots)
    probes = tuple(Probe(slot, *times.entry(slot)) for slot in slots)
    trace(IndexSearched(times.slots.path.name, times.entries, timestamp, probes, *entry))
    target = max(entry.offset, start_offset)
    slots = []
    found = offsets.lookup(target, slots)
    probes = tuple(Probe(slot, *offsets.entry(slot)) for slot in slots)
    trace(IndexSearched(offsets.slots.path.name, offsets.entries, target, probes, *found))
    trace(ScanBegan(segment.log.path.name, found.position))
    return found.position


def _find_in_batch(
    segment: Segment, window: Window, batch: BatchHeader, timestamp: int, start_offset: Offset
) -> TimestampOffset | None:
    for columns in _decode(segment, window, batch):
        for found, offset in zip(columns.timestamps, columns.offsets, strict=True):
            if found >= timestamp and offset >= start_offset:
                return TimestampOffset(Timestamp(found), Offset(offset), batch.leader_epoch)
    return None


def _decode(segment: Segment, window: Window, batch: BatchHeader) -> list[Columns]:
    try:
        return decode(window.data, batch.position, batch.end_position)
    except CorruptBatchError as error:
        raise error.in_file(segment.log.path, window.position + error.position) from error
