"""The counts of one topic: what is appended to its logs, and read from them.

This module is compiled by Cython, so that the codec counts a batch where it has it in hand; it runs uncompiled with the same
results. Threads change in the middle of no addition.
"""

from __future__ import annotations

from typing import Any

import cython


class ReadCounts:
    """The counts of reads. Reads are not compiled; a plain attribute costs them less than one of a compiled class."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0
        """Bytes of batches that readers were given."""


@cython.final
@cython.cclass
class TopicCounts:
    """Numbers that only grow. Appends are those of clients: what replicas copy from each other is not among them."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        """The counts of the engine, `storage.counts.EngineCounts`."""
        self.small_appends = 0
        """Appends of one batch that needed neither a roll nor an entry in an index, as most do."""
        self.larger_appends = 0
        """All others."""
        self.batches = 0
        """Batches of the larger ones; a small append is one batch."""
        self.records = 0
        self.bytes_appended = 0
        """Bytes of batches as they are in the log."""
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
        """Take back a small append that failed behind its counting."""
        self.small_appends -= 1
        self.records -= records
        self.bytes_appended -= size_bytes

    def add(self, other: TopicCounts) -> None:
        """Add the counts of another topic."""
        self.small_appends += other.small_appends
        self.larger_appends += other.larger_appends
        self.batches += other.batches
        self.records += other.records
        self.bytes_appended += other.bytes_appended
        self.reads.size_bytes += other.reads.size_bytes
