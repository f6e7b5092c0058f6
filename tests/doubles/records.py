"""Records, and batches as a producer and a coordinator write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from storage.codec.batch import assign_offsets
from storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from storage.codec.records import BatchStamp, encode
from storage.model import Offset, ProducerId, Record, Timestamp

NOW = Timestamp(1_700_000_000_000)


def batch(
    *values: bytes | None,
    timestamp: int | Sequence[int] = 0,
    offset: int = 0,
    epoch: int = 0,
    key: bytes | None = None,
    stamp: BatchStamp | None = None,
) -> bytearray:
    """A batch of one record a value, at `offset` and on; one timestamp for all or one each."""
    timestamps = [timestamp] * len(values) if isinstance(timestamp, int) else timestamp
    records = [
        Record(Offset(offset + index), Timestamp(time), key, value)
        for index, (value, time) in enumerate(zip(values, timestamps, strict=True))
    ]
    data = encode(records, stamp or BatchStamp())
    assign_offsets(data, 0, base_offset=offset, leader_epoch=epoch)
    return data


def sized_batch(size: int, **arguments: Any) -> bytearray:
    """A batch of one record that takes exactly `size` bytes."""
    value = bytes(size - 69)
    while len(data := batch(value, **arguments)) != size:
        value = bytes(len(value) - (len(data) - size))
    return data


def produced(
    *values: bytes,
    pid: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    txn: bool = False,
    offset: int = 0,
    leader_epoch: int = 0,
) -> bytearray:
    """A batch of an idempotent producer, or of one with a transaction."""
    stamp = BatchStamp(
        producer_id=ProducerId(pid), producer_epoch=epoch, base_sequence=sequence, transactional=txn
    )
    return batch(*values or [b"v"], timestamp=NOW, stamp=stamp, offset=offset, epoch=leader_epoch)


def marker(
    offset: int = 0, *, pid: int = 7, epoch: int = 0, commit: bool = True, coordinator_epoch: int = 0
) -> bytearray:
    """A coordinator's batch that ends a transaction."""
    return encode_marker(
        EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch),
        timestamp=NOW,
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
        base_offset=Offset(offset),
    )
