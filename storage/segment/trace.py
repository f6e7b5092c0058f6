"""The steps of a lookup as values: what `explain` prints with the real numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from topicfs.storage.indexes.offset_index import OffsetIndex
from topicfs.storage.model import Offset, Position


class SegmentsSearched(NamedTuple):
    """The choice of a segment: of these base offsets the greatest not above the target."""

    target: int
    base_offsets: tuple[int, ...]
    chosen: int


class SegmentPassed(NamedTuple):
    """A search by time left this segment aside: all its records are older."""

    base_offset: int
    largest_timestamp: int


class SegmentTaken(NamedTuple):
    """A search by time looks into this segment: the first that has something as late."""

    base_offset: int
    largest_timestamp: int


class Probe(NamedTuple):
    slot: int
    key: int
    """Offset or timestamp, absolute."""
    value: int
    """Position (offset index) or absolute offset (time index)."""


class IndexSearched(NamedTuple):
    """A binary search in an index file."""

    file: str
    entries: int
    target: int
    probes: tuple[Probe, ...]
    """In the order they were looked at."""
    found_key: int
    found_value: int
    """Key and value of the greatest entry not above the target; without one, those of the segment's start."""


class ScanBegan(NamedTuple):
    file: str
    position: int


class BatchPassed(NamedTuple):
    """A batch that ends before the target."""

    position: int
    base_offset: int
    last_offset: int


class BatchFound(NamedTuple):
    """The batch that holds the target, or the first one behind it."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


class RecordFound(NamedTuple):
    """The record itself: the target, or the first one behind it."""

    offset: int
    timestamp: int


Step: TypeAlias = (
    SegmentsSearched
    | SegmentPassed
    | SegmentTaken
    | IndexSearched
    | ScanBegan
    | BatchPassed
    | BatchFound
    | RecordFound
)

Trace: TypeAlias = Callable[[Step], None]
"""Takes each step as it happens."""


def find_floor(index: OffsetIndex, offset: Offset, trace: Trace | None) -> Position:
    """Return the position where the search for `offset` begins in the log."""
    if trace is None:
        return index.lookup(offset).position
    slots: list[int] = []
    found = index.lookup(offset, slots)
    probes = tuple(Probe(slot, *index.entry(slot)) for slot in slots)
    trace(IndexSearched(index.slots.path.name, index.entries, offset, probes, *found))
    return found.position
