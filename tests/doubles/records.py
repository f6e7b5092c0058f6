"""Records, batches as producers and coordinators write them, and the records that a reader of a partition gets."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topicfs.coordination.records.group_records import with_number
from topicfs.coordination.records.transaction_records import TRANSACTION_KEY, TRANSACTION_VALUE
from topicfs.storage.codec.batch import assign_offsets
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.records import BatchStamp, columns_of, decode, encode
from topicfs.storage.engine import Partition
from topicfs.storage.model import Header, Isolation, Offset, ProducerId, Record, Timestamp

NOW = Timestamp(1_700_000_000_000)


def record(
    offset: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp: int = NOW,
    headers: Sequence[Header] = (),
) -> Record:
    return Record(Offset(offset), Timestamp(timestamp), key, value, tuple(headers))


def records(
    values: Sequence[bytes | None],
    *,
    timestamp: int | Sequence[int],
    key: bytes | None = None,
    offset: int = 0,
) -> list[Record]:
    """Return a record for each value, from `offset` on; `timestamp` is a list, or one number for all records."""
    timestamps = [timestamp] * len(values) if isinstance(timestamp, int) else timestamp
    return [
        record(offset + index, key, value, time)
        for index, (value, time) in enumerate(zip(values, timestamps, strict=True))
    ]


def keyed(*pairs: tuple[bytes | None, bytes | None]) -> list[Record]:
    """Return a record for each pair of key and value, from offset 0 on."""
    return [record(offset, key, value) for offset, (key, value) in enumerate(pairs)]


def columns_of_keys(keys: Iterable[bytes | None]) -> Columns:
    """Return a decoded batch of records with these keys."""
    return columns_of([record(offset, key, timestamp=0) for offset, key in enumerate(keys)])


def batch(
    *values: bytes | None,
    timestamp: int | Sequence[int] = 0,
    offset: int = 0,
    epoch: int = 0,
    key: bytes | None = None,
    stamp: BatchStamp | None = None,
) -> bytearray:
    """Return a batch with a record for each value, from `offset` on; `timestamp` is a list, or one number for all."""
    data = encode(records(values, timestamp=timestamp, key=key, offset=offset), stamp or BatchStamp())
    assign_offsets(data, 0, base_offset=offset, leader_epoch=epoch)
    return data


def sized_batch(size: int, **arguments: Any) -> bytearray:
    """Return a batch of one record that has exactly `size` bytes."""
    value = bytes(size - 69)
    while len(data := batch(value, **arguments)) != size:
        value = bytes(len(value) - (len(data) - size))
    return data


def produced(
    *values: bytes,
    key: bytes | None = None,
    pid: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    txn: bool = False,
    offset: int = 0,
    leader_epoch: int = 0,
) -> bytearray:
    """Return a batch of an idempotent producer, part of a transaction if `txn` is true."""
    stamp = BatchStamp(
        producer_id=ProducerId(pid), producer_epoch=epoch, base_sequence=sequence, transactional=txn
    )
    return batch(*values or [b"v"], timestamp=NOW, key=key, stamp=stamp, offset=offset, epoch=leader_epoch)


def marker(
    offset: int = 0, *, pid: int = 7, epoch: int = 0, commit: bool = True, coordinator_epoch: int = 0
) -> bytearray:
    """Return the control batch with which a coordinator ends a transaction."""
    return encode_marker(
        EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch),
        timestamp=NOW,
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
        base_offset=Offset(offset),
    )


def old_entry(
    offset: int,
    value: bytes | None,
    *,
    key: bytes | None = None,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 0,
) -> bytes:
    """Return an entry of an old message format with a right checksum."""
    body = bytes([magic, attributes]) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def read_records(
    partition: Partition,
    start: int | None = None,
    *,
    max_bytes: int = 1 << 20,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> list[Record]:
    """Return every record from `start` on, by default from the log start; each read takes up to `max_bytes`."""
    first = partition.offsets().log_start_offset if start is None else Offset(start)
    offset = first
    found: list[Record] = []
    while len((fetched := partition.read(offset, max_bytes=max_bytes, isolation=isolation)).data):
        found += [each for columns in decode(fetched.data) for each in columns if each.offset >= first]
        assert fetched.next_offset > offset, "a read with data must advance the offset"
        offset = fetched.next_offset
    return found


def write_transaction(transactional_id: str, state: Mapping[str, Any], version: int) -> tuple[bytes, bytes]:
    """Return the key and value of a record of `__transaction_state`; `state` has the fields of TRANSACTION_VALUE."""
    key = with_number(0, TRANSACTION_KEY.write({"transactionalId": transactional_id}, 0))
    return key, with_number(version, TRANSACTION_VALUE.write(state, version))
