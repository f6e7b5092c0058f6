"""One partition in a share group: the interface of the state machine. It does no I/O; callers pass the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from topicfs.coordination.records.share_state_records import StateBatch
from topicfs.coordination.shares.records import acknowledgement, acquisition, states
from topicfs.coordination.shares.records.acknowledgement import AckBatch, StateChange
from topicfs.coordination.shares.records.acquisition import Acquired, AcquireRequest
from topicfs.coordination.shares.records.in_flight import InFlightBatch
from topicfs.coordination.shares.records.partition_state import PartitionState
from topicfs.storage.errors import StorageError


class HeldRecords(NamedTuple):
    """Adjacent records that a member holds."""

    first: int
    last: int
    """The last offset, inclusive."""
    member: str
    deliveries: int
    since: int
    lease_end: int


class SharePartition(PartitionState):
    def load(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        """Load the stored start offset and batches. Raises StorageError if they contradict each other."""
        self.start_offset = self.end_offset = start_offset
        expected, hole = start_offset, None
        for one in batches:
            if one.first < start_offset or one.last < one.first:
                raise StorageError(
                    f"the stored state of offsets {one.first} to {one.last} contradicts the start offset {start_offset}"
                )
            if hole is None and one.first > expected:
                hole = expected
            expected = one.last + 1
            delivery = states.DeliveryState(states.RecordState(one.state), one.deliveries)
            self.batches.put(InFlightBatch(one.first, one.last, delivery))
            if delivery.state.is_final:
                self.complete_count += one.last - one.first + 1
        if batches:
            self.some_available = True
            self.end_offset = self.batches.last.last
            if hole is not None:
                self.open_gap(hole)
            self.advance()

    # Queries.

    @property
    def fetched_end(self) -> int:
        """The exclusive end of the records that were ever acquired."""
        return self.end_offset if self.is_empty else self.end_offset + 1

    def held(self) -> Iterator[HeldRecords]:
        for batch in self.batches:
            for first, last, one in batch.runs(lambda one: one.lease_end is not None and bool(one.member)):
                yield HeldRecords(first, last, one.member, one.count, one.since, one.lease_end or 0)

    def holder(self, offset: int) -> HeldRecords | None:
        batch = self.batches.floor(offset)
        if batch is None or offset > batch.last:
            return None
        one = batch.at(offset)
        if one.state is not states.ACQUIRED or one.in_transition or one.lease_end is None:
            return None
        return HeldRecords(offset, offset, one.member, one.count, one.since, one.lease_end)

    def waiting(self) -> int:
        return sum(
            last - first + 1
            for batch in self.batches
            for first, last, _ in batch.runs(lambda one: one.state is states.AVAILABLE and one.count > 0)
        )

    def is_archived(self, offset: int) -> bool:
        """Return whether a record at or above the start offset is Archived."""
        batch = self.batches.floor(offset)
        return batch is not None and offset <= batch.last and batch.at(offset).state is states.ARCHIVED

    # Changes.

    def acquire(self, wanted: AcquireRequest, now: int) -> list[Acquired]:
        return acquisition.acquire(self, wanted, now)

    def acknowledge(self, member: str, acks: Sequence[AckBatch], now: int) -> StateChange:
        """Begin to acknowledge a member's records, all or none. Raises RecordNotHeldError, NotAcquiredError."""
        return acknowledgement.acknowledge(self, member, acks, now)

    def release(self, member: str) -> StateChange:
        """Begin to release all records that a member holds."""
        return acknowledgement.release(self, member)

    def expire(self, now: int) -> StateChange:
        """End overdue locks immediately. The caller writes the change, and commits it even if the write fails."""
        return acknowledgement.expire(self, now)

    def drop(self, member: str) -> StateChange:
        """Release all records of a member after the write of their release failed. The caller commits the change."""
        return acknowledgement.drop(self, member)
