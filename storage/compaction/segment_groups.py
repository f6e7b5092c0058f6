"""Groups of neighboring segments that a pass merges into one (kafka-storage.md#segment-groups)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topicfs.storage.model import Offset

MAX_OFFSET_SPAN = 2**31 - 1
"""An index stores offsets relative to its segment's base as a signed int32."""


class GroupingSegment(NamedTuple):
    """The facts about a segment that grouping depends on; sizes as they are before cleaning."""

    base_offset: Offset
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


class SegmentGroupLimits(NamedTuple):
    """The most one cleaned segment may hold."""

    segment_bytes: int
    index_bytes: int


def group(
    segments: Sequence[GroupingSegment], *, limits: SegmentGroupLimits, end_offset: Offset
) -> list[tuple[GroupingSegment, ...]]:
    """Return groups of neighbors whose sums keep to the limits and whose offsets fit one index.

    A segment's last offset is taken as its successor's base minus one, so that it need not be read; `end_offset` is
    the successor of the last one.
    """
    groups: list[tuple[GroupingSegment, ...]] = []
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    for segment, end in zip(segments, ends, strict=True):
        if groups and _fits(groups[-1], segment, limits=limits, end_offset=end):
            groups[-1] = (*groups[-1], segment)
        else:
            groups.append((segment,))
    return groups


def _fits(
    members: tuple[GroupingSegment, ...],
    segment: GroupingSegment,
    *,
    limits: SegmentGroupLimits,
    end_offset: Offset,
) -> bool:
    together = (*members, segment)
    return (
        sum(s.log_bytes for s in together) <= limits.segment_bytes
        and sum(s.index_bytes for s in together) <= limits.index_bytes
        and sum(s.time_index_bytes for s in together) <= limits.index_bytes
        and end_offset - 1 - members[0].base_offset <= MAX_OFFSET_SPAN
    )
