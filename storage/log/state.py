"""The state of a log that readers see, as one immutable value.

A change publishes the next value by one assignment (`LogParts.state`). A reader takes the value once, without a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.model import Isolation, Offset
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.segment import Segment

Places: TypeAlias = dict[int, tuple[Offset, int]]
"""Where readers continue: maps a reader's next offset to a segment's base offset and the position in the segment."""


class Bound(NamedTuple):
    """An exclusive end for readers: an `offset`, and the place where the offset begins.

    The place is a `position` in the file of `segment`.
    """

    offset: Offset
    segment: Segment
    position: int

    def bytes_of(self, segment: Segment) -> int:
        """Return the size of `segment`'s batches below this end, which must not be in an earlier segment."""
        return self.position if segment is self.segment else segment.size


class LogState(NamedTuple):
    """One immutable state. The files have whole batches up to the end; log start <= high watermark <= log end."""

    chain: Chain
    end_offset: Offset
    end_position: int
    """Size of the batches in the active segment."""
    start_offset: Offset
    replicated: Offset | None
    """The high watermark; None if there is one replica, because it is then always the log end."""
    first_unstable: Offset | None
    """First offset of the first undecided transaction; None if there is no such transaction."""
    aborted: tuple[AbortedSpan, ...]
    """The aborted transactions that end at or above the log start, by ascending last offset."""
    places: Places
    """Filled by the readers of this value. After segments were removed, replaced or cut, a new value has a new dict."""

    @property
    def end(self) -> Bound:
        return _new_bound(Bound, (self.end_offset, self.chain.segments[-1], self.end_position))

    @property
    def high_watermark(self) -> Offset:
        return self.end_offset if self.replicated is None else self.replicated

    @property
    def last_stable_offset(self) -> Offset:
        first, high_watermark = self.first_unstable, self.high_watermark
        return high_watermark if first is None else min(first, high_watermark)

    def visible_end(self, isolation: Isolation) -> Offset:
        """Return the exclusive end of the offsets that readers of `isolation` see."""
        if self.replicated is None and self.first_unstable is None:  # This is the usual case.
            return self.end_offset
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    def bound(self, isolation: Isolation) -> Bound:
        """Return the end for readers of `isolation` (kafka-storage.md#isolation)."""
        end = _new_bound(Bound, (self.end_offset, self.chain.segments[-1], self.end_position))
        if self.replicated is None and self.first_unstable is None:  # This is the usual case.
            return end
        visible_end = self.visible_end(isolation)
        if visible_end >= end.offset:
            return end
        segment = self.chain.segments[self.chain.floor(visible_end)]
        limit = end.bytes_of(segment)
        batch = segment.find_batch(visible_end, limit)
        return Bound(visible_end, segment, limit if batch is None else batch.position)

    def log_bytes(self) -> int:
        return sum(segment.size for segment in self.chain.segments[:-1]) + self.end_position

    def extended(self, end_offset: Offset, end_position: int, replicated: Offset | None) -> LogState:
        """Return the state after an append to the active segment; `replicated` must be within the log's bounds."""
        chain, _, _, start_offset, _, first_unstable, aborted, places = self
        fields = (chain, end_offset, end_position, start_offset, replicated, first_unstable, aborted, places)
        return _new_state(LogState, fields)

    def rolled(self, segment: Segment) -> LogState:
        """Return the state after a roll. `segment` is empty; its base offset is the log end, even after a gap."""
        chain = self.chain.with_active(segment)
        return self._replace(chain=chain, end_offset=segment.base_offset, end_position=0)

    def started_at(self, offset: Offset) -> LogState:
        aborted = tuple(span for span in self.aborted if span.last_offset >= offset)
        return self._replace(start_offset=offset, aborted=aborted)

    def with_segments(self, chain: Chain) -> LogState:
        """Return the state after segments were removed or replaced; the remembered positions are dropped."""
        return self._replace(chain=chain, places={})

    def cut_at(self, end: Bound, chain: Chain, start_offset: Offset) -> LogState:
        """Return the state after a truncation to `chain`; the next append is at `end`.

        Aborted transactions whose markers were cut off are undecided again, but stay in `aborted` until their first
        offsets are known.
        """
        offset, replicated = end.offset, self.replicated
        if replicated is not None:
            replicated = Offset(max(start_offset, min(replicated, offset)))
        return self.with_segments(chain)._replace(
            end_offset=offset, end_position=end.position, start_offset=start_offset, replicated=replicated
        )

    def without_aborts_from(self, offset: Offset) -> LogState:
        """Return the state without the aborted transactions whose markers are at `offset` or above."""
        return self._replace(aborted=tuple(span for span in self.aborted if span.last_offset < offset))


StateFields: TypeAlias = tuple[
    Chain, Offset, int, Offset, Offset | None, Offset | None, tuple[AbortedSpan, ...], Places
]
"""The types of the fields of `LogState`, in their order."""

# `tuple.__new__` takes half the time of a call of the class; every append and every read makes these values.
_new_bound: Callable[[type[Bound], tuple[Offset, Segment, int]], Bound] = tuple.__new__
_new_state: Callable[[type[LogState], StateFields], LogState] = tuple.__new__
