"""Decides which of the fetched records a member gets: released records first, then new records.

Batches that were delivered often are split, to isolate a record that crashes its readers
(kafka-coordinators.md#poison-records).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topicfs.coordination.shares.records.in_flight import InFlightBatch
from topicfs.coordination.shares.records.partition_state import PartitionState
from topicfs.coordination.shares.records.states import ACQUIRED, DeliveryState


class LogBatch(NamedTuple):
    base: int
    last: int


class Acquired(NamedTuple):
    """Adjacent records that a member acquired: first and last offset, both inclusive."""

    first: int
    last: int
    deliveries: int


class AcquireRequest(NamedTuple):
    """A member's request for records, and the batches that were fetched for it."""

    member: str
    most: int
    """Number of records wanted. Unless `exactly` is set, each batch of the log is acquired as a whole."""
    fetch_offset: int
    """The offset that was requested from the log."""
    batches: Sequence[LogBatch]
    """The fetched batches: adjacent, and at least one."""
    exactly: bool = False
    """True: never acquire more than `most` records (Kafka's mode record_limit)."""
    aborted: Sequence[LogBatch] = ()
    """The fetched batches of aborted transactions, which become Archived."""


class _Enough(Exception):  # noqa: N818 (no error)
    """Ends an acquisition that has enough records."""


def throttle_limit(limit: int) -> int:
    """Return the number of deliveries at which a batch is split."""
    return max(2, -(-limit // 2))


def acquire(window: PartitionState, wanted: AcquireRequest, now: int) -> list[Acquired]:
    """Acquire records for a member; return an empty list if none are available for it."""
    if wanted.most <= 0 or not wanted.batches or wanted.batches[-1].last < window.start_offset:
        return []
    return _Acquisition(window, wanted, now).run()


class _Acquisition:
    def __init__(self, window: PartitionState, wanted: AcquireRequest, now: int) -> None:
        self._window = window
        self._wanted = wanted
        self._now = now
        self._first = wanted.batches[0].base
        self._last = wanted.batches[-1].last
        self._most = wanted.most
        self._limit = window.limits.deliveries
        self._result: list[Acquired] = []
        self._acquired = 0

    def run(self) -> list[Acquired]:
        window = self._window
        if not self._fit_into_bound():
            return []
        base = self._begin()
        overlap = window.batches.between(min(self._first, base), self._last)
        if overlap:
            try:
                self._again(overlap, base)
            except _Enough:
                pass
            else:
                self._rest(overlap[-1].last + 1)
            if self._result:
                window.move_gap(self._result[-1].last + 1)
        else:
            self._new(base, self._last, self._most)
        return self._without_aborted() if self._result else []

    def _fit_into_bound(self) -> bool:
        """Limit the number of wanted records so that at most `max_locks` are in flight. Return False if it is then 0.

        The limit does not apply to records that were delivered before.
        """
        window = self._window
        self._most = min(self._most, window.limits.max_locks - window.in_flight_records())
        if self._most <= 0 and self._wanted.fetch_offset <= window.end_offset:
            self._most = min(self._wanted.most, window.end_offset - self._wanted.fetch_offset + 1)
            self._last = min(self._last, window.end_offset)
        return self._most > 0

    def _begin(self) -> int:
        """Archive records that the log has deleted; return the offset from which available records are searched."""
        window, base = self._window, self._first
        fetch_offset = self._wanted.fetch_offset
        if len(window.batches) and fetch_offset < base:
            floor = window.batches.floor(fetch_offset)
            start = floor.first if floor is not None and floor.last >= fetch_offset else fetch_offset
            gone = window.batches.between(start, base - 1)
            if gone and window.archive(fetch_offset, base, gone):
                window.some_available = True
        floor = window.batches.floor(base)
        if floor is None:
            return max(base, window.start_offset)
        return floor.first if floor.last >= base else base

    # Records fetched before.

    def _again(self, overlap: Sequence[InFlightBatch], base: int) -> None:
        gap_from = base
        for batch in overlap:
            self._check_enough()
            if self._window.gap_is_open:
                if gap_from < batch.first:
                    self._new(gap_from, batch.first - 1, self._most - self._acquired)
                gap_from = batch.last + 1
                self._check_enough()
            self._again_from(batch)

    def _check_enough(self) -> None:
        if self._acquired >= self._most:
            raise _Enough

    def _again_from(self, batch: InFlightBatch) -> None:
        throttled = self._is_throttled(batch)
        if throttled and self._acquired:
            raise _Enough  # A batch that must be split is acquired alone, by the next fetch.
        whole = batch.whole
        too_many = self._wanted.exactly and len(batch) > self._most - self._acquired
        if whole is not None and not whole.is_free:
            return
        if whole is None or throttled or too_many or not batch.is_within(self._first, self._last):
            batch.split()
            count = self._some_of(batch)
            if throttled and count:
                raise _Enough
            return
        self._window.lease(whole, self._wanted.member, self._now)
        self._add_acquired(batch.first, batch.last, whole.count)

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        limit = throttle_limit(self._limit)
        if batch.max_delivered < limit:
            return False
        if batch.whole is not None:
            return batch.whole.is_free and batch.whole.count >= limit
        inside = batch.between(self._first, self._last)
        return any(one.count >= limit and one.is_free for _, one in inside)

    def _some_of(self, batch: InFlightBatch) -> int:
        """Acquire the batch's records one at a time, and return their number.

        The number is less than the member may acquire if one of the records was delivered often.
        """
        given: list[Acquired] = []
        allowed: int | None = None
        throttle = throttle_limit(self._limit)
        left = self._most - self._acquired
        for offset, delivery in batch.between(batch.free_from(self._first), self._last):
            if not delivery.is_free:
                continue
            if self._limit > 2 and delivery.count == self._limit - 1 and given:
                break  # A record that crashes its readers must be alone in its last delivery.
            if allowed is None and delivery.count >= throttle:
                allowed = max(1, len(batch) >> (delivery.count - throttle + 1))
            self._window.lease(delivery, self._wanted.member, self._now)
            given.append(Acquired(offset, offset, delivery.count))
            last_attempt = delivery.count == self._limit and self._limit > 2
            enough = self._wanted.exactly and len(given) == left
            if last_attempt or enough or len(given) == allowed:
                break
        self._result += _joined(given)
        self._acquired += len(given)
        return len(given)

    # New records.

    def _rest(self, first: int) -> None:
        if self._acquired < self._most and first <= self._last:
            self._new(first, self._last, self._most - self._acquired)

    def _new(self, first: int, last: int, most: int) -> None:
        window = self._window
        if not len(window.batches):
            first = max(first, window.end_offset)
        end = last
        if most < last - first + 1:
            end = self._end_of_batch(first + most - 1)
            if window.gap_is_open:
                end = min(end, last)
        lease_end = self._now + window.limits.lock_ms
        delivery = DeliveryState(ACQUIRED, 1, self._wanted.member, since=self._now, lease_end=lease_end)
        window.note_lease(lease_end)
        batch = InFlightBatch(first, end, delivery)
        window.batches.put(batch)
        if window.batches.first is batch:
            window.start_offset = first
        window.end_offset = max(window.end_offset, end)
        if self._wanted.exactly and end - first + 1 > most:
            # The batch's other records stay available.
            end = first + most - 1
            batch.split_after(end)
            window.free(batch, end + 1, 0)
        window.move_gap(end + 1)
        self._add_acquired(first, end, 1)

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the fetched batch that contains `offset`; without such a batch, `offset`."""
        before = None
        for batch in self._wanted.batches:
            if batch.base > offset:
                break
            before = batch
        return before.last if before is not None and offset <= before.last else offset

    def _add_acquired(self, first: int, last: int, count: int) -> None:
        self._result.append(Acquired(first, last, count))
        self._acquired += last - first + 1

    # Records of aborted transactions.

    def _without_aborted(self) -> list[Acquired]:
        for batch in self._wanted.aborted:
            floor = self._window.batches.floor(batch.base)
            start = floor.first if floor is not None else batch.base
            held = self._window.batches.between(start, batch.last)
            self._window.archive(batch.base, batch.last + 1, held, state=ACQUIRED)
        result = self._result
        for batch in self._wanted.aborted:
            result = [piece for one in result for piece in _minus(one, batch)]
        return result


def _joined(given: Sequence[Acquired]) -> list[Acquired]:
    """Join adjacent ranges with the same number of deliveries."""
    joined: list[Acquired] = []
    for one in given:
        if joined and joined[-1].last + 1 == one.first and joined[-1].deliveries == one.deliveries:
            joined[-1] = joined[-1]._replace(last=one.last)
        else:
            joined.append(one)
    return joined


def _minus(one: Acquired, batch: LogBatch) -> list[Acquired]:
    """Return the parts of the range `one` that lie outside `batch`."""
    pieces = [
        one._replace(last=min(one.last, batch.base - 1)),
        one._replace(first=max(one.first, batch.last + 1)),
    ]
    return [piece for piece in pieces if piece.first <= piece.last]
