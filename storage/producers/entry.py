"""The state of one producer in one partition. Sequence numbers go from 0 to 2^31 - 1, and then begin again at 0."""

from __future__ import annotations

import os
from typing import NamedTuple

from topicfs.storage.codec.headers import MAX_SEQUENCE, sequence_plus
from topicfs.storage.model import NO_TIMESTAMP, Offset, ProducerId, Timestamp

NO_SEQUENCE = -1


def follows(last_sequence: int, next_sequence: int) -> bool:
    """Return whether `next_sequence` directly follows `last_sequence`, which is -1 before the first batch."""
    return next_sequence == last_sequence + 1 or (next_sequence == 0 and last_sequence == MAX_SEQUENCE)


REMEMBERED_BATCHES = 5
"""Number of batches remembered per producer: an idempotent client may have as many in flight."""

NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
"""A producer that has reached this epoch needs a new producer ID to continue."""
NO_COORDINATOR_EPOCH = -1


def next_run(known: tuple[ProducerId, int] | None) -> tuple[ProducerId, int]:
    """Return ID and epoch of a producer's next run or write; the ID stays the same until its epochs are used up."""
    if known is None or known[1] >= MAX_PRODUCER_EPOCH:
        # A broker counts IDs up from 0, so it never reaches these numbers.
        return ProducerId(2**62 + (int.from_bytes(os.urandom(8)) >> 2)), 0
    return known[0], known[1] + 1


class SequencedBatch(NamedTuple):
    """A producer's data batch, with the numbers that identify a duplicate of it."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: Timestamp

    @property
    def first_sequence(self) -> int:
        return sequence_plus(self.last_sequence, -self.offset_delta)

    @property
    def base_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)


class ProducerEntry(NamedTuple):
    """A producer. Immutable: an append makes a new entry, so a refused append changes nothing."""

    producer_id: ProducerId
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: Timestamp = NO_TIMESTAMP
    """Timestamp of the producer's newest batch or marker, from which its expiry counts."""
    transaction_first_offset: Offset | None = None
    """First offset of the producer's open transaction; None if no transaction is open."""
    batches: tuple[SequencedBatch, ...] = ()
    """The newest batches, at most five, oldest first."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> Offset:
        """Last offset of the producer's newest data batch; -1 if it has none."""
        return self.batches[-1].last_offset if self.batches else Offset(-1)

    def duplicate_of(self, *, epoch: int, first_sequence: int, last_sequence: int) -> SequencedBatch | None:
        """Return the remembered batch with exactly these sequence numbers; None if there is no such batch."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def with_epoch(self, epoch: int) -> ProducerEntry:
        """Return the entry for an epoch. A new epoch has no batches, because its sequence numbers begin at 0 again."""
        return self if epoch == self.epoch else self._replace(epoch=epoch, batches=())

    def with_batch(self, epoch: int, batch: SequencedBatch) -> ProducerEntry:
        known = self.batches if epoch == self.epoch else ()
        return ProducerEntry(  # Takes half the time of dataclasses.replace, and is called for every batch.
            producer_id=self.producer_id,
            epoch=epoch,
            coordinator_epoch=self.coordinator_epoch,
            last_timestamp=batch.timestamp,
            transaction_first_offset=self.transaction_first_offset,
            batches=(*known, batch)[-REMEMBERED_BATCHES:],
        )

    def expired(self, now: Timestamp, expiration_ms: int) -> bool:
        """Return whether the producer has neither an open transaction nor a recent batch.

        Rules: kafka-storage.md#producer-expiry.
        """
        return self.transaction_first_offset is None and now - self.last_timestamp >= expiration_ms
