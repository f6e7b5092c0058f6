"""Checks an append against the state of its producer (kafka-storage.md#sequences, kafka-storage.md#transactions).

`ProducerAppend` checks the batches of an append in order. When all batches have passed, the state gets the new
`entry` of the producer.
"""

from enum import Enum
from typing import NamedTuple, Self

from topicfs.storage.codec.control import ControlType, EndTransactionMarker
from topicfs.storage.errors import InvalidTransactionStateError, OutOfOrderSequenceError, ProducerFencedError
from topicfs.storage.model import Offset, ProducerId, Timestamp, TopicPartition
from topicfs.storage.producers.entry import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    ProducerEntry,
    SequencedBatch,
    follows,
)


class VerificationGuard:
    """Identifies a verification; a guard is equal only to itself."""

    __slots__ = ()


UNVERIFIED = VerificationGuard()
"""The guard of a batch that may continue a transaction, but not begin one."""


class Verification(NamedTuple):
    """A producer's verification, which is under way or was answered."""

    epoch: int
    lowest_sequence: int
    """The lowest sequence number of the batches that waited for this verification. The batch with this number must be
    appended first.
    """
    bumps_epoch: bool
    """True if the producer uses transactions of version 2, each of which has its own epoch."""
    guard: VerificationGuard

    def asked_again(self, *, epoch: int, sequence: int) -> Self:
        """Return the verification after another batch requested it, with a newer epoch or a lower sequence number."""
        if epoch > self.epoch:
            return self._replace(epoch=epoch, lowest_sequence=sequence)
        if epoch == self.epoch:
            return self._replace(lowest_sequence=min(sequence, self.lowest_sequence))
        return self


MAX_VERIFICATIONS = 10_000
"""How many verifications a partition remembers. The oldest is forgotten first; its producer has to ask again."""


class Verifications:
    """Verifications: a coordinator confirms that a producer's transaction includes this partition.

    Guarded by the log's lock. Without verification, a batch that was delayed on its way could open a transaction that
    never ends. The caller gets a guard, asks the coordinator, and appends with the guard. If the log gets a marker or
    a transactional batch of the producer before that append, the guard becomes invalid. Rules:
    kafka-storage.md#transaction-verification, after Kafka's VerificationStateEntry.
    """

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, Verification] = {}

    def get(self, producer_id: ProducerId) -> Verification | None:
        return self._by_producer.get(producer_id)

    def begin(
        self, producer_id: ProducerId, *, epoch: int, sequence: int, bumps_epoch: bool
    ) -> VerificationGuard:
        """Return the guard that this producer's append must present, the same for all callers until it is removed."""
        known = self._by_producer.get(producer_id)
        if known is None:
            asked = Verification(epoch, sequence, bumps_epoch, VerificationGuard())
        else:
            asked = known.asked_again(epoch=epoch, sequence=sequence)
            del self._by_producer[producer_id]  # A verification that is requested again counts as the newest.
        self._by_producer[producer_id] = asked
        if len(self._by_producer) > MAX_VERIFICATIONS:
            del self._by_producer[next(iter(self._by_producer))]
        return asked.guard

    def answered(self, producer_id: ProducerId, guard: VerificationGuard | None) -> bool:
        """Return whether `guard` belongs to the producer's present verification."""
        known = self._by_producer.get(producer_id)
        return known is not None and known.guard is guard

    def end(self, producer_id: ProducerId) -> None:
        """Forget the guard, because a transactional batch or a marker is in the log now."""
        self._by_producer.pop(producer_id, None)


class Origin(Enum):
    """The origin of an append. Only sequence numbers of clients are checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
    """Copied from a leader, or replayed from the log itself. Accepted as it is."""


class DataBatch(NamedTuple):
    epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset
    max_timestamp: Timestamp
    transactional: bool


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was read; `last_offset` is the offset of the marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    aborted: bool


class ProducerAppend:
    """The batches of one producer in one append.

    They are checked in order. The first one is checked against the producer's state before the append.
    """

    def __init__(
        self,
        partition: TopicPartition,
        entry: ProducerEntry,
        origin: Origin,
        verification: Verification | None = None,
    ) -> None:
        self._partition = partition
        self._origin = origin
        self._known = entry
        self._verification = verification
        self.entry = entry
        """The state of the producer after the batches checked so far."""
        self.begun: list[Offset] = []
        """First offsets of the transactions that these batches open."""
        self.transactional = False
        """True if these batches include a transactional one or a marker."""

    def add_data(self, batch: DataBatch, *, verified: bool = True) -> None:
        """Check and apply a data batch; `verified`: the coordinator knows the transaction that the batch would open.

        Raises ProducerFencedError for an old epoch, and OutOfOrderSequenceError. Raises InvalidTransactionStateError
        if the batch is not transactional although a transaction is open, or if it would open an unverified
        transaction.
        """
        self._check_epoch(batch.epoch)
        if batch.transactional and not verified and not self._is_in_transaction(batch.epoch):
            raise InvalidTransactionStateError(
                f"{self._partition}: producer {self.entry.producer_id} wrote in a transaction that its "
                "coordinator did not confirm; add the partition to the transaction first"
            )
        if self._origin is Origin.CLIENT:
            self._check_sequence(batch)
        before = self.entry
        if before.transaction_first_offset is not None and not batch.transactional:
            raise InvalidTransactionStateError(
                f"{self._partition}: producer {before.producer_id} wrote outside its open transaction, which "
                f"began at offset {before.transaction_first_offset}; end that transaction first"
            )
        self.transactional |= batch.transactional
        delta = batch.last_offset - batch.base_offset
        self.entry = before.with_batch(
            batch.epoch, SequencedBatch(batch.last_sequence, batch.last_offset, delta, batch.max_timestamp)
        )
        if before.transaction_first_offset is None and batch.transactional:
            self.entry = self.entry._replace(transaction_first_offset=batch.base_offset)
            self.begun.append(batch.base_offset)

    def add_marker(
        self,
        marker: EndTransactionMarker,
        *,
        epoch: int,
        offset: Offset,
        timestamp: Timestamp,
    ) -> CompletedTransaction | None:
        """Apply a marker at `offset`; return the transaction that it ends; None if no transaction was open.

        Raises ProducerFencedError.
        """
        self._check_epoch(epoch)
        self._check_coordinator_epoch(marker.coordinator_epoch)
        self.transactional = True
        began = self.entry.transaction_first_offset
        self.entry = self.entry.with_epoch(epoch)._replace(
            coordinator_epoch=marker.coordinator_epoch,
            last_timestamp=timestamp,
            transaction_first_offset=None,
        )
        if began is None:
            return None
        aborted = marker.type is ControlType.ABORT
        return CompletedTransaction(self.entry.producer_id, began, offset, aborted)

    def _is_in_transaction(self, epoch: int) -> bool:
        return self.entry.transaction_first_offset is not None and epoch == self.entry.epoch

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self.entry.epoch and self._origin is not Origin.REPLICATION:
            raise ProducerFencedError(
                f"{self._partition}: producer {self.entry.producer_id} with epoch {epoch} was fenced by epoch "
                f"{self.entry.epoch}; a newer instance is running"
            )

    def _check_coordinator_epoch(self, coordinator_epoch: int) -> None:
        if coordinator_epoch < self.entry.coordinator_epoch and self._origin is not Origin.REPLICATION:
            raise ProducerFencedError(
                f"{self._partition}: the marker's coordinator epoch {coordinator_epoch} is older than "
                f"{self.entry.coordinator_epoch}"
            )

    def _check_sequence(self, batch: DataBatch) -> None:
        entry, first = self.entry, batch.first_sequence
        self._check_verified_sequence(batch)
        if batch.epoch != entry.epoch:
            # An unknown producer, whose state may have expired, may continue anywhere. A known producer
            # begins each epoch at 0.
            if first != 0 and entry.epoch != NO_PRODUCER_EPOCH:
                raise self._out_of_order(batch, expected=0)
            return
        if not follows(entry.last_sequence, first):
            last = entry.last_sequence
            raise self._out_of_order(batch, expected=0 if last == NO_SEQUENCE else last + 1)

    def _check_verified_sequence(self, batch: DataBatch) -> None:
        asked = self._verification
        if asked is None:
            return
        if asked.bumps_epoch and batch.first_sequence != 0 and not self._known.batches:
            raise self._out_of_order(batch, expected=0)
        if batch.first_sequence > asked.lowest_sequence:
            # An earlier batch requested the verification, and is still on its way.
            raise self._out_of_order(batch, expected=asked.lowest_sequence)

    def _out_of_order(self, batch: DataBatch, *, expected: int) -> OutOfOrderSequenceError:
        return OutOfOrderSequenceError(
            f"{self._partition}: producer {self.entry.producer_id} epoch {batch.epoch}: sequence "
            f"{batch.first_sequence} instead of {expected}"
        )
