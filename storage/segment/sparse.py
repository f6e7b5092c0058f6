"""The sparse rule over many batches at once: which of them get index entries, and with which maxima.

`Segment.append` applies the same rule batch by batch; recovery goes through millions of batches and looks only at
timestamps between two entries (kafka-storage.md#sparse-entries).

This module is compiled by Cython, and runs uncompiled with the same results.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import cython

from topicfs.storage.codec.headers import Batches
from topicfs.storage.indexes.time_index import TimeEntry
from topicfs.storage.model import Offset, Timestamp

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.storage.codec.binary import fields, memory

Placed: TypeAlias = tuple[int, int, int]
"""A `PlacedBatch`, perhaps without its names."""


class PlacedBatch(NamedTuple):
    """A batch with its final offsets, as the indexes take it."""

    size_bytes: int
    last_offset: int
    max_timestamp: int


class SparseState(NamedTuple):
    """The state that the rule carries from one batch to the next."""

    counted_from: int
    """Position of the batch that got the last entries, or where counting began."""
    largest: TimeEntry
    """The largest timestamp so far, and the last offset of the first batch that has it."""


class DueEntries(NamedTuple):
    """The batches that get entries, in order."""

    batches: list[tuple[int, int]]
    """Last offset and position."""
    maxima: list[TimeEntry]
    """The largest timestamp up to and including that batch."""
    state: SparseState


def due_entries(
    state: SparseState, batches: Batches, count: int, *, position: int, interval_bytes: int
) -> DueEntries:
    """Apply the rule to the first `count` of adjacent batches, whose positions count from `position` of the file."""
    rows: memoryview = batches.rows
    row: cython.p_longlong = memory.int64s_of(rows)
    start: cython.longlong = position
    counted_from: cython.longlong = state.counted_from
    interval: cython.longlong = interval_bytes
    largest: TimeEntry = state.largest
    timestamp: cython.longlong = largest.timestamp
    at: cython.Py_ssize_t
    number: cython.Py_ssize_t
    brought_by: cython.Py_ssize_t = -1
    due: list[tuple[int, int]] = []
    maxima: list[TimeEntry] = []
    for number in range(count):
        at = fields.ROW_SIZE * number
        if row[at + fields.MAX_TIMESTAMP] > timestamp:
            timestamp = row[at + fields.MAX_TIMESTAMP]
            brought_by = at
        if start + row[at + fields.POSITION] - counted_from > interval:
            counted_from = start + row[at + fields.POSITION]
            if brought_by >= 0:
                largest = TimeEntry(Timestamp(timestamp), Offset(row[brought_by + fields.LAST_OFFSET]))
                brought_by = -1
            due.append((row[at + fields.LAST_OFFSET], counted_from))
            maxima.append(largest)
    if brought_by >= 0:
        largest = TimeEntry(Timestamp(timestamp), Offset(row[brought_by + fields.LAST_OFFSET]))
    return DueEntries(due, maxima, SparseState(counted_from, largest))


def fitting(
    due: DueEntries, *, last: TimeEntry, offset_room: int, time_room: int
) -> tuple[list[tuple[int, int]], list[TimeEntry]]:
    """Return what of the due entries is added: none once either index is full; of the maxima those above the one before.

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
