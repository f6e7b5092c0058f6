"""Finds how much of a producer's run is in a log, even after compaction, retention and a restart.

The log's producer state has each producer's last batch, and compaction keeps the header of this batch. If the
producer has expired, the log is searched instead. The last batch that the search finds is the producer's last batch,
provided that nothing after it was removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, cast

from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.engine import Partition
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Appended, Isolation, Offset, ProducerId
from topicfs.storage.producers.append import Origin, VerificationGuard
from topicfs.storage.producers.entry import NO_PRODUCER_EPOCH, ProducerEntry

_SCAN_BYTES = 1 << 20
"""Bytes read at a time."""


class ProgressLostError(StorageError):
    """Records that show how far a producer got were removed."""


class OwnPartition(Protocol):
    """The operations that only a partition in a data directory of this process has, besides those of `Partition`."""

    def producers(self) -> list[ProducerEntry]:
        """Return the producers that wrote to this partition and are still remembered; a snapshot."""

    def append(
        self,
        batches: bytearray,
        *,
        durable: bool = False,
        accepted: bool = False,
        origin: Origin = Origin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append like `Partition.append`; if `accepted`, no limit of the topic's settings refuses the batches.

        A coordinator's append may contain markers. With a `guard`, a batch may begin a transaction only if the guard
        is that of the producer's present verification; otherwise InvalidTransactionStateError is raised.
        """

    def begin_verification(
        self, producer_id: ProducerId, *, epoch: int, sequence: int, bumps_epoch: bool
    ) -> VerificationGuard | None:
        """Begin to verify that a producer's transaction includes this partition.

        None if a transaction is already open here. Pass the guard to the append once the coordinator has confirmed.
        Raises ProducerFencedError for an old epoch, PartitionOfflineError.
        """


class LastBatch(NamedTuple):
    last_sequence: int
    last_offset: Offset


def own(partition: Partition) -> OwnPartition:
    """Return `partition`, which must be in a data directory of this process, as an `OwnPartition`."""
    return cast("OwnPartition", partition)


def newest_epoch(partition: Partition, producer_id: ProducerId) -> int:
    epochs = (one.epoch for one in own(partition).producers() if one.producer_id == producer_id)
    return next(epochs, NO_PRODUCER_EPOCH)


def last_batch(
    partition: Partition, producer_id: ProducerId, epoch: int, *, since: Offset, remedy: str
) -> LastBatch | None:
    """Return the last batch of `epoch` from `since` on, or None. Blocks. Raises ProgressLostError with the `remedy`."""
    for entry in own(partition).producers():
        if entry.producer_id == producer_id and entry.epoch <= epoch:
            is_newest = entry.epoch == epoch and entry.last_data_offset >= since
            return LastBatch(entry.last_sequence, entry.last_data_offset) if is_newest else None
    offsets = partition.offsets()
    found, end, complete = None, since, True
    if offsets.log_end_offset > since:
        for batch in _batches_from(partition, max(since, offsets.log_start_offset)):
            is_ours = (batch.producer_id, batch.producer_epoch) == (producer_id, epoch)
            if is_ours:
                found = LastBatch(batch.last_sequence, Offset(batch.last_offset))
            complete = is_ours or (complete and batch.base_offset <= end)
            end = Offset(batch.last_offset + 1)
    if complete and end >= offsets.log_end_offset:
        return found
    raise ProgressLostError(
        f"{partition.topic}-{partition.number}: records were removed from offset {since} on, and producer {producer_id} "
        f"has expired, so how many of its records were appended is unknown; {remedy}"
    )


def _batches_from(partition: Partition, offset: Offset) -> Iterator[BatchHeader]:
    """Yield the headers of the batches from the one with `offset` to the log end, including open transactions."""
    while True:
        fetched = partition.read(offset, max_bytes=_SCAN_BYTES, isolation=Isolation.READ_UNCOMMITTED)
        if not fetched.data:
            return
        yield from scan(fetched.data)
        offset = fetched.next_offset
