"""What of an input is in the log already, beyond what the registry says: found by reading the log's batch headers."""

from __future__ import annotations

from storage.codec.batch import scan
from storage.engine import Partition
from storage.errors import StorageError
from storage.idempotence.registry import PartitionProgress
from storage.model import Isolation, Offset, ProducerId

WINDOW_BYTES = 1 << 20


class ProgressLostError(StorageError):
    """Records that would tell how far a producer got were removed."""


def catch_up(
    partition: Partition, producer_id: ProducerId, known: PartitionProgress | None
) -> PartitionProgress:
    """The progress as it is now: counts the producer's records from where the registry's knowledge ends.

    A partition that is new to the producer begins at its log end: nothing of this producer is in it.
    Raises ProgressLostError when retention removed records that had not been counted.
    """
    offsets = partition.offsets()
    if known is None:
        return PartitionProgress(offsets.log_end_offset, 0)
    if offsets.log_start_offset > known.end_offset:
        raise ProgressLostError(
            f"{partition.topic}-{partition.number}: offsets {known.end_offset} to {offsets.log_start_offset - 1} were "
            "deleted, so what a crashed run left there is unknown; go on under another --producer name"
        )
    count = _count_records(partition, producer_id, Offset(known.end_offset))
    return PartitionProgress(offsets.log_end_offset, known.ahead + count)


def _count_records(partition: Partition, producer_id: ProducerId, offset: Offset) -> int:
    count = 0
    while True:
        fetched = partition.read(offset, max_bytes=WINDOW_BYTES, isolation=Isolation.READ_UNCOMMITTED)
        if not fetched.data:
            return count
        for batch in scan(fetched.data):
            if batch.producer_id == producer_id and batch.base_offset >= offset:
                count += batch.record_count
        offset = fetched.next_offset
