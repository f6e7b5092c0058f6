"""The plan of a restore, made without Spark: which records exist already, which conflict, and which are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from topicfs.pipeline.errors import PipelineError
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.staging.manifest import LogPlacement

MOST_RANGES = 50
"""Most ranges of one round: each is a condition of its query."""


class ConflictError(PipelineError):
    """A topic and the archive have different records at the same offsets."""


class Extent(NamedTuple):
    """The part of a partition that an archive has."""

    first: int
    last: int
    records: int
    oldest_ms: int


class Span(NamedTuple):
    """Offsets [start, end)."""

    start: int
    end: int


class PartitionPlan(NamedTuple):
    """The plan for a partition."""

    overlap: Span
    """Offsets that the log has already, with the same records; empty where its end is not above its start."""
    rest: Span
    """Offsets to be appended; empty as above."""
    place: LogPlacement
    """Placement of the first of them."""


def plan_partition(partition: TopicPartition, extent: Extent, bounds: Span) -> PartitionPlan:
    """Plan how an archive's part of a partition goes into its log, which has the offsets `bounds` (ConflictError)."""
    whole = Span(extent.first, extent.last + 1)
    if bounds.start == bounds.end:
        if bounds.end > whole.end:
            raise ConflictError(
                f"{partition}: is empty, but has given offsets up to {bounds.end - 1} already, and the archive ends at "
                f"{extent.last}; restore into another topic, or delete this one first"
            )
        start = None if bounds.end == extent.first else Offset(extent.first)
        return PartitionPlan(Span(extent.first, extent.first), whole, LogPlacement(Offset(bounds.end), start))
    if bounds.start > extent.first:
        raise ConflictError(
            f"{partition}: begins at {bounds.start}, the archive at {extent.first}, and nothing can be put in front "
            "of a log; restore into another topic, or delete this one first"
        )
    return PartitionPlan(
        Span(extent.first, min(bounds.end, whole.end)),
        Span(max(bounds.end, extent.first), whole.end),
        LogPlacement(Offset(bounds.end)),
    )


def plan_rounds(
    parts: Mapping[TopicPartition, PartitionPlan], extents: Mapping[TopicPartition, Extent], most_records: int
) -> list[dict[TopicPartition, Span]]:
    """Return rounds of at most about `most_records` records, supposed that gaps are spread evenly."""
    rounds: list[dict[TopicPartition, Span]] = []
    room: float = 0
    for partition, span, records in _slices(parts, extents, most_records):
        if records > room or partition in rounds[-1] or len(rounds[-1]) >= MOST_RANGES:
            rounds.append({})
            room = most_records
        rounds[-1][partition] = span
        room -= records
    return rounds


def _slices(
    parts: Mapping[TopicPartition, PartitionPlan], extents: Mapping[TopicPartition, Extent], most_records: int
) -> Iterator[tuple[TopicPartition, Span, float]]:
    for partition in sorted(parts):
        rest, extent = parts[partition].rest, extents[partition]
        density = extent.records / (extent.last + 1 - extent.first)
        width = max(1, int(most_records / density))
        for start in range(rest.start, rest.end, width):
            end = min(start + width, rest.end)
            yield partition, Span(start, end), density * (end - start)


def overlaps(parts: Mapping[TopicPartition, PartitionPlan]) -> dict[TopicPartition, Span]:
    """Return spans whose records must be compared."""
    return {one: part.overlap for one, part in parts.items() if part.overlap.end > part.overlap.start}


def partitions_needed(partitions: Iterable[TopicPartition], topic: str) -> int:
    """Return the least number of partitions that the topic must have."""
    return max((one.partition + 1 for one in partitions if one.topic == topic), default=0)
