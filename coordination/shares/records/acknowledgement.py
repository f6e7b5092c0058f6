"""Ends the leases of records: a member acknowledges or releases a record, or its lease expires.

A record is in transition until its change is written. The expiry of a lease is never undone, because another member
may have acquired the record by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topicfs.coordination.records.share_state_records import StateBatch
from topicfs.coordination.shares.records.in_flight import InFlightBatch
from topicfs.coordination.shares.records.partition_state import PartitionState
from topicfs.coordination.shares.records.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    DeliveryState,
    RecordState,
)
from topicfs.storage.errors import RecordNotHeldError

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
"""Kafka's acknowledgement types; a gap is an offset without a record."""

_STATES = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}


class AckBatch(NamedTuple):
    first: int
    last: int
    """The last offset, inclusive."""
    types: tuple[int, ...]
    """One type for all offsets, or one type for each offset."""

    def type_of(self, offset: int) -> int:
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first]


class NotAcquiredError(ValueError):
    """Raised for records that were never handed out, and for unknown acknowledgement types (Kafka: INVALID_REQUEST)."""


class _Changed(NamedTuple):
    """Adjacent records that change together from one state to another."""

    batch: InFlightBatch
    first: int
    last: int
    delivery: DeliveryState
    state: RecordState
    """The state to be written."""
    deliveries: int


class StateChange:
    """Records in transition, and the states to write for them."""

    def __init__(self, window: PartitionState) -> None:
        self._window = window
        self._changed: list[_Changed] = []

    def __bool__(self) -> bool:
        return bool(self._changed)

    @property
    def batches(self) -> tuple[StateBatch, ...]:
        return tuple(StateBatch(one.first, one.last, one.state, one.deliveries) for one in self._changed)

    def begin(
        self, batch: InFlightBatch, first: int, last: int, delivery: DeliveryState, state: RecordState
    ) -> None:
        """Begin to change records; at the delivery limit a record becomes Archived instead of Available."""
        delivery.begin(state, self._window.limits.deliveries)
        self._note(_Changed(batch, first, last, delivery, delivery.state, delivery.count))

    def expire(self, batch: InFlightBatch, first: int, last: int, delivery: DeliveryState) -> None:
        """End the lock of records immediately; records below the start offset become Archived."""
        window = self._window
        delivery.expire(window.limits.deliveries, archive=last < window.start_offset)
        self._note(_Changed(batch, first, last, delivery, delivery.state, delivery.count))
        if delivery.state is AVAILABLE:
            window.free(batch, first, delivery.count)

    def _note(self, one: _Changed) -> None:
        self._changed.append(one)
        if one.state.is_final:
            self._window.complete_count += self._window.counted(one.first, one.last)

    def commit(self) -> bool:
        """Complete the change after it was written; return whether the start offset moved."""
        for one in self._changed:
            if one.delivery.in_transition:
                one.delivery.commit()
                self._note_available(one)
        return self._window.advance()

    def undo(self, now: int) -> None:
        for one in self._changed:
            if not one.delivery.in_transition:
                continue
            one.delivery.undo(now)
            self._note_available(one)
            if one.state.is_final and not one.delivery.state.is_final:
                self._window.complete_count -= self._window.counted(one.first, one.last)
            if one.delivery.lease_end is not None:
                self._window.note_lease(one.delivery.lease_end)

    def _note_available(self, one: _Changed) -> None:
        if one.delivery.state is AVAILABLE:
            self._window.free(one.batch, one.first, one.delivery.count)


def acknowledge(window: PartitionState, member: str, acks: Sequence[AckBatch], now: int) -> StateChange:
    """Begin to apply all acknowledgements of `acks`. After an error none is applied, except renewals.

    Raises RecordNotHeldError, NotAcquiredError.
    """
    request = _Acknowledging(window, member, now)
    try:
        for ack in acks:
            request.take(ack)
    except (RecordNotHeldError, NotAcquiredError):
        request.change.undo(now)
        raise
    return request.change


def release(window: PartitionState, member: str) -> StateChange:
    change = StateChange(window)
    for batch in window.batches:
        _split_at_start(window, batch)
        for first, last, delivery in batch.runs(
            lambda one: one.state is ACQUIRED and one.member == member and not one.in_transition
        ):
            below = last < window.start_offset
            change.begin(batch, first, last, delivery, ARCHIVED if below else AVAILABLE)
    return change


def drop(window: PartitionState, member: str) -> StateChange:
    """Release all records of a member immediately, because the change could not be written first."""
    change = StateChange(window)
    for batch in window.batches:
        _split_at_start(window, batch)
        for first, last, delivery in batch.runs(
            lambda one: one.state is ACQUIRED and one.member == member and not one.in_transition
        ):
            change.expire(batch, first, last, delivery)
    return change


def expire(window: PartitionState, now: int) -> StateChange:
    """End overdue locks immediately; the change is written later."""
    change = StateChange(window)
    if window.next_lease_end is None or now < window.next_lease_end:
        return change
    window.next_lease_end = None
    for batch in window.batches:
        if batch.whole is None or (batch.whole.lease_end or now + 1) <= now:
            _split_at_start(window, batch)
        for first, last, delivery in batch.runs(lambda one: one.lease_end is not None):
            lease_end = delivery.lease_end
            assert lease_end is not None
            if lease_end > now:
                window.note_lease(lease_end)
            elif delivery.state is ACQUIRED:
                change.expire(batch, first, last, delivery)
    return change


def _split_at_start(window: PartitionState, batch: InFlightBatch) -> None:
    """If the start offset lies inside an Acquired batch, give each record of the batch its own state."""
    whole = batch.whole
    inside = batch.first < window.start_offset <= batch.last
    if inside and whole is not None and whole.state is ACQUIRED and not whole.in_transition:
        batch.split()


class _Acknowledging:
    def __init__(self, window: PartitionState, member: str, now: int) -> None:
        self.change = StateChange(window)
        self._window = window
        self._member = member
        self._now = now

    def take(self, ack: AckBatch) -> None:
        """Begin to apply the acknowledgement of adjacent records; records below the start offset are skipped."""
        if not set(ack.types) <= _STATES.keys() | {RENEW}:
            raise NotAcquiredError(f"{ack.types}: acknowledgement types are 0 to 4")
        if ack.last >= self._window.start_offset:
            for batch in self._batches_of(ack):
                self._take_batch(batch, ack)

    def _batches_of(self, ack: AckBatch) -> Sequence[InFlightBatch]:
        window = self._window
        floor = window.batches.floor(ack.first)
        if floor is None and ack.first < window.start_offset <= ack.last:
            floor = window.batches.floor(window.start_offset)
        if floor is None:
            raise RecordNotHeldError(f"offsets {ack.first} to {ack.last}: no such records are in flight")
        batches = window.batches.between(floor.first, ack.last)
        if not batches or ack.last > batches[-1].last:
            raise NotAcquiredError(f"offsets {ack.first} to {ack.last} were not handed out")
        return batches

    def _take_batch(self, batch: InFlightBatch, ack: AckBatch) -> None:
        start = self._window.start_offset
        if batch.last < start:
            return
        whole = batch.whole
        if whole is not None:
            self._check_held(whole, batch.first, batch.last)
            in_one = batch.is_within(ack.first, ack.last) and len(ack.types) == 1
            if in_one and not batch.first < start <= batch.last:
                self._apply(batch, batch.first, batch.last, ack.types[0])
                return
            batch.split()
        for offset, delivery in batch.between(max(ack.first, start), ack.last):
            self._check_held(delivery, offset, offset)
            self._apply(batch, offset, offset, ack.type_of(offset))

    def _apply(self, batch: InFlightBatch, first: int, last: int, ack_type: int) -> None:
        delivery = batch.at(first)
        if ack_type == RENEW:
            delivery.lease_end = self._now + self._window.limits.lock_ms
            self._window.note_lease(delivery.lease_end)
        else:
            self.change.begin(batch, first, last, delivery, _STATES[ack_type])

    def _check_held(self, delivery: DeliveryState, first: int, last: int) -> None:
        if delivery.state is not ACQUIRED or delivery.in_transition or delivery.member != self._member:
            which = f"offset {first}" if first == last else f"offsets {first} to {last}"
            raise RecordNotHeldError(f"{which}: not, or no longer, held by this member")
