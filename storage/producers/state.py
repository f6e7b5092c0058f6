"""The producers of one log, in memory. The state covers all batches below `end_offset`. Guarded by the log's lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from topicfs.storage.errors import ProducerFencedError
from topicfs.storage.model import Offset, ProducerId, Timestamp, TopicPartition
from topicfs.storage.producers.append import (
    CompletedTransaction,
    Origin,
    ProducerAppend,
    VerificationGuard,
    Verifications,
)
from topicfs.storage.producers.entry import ProducerEntry

DEFAULT_EXPIRATION_MS = 86_400_000
"""Default of producer.id.expiration.ms: how long a producer that appends nothing is remembered."""


class ProducerState:
    """Kafka's ProducerStateManager without its files."""

    def __init__(self, partition: TopicPartition, *, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> None:
        self._partition = partition
        self._expiration_ms = expiration_ms
        self._entries: dict[ProducerId, ProducerEntry] = {}
        self._open: dict[Offset, ProducerId] = {}
        self._completed: dict[Offset, CompletedTransaction] = {}
        self.verifications = Verifications()
        self.end_offset = Offset(0)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: ProducerId) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def begin_verification(
        self, producer_id: ProducerId, *, epoch: int, sequence: int, bumps_epoch: bool
    ) -> VerificationGuard | None:
        """Return the guard that begins a transaction; None if a transaction is open. Raises ProducerFencedError."""
        known = self._entries.get(producer_id)
        if known is not None:
            if epoch < known.epoch:
                raise ProducerFencedError(
                    f"{self._partition}: producer {producer_id} with epoch {epoch} was fenced by epoch {known.epoch}"
                )
            if known.transaction_first_offset is not None and epoch == known.epoch:
                return None
        return self.verifications.begin(producer_id, epoch=epoch, sequence=sequence, bumps_epoch=bumps_epoch)

    def begin(self, producer_id: ProducerId, origin: Origin) -> ProducerAppend:
        """Begin to check an append, which `finish` then applies."""
        known = self._entries.get(producer_id) or ProducerEntry(producer_id=producer_id)
        return ProducerAppend(self._partition, known, origin, self.verifications.get(producer_id))

    def finish(self, append: ProducerAppend) -> None:
        """Apply an append whose batches have all passed their checks and are in the log."""
        self._entries[append.entry.producer_id] = append.entry
        for first_offset in append.begun:
            self._open[first_offset] = append.entry.producer_id
        if append.transactional:
            self.verifications.end(append.entry.producer_id)

    def stable_offset_at(self, completed: CompletedTransaction) -> Offset:
        """Return the last stable offset after an abort: the first open transaction's start, or the marker's end."""
        others = [first for first in self._open if first != completed.first_offset]
        return min(others, default=Offset(completed.last_offset + 1))

    def complete(self, completed: CompletedTransaction) -> None:
        """Note that a transaction's marker is in the log. Once the marker is replicated, the transaction is stable."""
        self._open.pop(completed.first_offset, None)
        self._completed[completed.first_offset] = completed

    def high_watermark_moved(self, high_watermark: Offset) -> None:
        """Forget completed transactions whose markers are below the high watermark now."""
        if not self._completed:
            return
        done = [first for first, txn in self._completed.items() if txn.last_offset < high_watermark]
        for first in done:
            del self._completed[first]

    @property
    def first_unstable_offset(self) -> Offset | None:
        """First offset of a transaction that is open or not fully replicated (kafka-storage.md#last-stable-offset)."""
        if not self._open and not self._completed:
            return None  # The usual case, and every append reads this property.
        return min([*self._open, *self._completed], default=None)

    def remove_expired(self, now: Timestamp) -> None:
        """Forget producers that have appended nothing for too long and have no open transaction."""
        for entry in list(self._entries.values()):
            if entry.expired(now, self._expiration_ms):
                del self._entries[entry.producer_id]

    def load(self, entries: Iterable[ProducerEntry], *, end_offset: Offset, now: Timestamp) -> None:
        """Load the producers of a snapshot at `end_offset`, leaving out producers that have expired by `now`."""
        self.clear(end_offset)
        for entry in entries:
            if entry.expired(now, self._expiration_ms):
                continue
            self._entries[entry.producer_id] = entry
            if entry.transaction_first_offset is not None:
                self._open[entry.transaction_first_offset] = entry.producer_id

    def put_newest_first(self, known: int) -> None:
        """Keep the first `known` producers in place, and reverse the order of the others.

        Snapshots of brokers list the newest producer first.
        """
        for producer_id in reversed([*self._entries][known:]):
            self._entries[producer_id] = self._entries.pop(producer_id)

    def clear(self, end_offset: Offset) -> None:
        self._entries.clear()
        self._open.clear()
        self._completed.clear()
        self.end_offset = end_offset
