"""The sparse rule over many batches at once: which of them get index entries, and with which maxima.

`Segment.append` applies the same rule batch by batch; recovery goes through millions of batches and looks only at
timestamps between two entries (kafka-storage.md §3).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from storage.indexes.time_index import TimeEntry
from storage.model import Offset, Timestamp

Placed: TypeAlias = tuple[int, int, int]
"""A `PlacedBatch`, perhaps without its names."""


class PlacedBatch(NamedTuple):
    """A batch with its final offsets, as the indexes want to know it."""

    size_bytes: int
    last_offset: int
    max_timestamp: int


class SparseState(NamedTuple):
    """What the rule carries from one batch to the next."""

    counted_from: int
    """Position of the batch that got the last entries, or where counting began."""
    largest: TimeEntry
    """The largest timestamp so far, and the last offset of the first batch that has it."""


class DueEntries(NamedTuple):
    """For each batch that gets entries, in order."""

    batches: list[tuple[int, int]]
    """Last offset and position."""
    maxima: list[TimeEntry]
    """The largest timestamp up to and including that batch."""
    state: SparseState


def due_entries(
    state: SparseState,
    positions: Sequence[int],
    last_offsets: Sequence[int],
    max_timestamps: Sequence[int],
    *,
    interval_bytes: int,
) -> DueEntries:
    """Apply the rule to adjacent batches, given as columns."""
    counted_from, largest = state
    batches: list[tuple[int, int]] = []
    maxima: list[TimeEntry] = []
    first, count = 0, len(positions)
    while first < count:
        due = bisect_right(positions, counted_from + interval_bytes, first)
        stop = min(due + 1, count)
        timestamp = max(max_timestamps[first:stop])
        if timestamp > largest.timestamp:
            at = max_timestamps.index(timestamp, first, stop)
            largest = TimeEntry(Timestamp(timestamp), Offset(last_offsets[at]))
        if due < count:
            counted_from = positions[due]
            batches.append((last_offsets[due], counted_from))
            maxima.append(largest)
        first = stop
    return DueEntries(batches, maxima, SparseState(counted_from, largest))


def fitting(
    due: DueEntries, *, last: TimeEntry, offset_room: int, time_room: int
) -> tuple[list[tuple[int, int]], list[TimeEntry]]:
    """What of the due entries is added: none once either index is full; of the maxima those above the one before.

    `last` is the time index's last entry, the rooms say how many more entries each index takes.
    """
    rising: list[TimeEntry] = []
    for number, entry in enumerate(due.maxima):
        if number >= offset_room or len(rising) >= time_room:
            return due.batches[:number], rising
        if entry.timestamp > last.timestamp:
            rising.append(entry)
            last = entry
    return due.batches, rising
