"""What a batch says of all its records together: the part of its header that its writer decides."""

from __future__ import annotations

from dataclasses import dataclass

from storage.codec.headers import CONTROL_MASK, DELETE_HORIZON_MASK, TRANSACTIONAL_MASK, Codec
from storage.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, ProducerId, Timestamp, TimestampType


@dataclass(frozen=True, slots=True)
class BatchStamp:
    """What a batch says of all its records together, beside what is counted from them."""

    leader_epoch: int = NO_LEADER_EPOCH
    codec: Codec = Codec.NONE
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = -1
    """Sequence number of the first record; with several batches of one call the next ones count on."""
    transactional: bool = False
    control: bool = False
    compression_level: int | None = None
    """Level of the codec; None for Kafka's default."""
    delete_horizon_ms: Timestamp | None = None
    """Takes the base timestamp's place; the records' times stay what they are."""

    def __post_init__(self) -> None:
        if self.control and self.codec:
            raise ValueError("a control batch is never compressed")

    @property
    def attributes(self) -> int:
        """The header's attribute bits."""
        return (
            self.codec
            | self.timestamp_type << 3
            | (TRANSACTIONAL_MASK if self.transactional else 0)
            | (CONTROL_MASK if self.control else 0)
            | (DELETE_HORIZON_MASK if self.delete_horizon_ms is not None else 0)
        )


PLAIN = BatchStamp()
