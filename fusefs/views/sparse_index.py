"""The view index: the positions of some records in a rendering, so that any other record is found near one of them.

    position   0          65 601      131 410             frontier position
               │··········│···········│················───│
    offset     100        742         1 391               frontier offset

An entry means that the rendering of the records from `offset` on begins at `position`. There is an entry for every 64
KiB or more of text, always between batches, and an entry at the start of each segment. All positions below the
frontier can be found; measuring moves the frontier. Positions count from an origin that never moves, so that removing
data at the front removes entries but changes none. An entry takes 16 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from topicfs.storage.model import Offset

ENTRY_INTERVAL = 64 * 1024
"""Minimum bytes of text between two entries. Entries are between batches, so there may be one batch more."""
MAX_BATCH_INTERVAL = 1024 * 1024
"""Maximum bytes of batches between two entries, for batches that render to little text. One batch may exceed it."""

DECODED_SHARE = 16
"""This many bytes of decoded records count as one byte of a batch.

So at most 16 MiB of decoded records, or one batch, lie between two entries.
"""


class Entry(NamedTuple):
    """A known place: the records from `offset` on are rendered from view position `position` on."""

    position: int
    offset: Offset


class Excerpt(NamedTuple):
    """The entries of a range of records, with positions from the range's first byte; saved as a segment's positions."""

    positions: array[int]
    """View positions of the entries, ascending from 0."""
    offsets: array[int]
    """Offsets of the entries, strictly ascending."""
    size: int
    """Size of the text."""
    end_offset: Offset
    """Exclusive end offset."""


class SparseIndex:
    """The known positions of one rendering. Not thread-safe: `Measure` holds a lock."""

    __slots__ = ("_batch_bytes", "_offsets", "_positions", "frontier")

    def __init__(self, start_offset: Offset) -> None:
        self._positions = array("q", [0])
        self._offsets = array("q", [start_offset])
        self._batch_bytes = 0  # since the last entry
        self.frontier = Entry(0, start_offset)

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def start(self) -> Entry:
        """The lowest known place."""
        return Entry(self._positions[0], Offset(self._offsets[0]))

    def at(self, position: int) -> Entry:
        """Return the last entry at or below a position."""
        index = max(bisect_right(self._positions, position) - 1, 0)
        return Entry(self._positions[index], Offset(self._offsets[index]))

    def before(self, offset: Offset) -> Entry:
        """Return the last entry at or below an offset."""
        index = max(bisect_right(self._offsets, offset) - 1, 0)
        return Entry(self._positions[index], Offset(self._offsets[index]))

    def after(self, offset: Offset) -> Entry:
        """Return the first entry at or above an offset, or the frontier."""
        index = bisect_left(self._offsets, offset)
        if index == len(self._offsets):
            return self.frontier
        return Entry(self._positions[index], Offset(self._offsets[index]))

    def extend(
        self,
        rendered_sizes: Sequence[int],
        batch_positions: Sequence[int],
        base_offsets: Sequence[int],
        *,
        end_position: int,
        next_offset: Offset,
        decoded_bytes: int = 0,
    ) -> None:
        """Advance the frontier over adjacent batches, given the rendered size, position and base offset of each batch.

        `end_position` is where the last batch ends; the first batch may begin below the frontier's offset.
        `decoded_bytes` is the memory that the records take. For compressed batches, this is far more than their size.
        """
        count = len(rendered_sizes)
        if count == 1:
            batch_bytes = max(end_position - batch_positions[0], decoded_bytes // DECODED_SHARE)
            self._extend_by_one(rendered_sizes[0], batch_bytes, next_offset)
            return
        positions = list(accumulate(rendered_sizes, initial=self.frontier.position))
        # Position of the last entry, as if the batches since that entry lay directly before these batches.
        passed_from = batch_positions[0] - self._batch_bytes
        index = -1
        while True:
            by_rendering = bisect_left(positions, self._positions[-1] + ENTRY_INTERVAL, index + 1)
            by_batches = bisect_left(batch_positions, passed_from + MAX_BATCH_INTERVAL, index + 1)
            index = min(by_rendering, by_batches)
            if index >= count:
                break
            self._add(Entry(positions[index], Offset(base_offsets[index])) if index else self.frontier)
            passed_from = batch_positions[index]
        self._batch_bytes = end_position - passed_from
        self.frontier = Entry(positions[count], next_offset)

    def _extend_by_one(self, rendered_size: int, batch_size: int, next_offset: Offset) -> None:
        """Advance over one batch: faster than `extend` for single appends, because it needs no lists."""
        frontier = self.frontier
        if (
            frontier.position - self._positions[-1] >= ENTRY_INTERVAL
            or self._batch_bytes >= MAX_BATCH_INTERVAL
        ):
            self._add(frontier)
            self._batch_bytes = 0
        self._batch_bytes += batch_size
        self.frontier = Entry(frontier.position + rendered_size, next_offset)

    def pass_rendered(self, end: Entry) -> None:
        """Advance the frontier to `end`, over text of which only the end is known."""
        size = end.position - self.frontier.position
        self._extend_by_one(size, size, end.offset)

    def skip(self, next_offset: Offset) -> None:
        """Advance the frontier over offsets that render to nothing: a gap, or an unreadable batch."""
        self.frontier = Entry(self.frontier.position, max(next_offset, self.frontier.offset))

    def begin_segment(self, base_offset: Offset) -> None:
        """Add an entry at the frontier, where a segment begins. The entries of each segment can then be saved alone."""
        if base_offset > self.frontier.offset:
            self.skip(base_offset)
        self._add(self.frontier)
        self._batch_bytes = 0

    def trim(self, start: Entry) -> None:
        """Remove the entries below a known place, which becomes the first entry."""
        if start.offset <= self._offsets[0]:
            return
        index = bisect_left(self._offsets, start.offset)
        if index == len(self._offsets) or self._offsets[index] != start.offset:
            index -= 1
        del self._positions[:index]
        del self._offsets[:index]
        self._positions[0] = start.position
        self._offsets[0] = start.offset

    def excerpt(self, start_offset: Offset, end: Entry) -> Excerpt:
        """Return the entries from the entry at `start_offset` up to `end`, exclusive."""
        first = bisect_left(self._offsets, start_offset)
        last = bisect_left(self._offsets, end.offset)
        origin = self._positions[first]
        positions = array("q", [position - origin for position in self._positions[first:last]])
        return Excerpt(positions, self._offsets[first:last], end.position - origin, end.offset)

    def append(self, known: Excerpt) -> None:
        """Add the saved entries of the records that begin at the frontier."""
        if known.offsets[0] != self.frontier.offset:
            raise ValueError(f"an excerpt from {known.offsets[0]} on does not follow {self.frontier.offset}")
        origin = self.frontier.position
        self._add(self.frontier)
        self._positions.extend(position + origin for position in known.positions[1:])
        self._offsets.extend(known.offsets[1:])
        self._batch_bytes = 0
        self.frontier = Entry(origin + known.size, known.end_offset)

    def _add(self, entry: Entry) -> None:
        if entry.offset > self._offsets[-1]:
            self._positions.append(entry.position)
            self._offsets.append(entry.offset)
