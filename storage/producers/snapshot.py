"""The producer snapshot: the state of every producer below an offset, in a file named after that offset.

    at   length  field
    0    2       version = 1
    2    4       CRC-32C of bytes 6 to the end
    6    4       number of entries
    10   46 each entry:
                 producer id int64 · epoch int16 · last sequence int32 · last offset int64 · offset delta int32 ·
                 timestamp int64 · coordinator epoch int32 · first offset of the open transaction int64 (-1 none)

Only the newest batch of each producer is stored. Kafka writes the entries in the order of a Java HashMap, which
readers ignore. `encode` writes the same order, so that equal states give equal bytes. Source:
kafka-storage.md#producer-snapshots, Kafka's ProducerStateManager.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from topicfs.storage.codec.binary.crc import crc32c
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import Offset, ProducerId, Timestamp
from topicfs.storage.producers.entry import ProducerEntry, SequencedBatch

VERSION = 1
HEADER = struct.Struct(">hIi")
ENTRY = struct.Struct(">qhiqiqiq")
CRC_START = 6

MIN_TABLE = 16
"""Number of buckets of an empty Java HashMap; it doubles when the map is three quarters full."""


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    rows = b"".join(_encode_entry(entry) for entry in in_hash_order(list(entries)))
    count = struct.pack(">i", len(rows) // ENTRY.size)
    return struct.pack(">hI", VERSION, crc32c(count + rows)) + count + rows


def decode(data: bytes) -> list[ProducerEntry]:
    """Return a snapshot file's producers. Raises CorruptBatchError, with position and cause, if it is invalid."""
    if len(data) < HEADER.size:
        raise CorruptBatchError(len(data), f"a snapshot has at least {HEADER.size} bytes")
    version, crc, count = HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptBatchError(0, f"snapshot version {version} is unknown")
    if crc != crc32c(memoryview(data)[CRC_START:]):
        raise CorruptBatchError(2, "the snapshot's checksum does not match")
    if count < 0 or HEADER.size + count * ENTRY.size != len(data):
        raise CorruptBatchError(6, f"{count} entries do not fill {len(data)} bytes")
    return [_decode_entry(row) for row in ENTRY.iter_unpack(memoryview(data)[HEADER.size :])]


def in_hash_order(entries: list[ProducerEntry]) -> list[ProducerEntry]:
    """Return the entries in the order in which a Java HashMap with producer IDs as keys iterates over them."""
    table = MIN_TABLE
    while len(entries) > table * 3 // 4:
        table *= 2
    return sorted(entries, key=lambda entry: _bucket(entry.producer_id, table))


def _bucket(producer_id: int, table: int) -> int:
    hashed = (producer_id ^ (producer_id & (2**64 - 1)) >> 32) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & (table - 1)


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else SequencedBatch(-1, Offset(-1), 0, entry.last_timestamp)
    began = entry.transaction_first_offset
    return ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        -1 if began is None else began,
    )


def _decode_entry(row: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, began = row
    batch = SequencedBatch(sequence, Offset(offset), delta, Timestamp(timestamp))
    return ProducerEntry(
        producer_id=ProducerId(producer_id),
        epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=Timestamp(timestamp),
        transaction_first_offset=None if began < 0 else Offset(began),
        batches=(batch,) if offset >= 0 else (),
    )
