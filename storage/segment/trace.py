"""The steps of a lookup as values, which `explain` prints. Plain reads do not import this module."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.indexes.offset_index import OffsetIndex
from topicfs.storage.indexes.time_index import TimeEntry, TimeIndex
from topicfs.storage.model import Offset, Position, Timestamp


class SegmentsSearched(NamedTuple):
    """The choice of a segment: the greatest of these base offsets that is not above the target."""

    target: int
    base_offsets: tuple[int, ...]
    chosen: int


class SegmentPassed(NamedTuple):
    """A search by time skipped this segment, because all of its records are older."""

    base_offset: int
    largest_timestamp: int


class SegmentTaken(NamedTuple):
    """A search by time looks into this segment, the first one whose largest timestamp is late enough."""

    base_offset: int
    largest_timestamp: int


class Probe(NamedTuple):
    slot: int
    key: int
    """Absolute offset or timestamp."""
    value: int
    """Position if the index is an offset index, absolute offset if it is a time index."""


class IndexSearched(NamedTuple):
    """A binary search in an index file."""

    file: str
    entries: int
    target: int
    probes: tuple[Probe, ...]
    """The entries that were read, in order."""
    found_key: int
    found_value: int
    """Key and value of the greatest entry not above the target, or else key and value of the segment's start."""


class ScanBegan(NamedTuple):
    file: str
    position: int


class BatchPassed(NamedTuple):
    """A batch that ends before the target, and is skipped."""

    position: int
    base_offset: int
    last_offset: int


class BatchFound(NamedTuple):
    """The batch that contains the target; if no batch does, the first one after it."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


class RecordFound(NamedTuple):
    """The record at the target; if there is none, the first one after it."""

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


class LookupTrace:
    """Records the steps of one lookup in order. The search calls its methods."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def search_segments(self, target: int, base_offsets: tuple[int, ...], chosen: int) -> None:
        self.steps.append(SegmentsSearched(target, base_offsets, chosen))

    def pass_segment(self, base_offset: int, largest_timestamp: int) -> None:
        self.steps.append(SegmentPassed(base_offset, largest_timestamp))

    def take_segment(self, base_offset: int, largest_timestamp: int) -> None:
        self.steps.append(SegmentTaken(base_offset, largest_timestamp))

    def find_time(self, index: TimeIndex, timestamp: Timestamp) -> TimeEntry:
        """Return the entry from which the search for `timestamp` continues."""
        slots: list[int] = []
        found = index.lookup(timestamp, slots)
        probes = tuple(Probe(slot, *index.entry(slot)) for slot in slots)
        self.steps.append(IndexSearched(index.slots.path.name, index.entries, timestamp, probes, *found))
        return found

    def find_position(self, index: OffsetIndex, offset: Offset) -> Position:
        """Return the position where the search for `offset` begins in the log."""
        slots: list[int] = []
        found = index.lookup(offset, slots)
        probes = tuple(Probe(slot, *index.entry(slot)) for slot in slots)
        self.steps.append(IndexSearched(index.slots.path.name, index.entries, offset, probes, *found))
        return found.position

    def begin_scan(self, file: str, position: int) -> None:
        self.steps.append(ScanBegan(file, position))

    def pass_batch(self, window_position: int, batch: BatchHeader) -> None:
        position = window_position + batch.position
        self.steps.append(BatchPassed(position, batch.base_offset, batch.last_offset))

    def take_batch(self, window_position: int, batch: BatchHeader) -> None:
        position = window_position + batch.position
        self.steps.append(BatchFound(position, batch.size_bytes, batch.base_offset, batch.last_offset))

    def take_record(self, offset: int, timestamp: int) -> None:
        self.steps.append(RecordFound(offset, timestamp))
