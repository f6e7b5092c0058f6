"""A window: fetched batches as one immutable value."""

from __future__ import annotations

from typing import NamedTuple

from topicfs.storage.codec.aborted_filter import still_aborted
from topicfs.storage.codec.batch import find_end, find_offset, read_header, scan
from topicfs.storage.model import AbortedTransaction, Fetched, Isolation, Offset, Position


class FetchedWindow(NamedTuple):
    """Batches from an offset on, as the leader of an epoch answered them."""

    offset: Offset
    next_offset: Offset
    data: memoryview
    aborted: tuple[AbortedTransaction, ...]
    isolation: Isolation | None
    """The reader's; None for batches that every reader sees."""
    leader_epoch: int

    def part(self, offset: Offset, max_bytes: int) -> Fetched:
        """Return the batches from the one that holds `offset` on: at least one, where there is one."""
        data = self.data
        position = find_offset(data, offset, len(data))
        if position == len(data):
            return Fetched(data[:0], Position(0), Offset(0), max(offset, self.next_offset))
        size, last_offset = find_end(data[position : position + max_bytes])
        first = read_header(data, position)
        if not size:
            size, last_offset = first.size_bytes, first.last_offset
        aborted = self.aborted
        if aborted and position:
            aborted = still_aborted(aborted, scan(data, 0, position))
        end = position + size
        # Brokers do not say where in a segment a batch is; its offset tells it from all others.
        place = Position(first.base_offset)
        after = Offset(max(first.last_offset, last_offset) + 1)
        return Fetched(data[position:end], place, Offset(0), after, aborted)
