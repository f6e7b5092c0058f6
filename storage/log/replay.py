"""Reading a log again to learn of its producers: after a truncation, and when no snapshot is new enough."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from storage.indexes.transaction_index import AbortedSpan
from storage.log.producers import LogProducers
from storage.model import NO_PRODUCER_ID, Offset
from storage.segment.scan import Window, windows
from storage.segment.segment import Segment
from storage.validation.batches import incoming_of

WINDOW_BYTES = 1 << 20


def rebuild_producers(
    producers: LogProducers,
    segments: Sequence[Segment],
    *,
    log_start_offset: Offset,
    end_offset: Offset,
    snapshots_at: Collection[Offset] = (),
) -> None:
    """Stand at `end_offset`, with a snapshot: from the newest one below it, and the batches from there on.

    On the way snapshots are taken at those of `snapshots_at` that begin a segment. None is taken at the log start.
    """
    producers.truncate_to(log_start_offset, end_offset)
    start_offset = producers.load(log_start_offset)
    if start_offset < end_offset:
        _replay_segments(producers, segments, start_offset, end_offset, snapshots_at)
    producers.state.end_offset = end_offset
    producers.take(end_offset)


def _replay_segments(
    producers: LogProducers,
    segments: Sequence[Segment],
    start_offset: Offset,
    end_offset: Offset,
    snapshots_at: Collection[Offset],
) -> None:
    next_bases = [*[segment.base_offset for segment in segments][1:], end_offset]
    for segment, next_base in zip(segments, next_bases, strict=False):
        if next_base <= start_offset or segment.base_offset >= end_offset:
            continue
        if segment.base_offset in snapshots_at and segment.base_offset >= start_offset:
            producers.state.end_offset = segment.base_offset
            producers.take(segment.base_offset)
        batch = segment.find_batch(start_offset, segment.size)
        if batch is not None:
            known = len(producers.state)
            _replay(producers, segment, batch.position, start_offset, end_offset)
            producers.state.put_newest_first(known)


def _replay(
    producers: LogProducers, segment: Segment, position: int, start_offset: Offset, end_offset: Offset
) -> None:
    for window in windows(segment.log, position, segment.size, window_bytes=WINDOW_BYTES):
        replay_window(
            producers, window, len(window.batches), start_offset=start_offset, end_offset=end_offset
        )


def replay_window(
    producers: LogProducers,
    window: Window,
    good: int,
    *,
    start_offset: int = 0,
    end_offset: int = 2**63 - 1,
) -> list[AbortedSpan]:
    """Take in the first `good` batches of a window within [start, end); the aborts among them."""
    if not good or window.batches.largest("producer_id", good) == NO_PRODUCER_ID:
        return []
    spans = []
    for batch in incoming_of(window.batches)[:good]:
        if batch.last_offset >= start_offset and batch.base_offset < end_offset:
            pending = producers.check_as_follower(window.data, [batch])
            spans += producers.take_in(pending, Offset(batch.last_offset + 1))
    return spans
