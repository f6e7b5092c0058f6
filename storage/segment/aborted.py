"""The aborted transactions of a whole log, from the transaction indexes of its segments."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from storage.indexes.transaction_index import AbortedSpan
from storage.model import AbortedTransaction
from storage.segment.segment import Segment


def aborted_spans(segments: Iterable[Segment]) -> tuple[AbortedSpan, ...]:
    """Aborted transactions of all segments, by ascending last offset."""
    with_aborted = (segment for segment in segments if segment.may_have_aborted)
    return tuple(span for segment in with_aborted for span in segment.transaction_index)


def overlapping(
    spans: Sequence[AbortedSpan], start_offset: int, end_offset: int
) -> tuple[AbortedTransaction, ...]:
    """Those with records in [start_offset, end_offset), by ascending first offset."""
    first = bisect_left(spans, start_offset, key=lambda span: span.last_offset)
    found = [span for span in spans[first:] if span.first_offset < end_offset]
    found.sort(key=lambda span: span.first_offset)
    return tuple(AbortedTransaction(span.producer_id, span.first_offset) for span in found)
