"""The counters of one topic: appends to its logs, and reads.

This module is compiled by Cython, so that the codec counts a batch while it handles the batch. It also runs
uncompiled with the same results. Threads do not switch during an addition.
"""

from __future__ import annotations

from typing import Any

import cython


class ReadCounts:
    """The counters of reads. Not compiled, because reads are Python code, which adds faster to plain attributes."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0
        """Bytes of batches returned to readers."""


@cython.final
@cython.cclass
class TopicCounts:
    """Counters that only grow. They count appends of clients, but not what replicas copy from each other."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        """The counters of the engine, `storage.counts.EngineCounts`."""
        self.small_appends = 0
        """Number of appends of one batch that needed neither a roll nor an index entry. Most appends are small."""
        self.larger_appends = 0
        """Number of appends that are not small."""
        self.batches = 0
        """Number of batches in the larger appends; a small append has one batch."""
        self.records = 0
        self.bytes_appended = 0
        """Size of the appended batches as stored in the log."""
        self.reads = ReadCounts()

    @cython.ccall
    def note_append(
        self, batches: cython.longlong, records: cython.longlong, size_bytes: cython.longlong
    ) -> object:
        """Count a larger append."""
        self.larger_appends += 1
        self.batches += batches
        self.records += records
        self.bytes_appended += size_bytes
        return None

    def take_back(self, records: int, size_bytes: int) -> None:
        """Undo the count of a small append that failed after it was counted."""
        self.small_appends -= 1
        self.records -= records
        self.bytes_appended -= size_bytes

    def add(self, other: TopicCounts) -> None:
        self.small_appends += other.small_appends
        self.larger_appends += other.larger_appends
        self.batches += other.batches
        self.records += other.records
        self.bytes_appended += other.bytes_appended
        self.reads.size_bytes += other.reads.size_bytes
