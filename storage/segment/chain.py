"""The segments of a log in order, as one immutable value: a reader keeps the value with which it began."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.model import AbortedTransaction, Offset
from topicfs.storage.segment.segment import Segment


class Chain(NamedTuple):
    """The segments of a log: at least one segment, by ascending base offset; the last one is active."""

    segments: tuple[Segment, ...]
    base_offsets: tuple[Offset, ...]

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Chain:
        ordered = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        assert ordered, "a log without a segment"
        return cls(ordered, tuple(segment.base_offset for segment in ordered))

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def floor(self, offset: int) -> int:
        """Return the index of the segment with the greatest base offset not above `offset`, or else 0."""
        return max(0, bisect_right(self.base_offsets, offset) - 1)

    def with_active(self, segment: Segment) -> Chain:
        assert segment.base_offset > self.base_offsets[-1], f"segment {segment.base_offset} is not the newest"
        return Chain((*self.segments, segment), (*self.base_offsets, segment.base_offset))

    def end_offset(self, index: int, log_end_offset: Offset) -> Offset:
        """Return the exclusive end of a segment, which is the base offset of the next segment or the log end."""
        return self.base_offsets[index + 1] if index + 1 < len(self.base_offsets) else log_end_offset

    def overlapping(self, start_offset: int, end_offset: int) -> tuple[Segment, ...]:
        """Return the segments that may contain offsets in [start_offset, end_offset)."""
        first = self.floor(start_offset)
        return tuple(s for s in self.segments[first:] if s.base_offset < end_offset)


def aborted_spans(segments: Iterable[Segment], start_offset: int = 0) -> tuple[AbortedSpan, ...]:
    """Return the aborted transactions that end at or above `start_offset`, by ascending last offset."""
    spans = (span for one in segments if one.may_have_aborted for span in one.transaction_index)
    return tuple(span for span in spans if span.last_offset >= start_offset)


def overlapping(
    spans: Sequence[AbortedSpan], start_offset: int, end_offset: int
) -> tuple[AbortedTransaction, ...]:
    """Return the transactions with records in [start_offset, end_offset), by ascending first offset."""
    first = bisect_left(spans, start_offset, key=lambda span: span.last_offset)
    found = [span for span in spans[first:] if span.first_offset < end_offset]
    found.sort(key=lambda span: span.first_offset)
    return tuple(AbortedTransaction(span.producer_id, span.first_offset) for span in found)
