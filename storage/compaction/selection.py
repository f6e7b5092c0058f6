"""Chooses what a pass cleans and which segments it merges. It looks only at segments, settings and the time.

Rules: kafka-storage.md#cleaning-choice, kafka-storage.md#segment-groups.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from topicfs.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from topicfs.storage.model import Offset, Timestamp


class CleanableSegment(NamedTuple):
    """The properties of a segment on which the choice depends."""

    base_offset: Offset
    size_bytes: int
    largest_timestamp: Timestamp
    first_batch_timestamp: Timestamp | None
    """The first batch's largest timestamp; None if the segment is empty."""


class CleaningParams(NamedTuple):
    segments: Sequence[CleanableSegment]
    """Oldest first. The last segment is active and is never cleaned."""
    log_start_offset: Offset
    log_end_offset: Offset
    last_stable_offset: Offset
    checkpoint: Offset | None
    """First dirty offset in the cleaner's checkpoint; None if the log was never cleaned."""
    min_lag_ms: int
    max_lag_ms: int
    min_dirty_ratio: float
    now: Timestamp


class CleaningPlan(NamedTuple):
    """A pass over one log, which cleans [first_dirty_offset, end_offset)."""

    first_dirty_offset: Offset
    end_offset: Offset
    """First offset that cannot be cleaned: the base offset of a segment that must not change."""
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool
    """True if a dirty record is older than max.compaction.lag.ms."""
    cleanable_ratio: float
    due: bool


def plan(params: CleaningParams) -> CleaningPlan:
    """Return what a pass over this log would clean, and whether the dirty ratio or the age makes the pass due."""
    first_dirty = _first_dirty_offset(params)
    end = max(_first_uncleanable_offset(params, first_dirty), first_dirty)
    inactive = params.segments[:-1]
    clean_bytes = sum(s.size_bytes for s in inactive if s.base_offset < first_dirty)
    dirty = _dirty(params.segments, first_dirty, end)
    cleanable_bytes = sum(s.size_bytes for s in dirty)
    overdue = _overdue(params, first_dirty)
    total = clean_bytes + cleanable_bytes
    ratio = cleanable_bytes / total if total else 0.0
    return CleaningPlan(
        first_dirty_offset=first_dirty,
        end_offset=end,
        clean_bytes=clean_bytes,
        cleanable_bytes=cleanable_bytes,
        overdue=overdue,
        cleanable_ratio=ratio,
        due=bool(dirty) and (ratio > params.min_dirty_ratio or overdue),
    )


def _first_dirty_offset(params: CleaningParams) -> Offset:
    """Return the checkpoint. If there is none, or if it is outside the log, return the log start."""
    start = params.segments[0].base_offset if params.segments else params.log_start_offset
    start = max(start, params.log_start_offset)
    if params.checkpoint is None or not start <= params.checkpoint <= params.log_end_offset:
        return start
    return params.checkpoint


def _first_uncleanable_offset(params: CleaningParams, first_dirty: Offset) -> Offset:
    """Return the first offset that must not be cleaned.

    It is the lowest of the last stable offset, the active segment's base offset, and the base offset of the first
    segment younger than the minimum lag.
    """
    bounds = [params.last_stable_offset, params.segments[-1].base_offset]
    if params.min_lag_ms > 0:
        youngest_cleanable = params.now - params.min_lag_ms
        bounds += [
            s.base_offset
            for s in _from(params.segments, first_dirty)
            if s.largest_timestamp > youngest_cleanable
        ][:1]
    end = min(bounds)
    # Only whole segments are cleaned.
    return max((s.base_offset for s in params.segments if s.base_offset <= end), default=end)


def _dirty(segments: Sequence[CleanableSegment], first_dirty: Offset, end: Offset) -> list[CleanableSegment]:
    """Return the segments of [first_dirty, end). A segment inside which the last pass ended counts as clean."""
    if first_dirty >= end:
        return []
    return [one for one in _from(segments[:-1], first_dirty) if one.base_offset < end]


def _from(segments: Sequence[CleanableSegment], offset: Offset) -> Sequence[CleanableSegment]:
    """Return the segment that contains `offset`, and all later segments; a log start may be inside a segment."""
    first = bisect_right(segments, offset, key=lambda one: one.base_offset) - 1
    return segments[max(first, 0) :]


def _overdue(params: CleaningParams, first_dirty: Offset) -> bool:
    times = [
        s.first_batch_timestamp
        for s in _from(params.segments[:-1], first_dirty)
        if s.first_batch_timestamp is not None and s.first_batch_timestamp > 0
    ]
    return bool(times) and params.now - min(times) > params.max_lag_ms


class GroupingSegment(NamedTuple):
    """The properties of a segment on which grouping depends; sizes are sizes before cleaning."""

    base_offset: Offset
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


def group(
    segments: Sequence[GroupingSegment], *, segment_bytes: int, index_bytes: int, end_offset: Offset
) -> list[tuple[GroupingSegment, ...]]:
    """Return groups of adjacent segments; each group is within the limits, and its offsets fit one index.

    A segment is assumed to end where the next one begins, and the last one at `end_offset`, so no segment is read.
    """
    groups: list[tuple[GroupingSegment, ...]] = []
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    for segment, end in zip(segments, ends, strict=True):
        together = (*groups[-1], segment) if groups else (segment,)
        if (
            groups
            and sum(s.log_bytes for s in together) <= segment_bytes
            and sum(s.index_bytes for s in together) <= index_bytes
            and sum(s.time_index_bytes for s in together) <= index_bytes
            and end - 1 - together[0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1] = together
        else:
            groups.append((segment,))
    return groups
