"""Applies the sparse rule to many batches in one call: which of them get index entries, and with which timestamps.

`Segment.append` applies the same rule batch by batch. Recovery scans millions of batches, and between two entries
needs only their timestamps (kafka-storage.md#sparse-entries).

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
"""A `PlacedBatch`, or a plain tuple of its fields."""


class PlacedBatch(NamedTuple):
    """A batch with its final offsets, in the form that the indexes accept."""

    size_bytes: int
    last_offset: int
    max_timestamp: int


class SparseState(NamedTuple):
    """The state that the rule carries from one batch to the next."""

    counted_from: int
    """Position of the last batch with entries, or the position where counting began."""
    largest: TimeEntry
    """The largest timestamp until now, and the last offset of the first batch that has it."""


class DueEntries(NamedTuple):
    """The batches that get entries, in order."""

    batches: list[tuple[int, int]]
    """Last offset and position of each batch that gets an entry."""
    maxima: list[TimeEntry]
    """For each batch that gets an entry, the largest timestamp up to and including it."""
    state: SparseState


def due_entries(
    state: SparseState, batches: Batches, count: int, *, position: int, interval_bytes: int
) -> DueEntries:
    """Apply the rule to the first `count` batches; their positions count from `position` in the file."""
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
    """Return the due entries that fit the indexes; a room of 0 means that no entry fits.

    The timestamps of time entries must be above the timestamp of `last`, the index's last entry.
    """
    rising: list[TimeEntry] = []
    for number, entry in enumerate(due.maxima):
        if number >= offset_room or len(rising) >= time_room:
            return due.batches[:number], rising
        if entry.timestamp > last.timestamp:
            rising.append(entry)
            last = entry
    return due.batches, rising
