"""Lookups by time: the *first record in log order* at or after a timestamp (kafka-storage.md#time-lookups).

The search reads the first segment that may contain the record. It uses the segment's time index, then its offset
index, and then reads record by record.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.codec.records import FoundRecord
from topicfs.storage.errors import CorruptBatchError, OversizeBatchError, SearchTooLongError
from topicfs.storage.log.state import Bound
from topicfs.storage.model import Offset, Position, Timestamp
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.scan import LOOKUP_WINDOW_BYTES, Window, windows
from topicfs.storage.segment.segment import Segment

if TYPE_CHECKING:
    from topicfs.storage.segment.trace import LookupTrace

MAX_WASTED_BYTES = 2 * MAX_CONTENT_BYTES
"""Largest number of bytes of records decoded in vain, because their batches claim a time that no record has."""


class TimeSearch:
    """Finds records of one log by time. Any thread may call it."""

    def __init__(self) -> None:
        self._known: tuple[Chain | None, list[int]] = None, []

    def find(self, chain: Chain, bound: Bound, search: Search) -> FoundRecord | None:
        """Return the record that `search` looks for. Raises CorruptionError, SearchTooLongError, OversizeBatchError."""
        timestamp, trace = search.timestamp, search.trace
        known, maxima = self._known
        if known is not chain:
            maxima = self._find_maxima(chain)
        # The first sealed segment with a timestamp that is late enough; if there is none, the active segment.
        first = bisect_left(maxima, timestamp)
        if trace:
            for segment in chain.segments[:first]:
                trace.pass_segment(segment.base_offset, segment.largest_timestamp)
        for segment in chain.segments[first:]:
            if segment.base_offset > bound.segment.base_offset:
                break
            largest_timestamp = segment.largest_timestamp
            if largest_timestamp < timestamp:
                continue
            if trace:
                trace.take_segment(segment.base_offset, largest_timestamp)
            limit = bound.position if segment is bound.segment else segment.size
            found = search.in_segment(segment, limit)
            if found is not None:
                return found if found.offset < bound.offset else None
        return None

    def find_largest(self, chain: Chain, bound: Bound) -> FoundRecord | None:
        """Return the first record with the largest timestamp; None if there are no records.

        The record is in the first segment that has this timestamp.
        """
        candidates = [s for s in chain.segments if s.base_offset <= bound.segment.base_offset and s.size]
        if not candidates:
            return None
        segment = max(candidates, key=lambda candidate: candidate.largest.timestamp)
        return self.find(chain, bound, Search(segment.largest.timestamp, segment.base_offset))

    def _find_maxima(self, chain: Chain) -> list[int]:
        """Return each sealed segment's largest timestamp up to and including the segment; computed once per chain."""
        maxima: list[int] = list(accumulate((s.largest_timestamp for s in chain.segments[:-1]), max))
        self._known = chain, maxima
        return maxima


class Search:
    """A search, segment by segment, for the first record at or after both a timestamp and an offset."""

    def __init__(
        self,
        timestamp: int,
        start_offset: Offset,
        trace: LookupTrace | None = None,
        max_bytes: int | None = None,
    ) -> None:
        """Prepare the search. `trace` records each step; at most `max_bytes` of batches and records are read."""
        self.timestamp = timestamp
        self.trace = trace
        self._start_offset = start_offset
        self._left = max_bytes
        self._in_vain_bytes = 0
        """Bytes of records that were decoded in vain, because no record had the time that their batch claimed."""

    def in_segment(self, segment: Segment, limit: int) -> FoundRecord | None:
        """Return the first matching record of `segment` below the position `limit`. Raises CorruptionError."""
        start, trace = self._start_position(segment), self.trace
        for window in windows(segment.log, start, limit, window_bytes=LOOKUP_WINDOW_BYTES):
            if self._left is not None:
                self._spend(self._left, len(window.data))
            batches, count = window.batches, len(window.batches)
            passed = trace is None and count and batches.largest("max_timestamp", count) < self.timestamp
            for batch in () if passed else batches:
                if batch.max_timestamp < self.timestamp or batch.last_offset < self._start_offset:
                    if trace is not None:
                        trace.pass_batch(window.position, batch)
                    continue
                if trace is not None:
                    trace.take_batch(window.position, batch)
                found = self._in_batch(segment, window, batch)
                if found is not None:
                    if trace is not None:
                        trace.take_record(found.offset, found.timestamp)
                    return found
            window.raise_problem(segment.log)
        return None

    def _start_position(self, segment: Segment) -> int:
        times, offsets, trace = segment.time_index, segment.offset_index, self.trace
        if trace is None:
            entry = times.lookup(Timestamp(self.timestamp))
            return offsets.lookup(max(entry.offset, self._start_offset)).position
        entry = trace.find_time(times, Timestamp(self.timestamp))
        position = trace.find_position(offsets, max(entry.offset, self._start_offset))
        trace.begin_scan(segment.log.path.name, position)
        return position

    def _in_batch(self, segment: Segment, window: Window, batch: BatchHeader) -> FoundRecord | None:
        most = MAX_CONTENT_BYTES if self._left is None else min(self._left, MAX_CONTENT_BYTES)
        try:
            for columns in decode(window.data, batch.position, batch.end_position, max_content_bytes=most):
                index = columns.find_time(self.timestamp, self._start_offset)
                if index < len(columns):
                    return FoundRecord(
                        Offset(columns.offsets[index]),
                        Timestamp(columns.timestamps[index]),
                        columns,
                        index,
                        batch,
                        Position(window.position + batch.position),
                        segment.base_offset,
                        memoryview(window.data)[batch.position : batch.end_position],
                    )
                self._count_wasted(columns.size_bytes, batch)
        except CorruptBatchError as error:
            if most < MAX_CONTENT_BYTES and isinstance(error, OversizeBatchError):
                raise SearchTooLongError(f"{segment.log.path}: a batch of more than {most} bytes") from error
            raise error.in_file(segment.log.path, window.position + error.position) from error
        return None

    def _spend(self, left: int, size_bytes: int) -> None:
        """Subtract the bytes read from the bytes left. Raises SearchTooLongError."""
        self._left = left - size_bytes
        if self._left < 0:
            raise SearchTooLongError("the search for a time would read more bytes than allowed")

    def _count_wasted(self, size_bytes: int, batch: BatchHeader) -> None:
        """Count bytes that were decoded in vain. Above the limit, raises OversizeBatchError or SearchTooLongError."""
        if self._left is not None:
            self._spend(self._left, size_bytes)
        self._in_vain_bytes += size_bytes
        if self._in_vain_bytes > MAX_WASTED_BYTES:
            cause = f"{self._in_vain_bytes} bytes read in vain: batches claim times that their records do not have"
            raise OversizeBatchError(batch.position, cause)
