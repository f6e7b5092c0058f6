"""The state of a share partition: its batches from the start offset (first not done) to the end offset (last acquired).

After a load, the *gap window* covers the holes between batches until they are fetched
(kafka-coordinators.md#share-groups).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from topicfs.coordination.shares.records.in_flight import InFlightBatch, InFlightBatches
from topicfs.coordination.shares.records.states import AVAILABLE, DeliveryState, RecordState


class Limits(NamedTuple):
    """The group's settings that concern the records of a partition."""

    lock_ms: int = 30_000
    deliveries: int = 5
    max_locks: int = 2000


class _Gap(NamedTuple):
    """The gap window: it covers the holes from `start` on. It is open as long as the end offset equals `end`."""

    start: int
    end: int


class PartitionState:
    """The state that acquisition and acknowledgement share."""

    def __init__(self, limits: Callable[[], Limits] = Limits) -> None:
        self._limits = limits
        self.batches = InFlightBatches()
        self.start_offset = 0
        """The offset of the first record that is not done (SPSO)."""
        self.end_offset = 0
        """The offset of the last record that was ever acquired (SPEO); the start offset if no record was."""
        self.complete_count = 0
        self.some_available = False
        """True if a batch may have Available records. If False, the next fetch begins after the end offset."""
        self._gap: _Gap | None = None
        self.next_lease_end: int | None = None
        """No lock ends before this time; None if there are no locks."""

    @property
    def limits(self) -> Limits:
        """The present settings, read at each use."""
        return self._limits()

    # Bounds.

    @property
    def is_empty(self) -> bool:
        return not len(self.batches) or self.start_offset > self.batches.last.last

    def in_flight_records(self) -> int:
        """Return the number of records between start and end, including those that are done."""
        return self.end_offset - self.start_offset + 1 if len(self.batches) else 0

    def next_fetch_offset(self) -> int:
        """Return the offset to fetch next: the first hole, the first Available record, or the offset after the end."""
        behind = self.end_offset if self.is_empty else self.end_offset + 1
        if not self.some_available:
            return behind
        if not self.is_empty:
            found = self._first_to_fetch()
            if found is not None:
                return found
        self.some_available = False
        return behind

    def _first_to_fetch(self) -> int | None:
        gap_start = self._gap.start if self.gap_is_open and self._gap else None
        for batch in self.batches:
            if gap_start is not None:
                if batch.first > gap_start:
                    return gap_start
                gap_start = max(batch.last + 1, gap_start)
            free = batch.first_free()
            if free is not None:
                return free
        return None

    def can_acquire(self) -> bool:
        """Return whether records can be acquired.

        Released records can always be acquired, new records only within the limit.
        """
        return (
            self.next_fetch_offset() != self.end_offset + 1
            or self.in_flight_records() < self.limits.max_locks
        )

    # The gap window.

    @property
    def gap_is_open(self) -> bool:
        return self._gap is not None and self._gap.end == self.end_offset

    @property
    def gap_start(self) -> int | None:
        """The first offset of the gap window, even after it has closed; None if there was no window."""
        return None if self._gap is None else self._gap.start

    def open_gap(self, start: int) -> None:
        self._gap = _Gap(start, self.end_offset)

    def move_gap(self, start: int) -> None:
        """Move the start of the gap window, because everything below `start` was fetched."""
        if self._gap is not None:
            still = self.gap_is_open and start <= self._gap.end
            self._gap = self._gap._replace(start=start) if still else None

    # Changes.

    def lease(self, delivery: DeliveryState, member: str, now: int) -> None:
        lease_end = now + self.limits.lock_ms
        delivery.acquire(member, now, lease_end)
        self.note_lease(lease_end)

    def note_lease(self, lease_end: int) -> None:
        if self.next_lease_end is None or lease_end < self.next_lease_end:
            self.next_lease_end = lease_end

    def free(self, batch: InFlightBatch, first: int, count: int) -> None:
        batch.freed(first, count)
        self.some_available = True

    def counted(self, first: int, last: int) -> int:
        """Return how many of the offsets `first` to `last` are at or above the start offset."""
        return max(0, last - max(self.start_offset, first) + 1)

    def advance(self) -> bool:
        """Move the start offset past done records, and drop done batches. Return whether it moved."""
        if not self._start_is_done():
            return False
        last_done, counted = self._done_through()
        if last_done is None:
            return False
        if last_done == self.batches.last.last:
            self.start_offset = self.end_offset = last_done + 1
            self.batches.clear()
            self.complete_count = 0
            return True
        holder = self.batches.floor(last_done)
        assert holder is not None
        if last_done == holder.last:
            following = self.batches.after(last_done)
            assert following is not None
            self.start_offset = max(self.start_offset, following.first)
            if self.gap_is_open and self._gap is not None:
                self.start_offset = min(self._gap.start, self.start_offset)
            self.batches.remove_up_to(holder.first)
        else:
            self.start_offset = max(self.start_offset, last_done + 1)
            self.batches.remove_up_to(holder.first - 1)
        self.complete_count -= counted
        return True

    def _start_is_done(self) -> bool:
        if not len(self.batches):
            return False
        holder = self.batches.floor(self.start_offset)
        if holder is None:
            # A hole at the start either has not been fetched yet, or is a natural hole of the log. (Kafka 4.3
            # does not distinguish the two cases, and such a start offset never moves.)
            return not self.gap_is_open and self.batches.first.done_prefix() > 0
        # A natural hole follows the batch: the state of the batch's last record decides.
        return holder.at(min(self.start_offset, holder.last)).is_done

    def _done_through(self) -> tuple[int | None, int]:
        """Return the last offset of the done records at the start, and how many of them `complete_count` includes."""
        last_done, counted = None, 0
        for batch in self.batches:
            if self.gap_is_open and self._gap is not None and batch.last >= self._gap.start:
                break
            done = batch.done_prefix()
            if done:
                last_done = batch.first + done - 1
                counted += self.counted(batch.first, last_done)
            if done < len(batch):
                break
        return last_done, counted

    def archive(
        self,
        first: int,
        end: int,
        batches: Sequence[InFlightBatch],
        *,
        state: RecordState = AVAILABLE,
        counts: bool = True,
    ) -> bool:
        """Immediately archive the records in [first, end) that are in `state`. Return whether there were any."""
        archived = False
        for batch in batches:
            if batch.first >= end:
                break
            whole = batch.whole
            if whole is not None and batch.is_within(first, end - 1):
                if whole.state is state:
                    whole.archive()
                    self.complete_count += len(batch) if counts else 0
                    archived = True
                continue
            if whole is not None and whole.state is not state:
                continue
            batch.split()
            for _offset, delivery in batch.between(first, end - 1):
                if delivery.state is state:
                    delivery.archive()
                    self.complete_count += 1 if counts else 0
                    archived = True
        return archived

    def move_log_start(self, log_start_offset: int) -> None:
        """Follow the log start: Available records below it become Archived; Acquired ones stay until acknowledged."""
        if log_start_offset <= self.start_offset:
            return
        if not len(self.batches):
            self.start_offset = self.end_offset = log_start_offset
            self.complete_count = 0
            return
        below = self._done_below(log_start_offset)
        if self.archive(self.start_offset, log_start_offset, list(self.batches), counts=False):
            self.some_available = True
        self.start_offset = log_start_offset
        self.complete_count -= below
        self.end_offset = max(self.end_offset, self.start_offset)

    def _done_below(self, end: int) -> int:
        """Return how many records from the start offset to `end` are in a final state."""
        found = 0
        for batch in self.batches.between(self.batches.first.first, end - 1):
            if batch.last < self.start_offset:
                continue
            if batch.whole is not None:
                found += (
                    self.counted(batch.first, min(end - 1, batch.last)) if batch.whole.state.is_final else 0
                )
            else:
                found += sum(1 for _, one in batch.between(self.start_offset, end - 1) if one.state.is_final)
        return found
