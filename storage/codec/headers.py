"""The header of a v2 record batch (kafka-storage.md#batch-header): its layout, its fields, and many headers as rows.

     0  int64  base offset               ┐
     8  int32  batch length              │ size after this field; the whole batch is 12 bytes longer
    12  int32  partition leader epoch    │ not under the checksum, so that a leader may set them
    16  int8   magic                     ┘
    17  uint32 checksum                    CRC-32C of everything after it
    21  int16  attributes                  bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                           6 delete horizon set (then the base timestamp is the horizon)
    23  int32  last offset delta           last offset = base offset + this delta, also after compaction
    27  int64  base timestamp
    35  int64  max timestamp
    43  int64  producer id                 -1: none, as with the next two
    51  int16  producer epoch
    53  int32  base sequence
    57  int32  record count                0 only after compaction
    61         records

This module is compiled by Cython, and runs uncompiled with the same results.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import cython

from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    Offset,
    Position,
    ProducerId,
    Timestamp,
    TimestampType,
)

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.storage.codec.binary import fields, memory

MAX_SEQUENCE = 2**31 - 1


class Codec(IntEnum):
    """The codec of a batch's records: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name of the codec in dumps and settings, except that settings spell `none` as `uncompressed`."""
        return self.name.lower()


class BatchHeader(NamedTuple):
    """The header of one batch, and the batch's position.

    It also describes batches of the old formats; fields that they lack are -1. Before a compressed batch of an old
    format is inflated, its first offset and its record count are unknown. Until then `base_offset` is the last
    offset, and `record_count` is -1.
    """

    position: Position
    """Position of the batch's first byte in the buffer from which it was read."""
    size_bytes: int
    """Size of the whole batch, including the header."""
    base_offset: Offset
    last_offset: Offset
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    base_timestamp: Timestamp
    """The base timestamp as stored. If the delete horizon is set, this is the delete horizon."""
    max_timestamp: Timestamp
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int
    """Number of records that the header declares."""
    record_end: int = 0
    """Index after this batch's last record. Set only in `Columns.batches`."""

    @property
    def end_offset(self) -> Offset:
        """One more than the last offset."""
        return Offset(self.last_offset + 1)

    @property
    def end_position(self) -> Position:
        """Position after the last byte."""
        return Position(self.position + self.size_bytes)

    @property
    def codec(self) -> Codec:
        """The codec of the batch's records. Raises CorruptBatchError for the three numbers that name no codec."""
        number = self.attributes & fields.CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptBatchError(self.position, f"unknown compression codec {number}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & fields.TIMESTAMP_TYPE_MASK) >> 3)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & fields.TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & fields.CONTROL_MASK != 0

    @property
    def is_hidden(self) -> bool:
        """True if `storage.codec.aborted_filter` found that the batch was aborted. A file never stores this bit."""
        return self.attributes & fields.HIDDEN_MASK != 0

    @property
    def delete_horizon_ms(self) -> Timestamp | None:
        """Time from which the batch's tombstones or marker may be removed; None if compaction has not set this time."""
        return self.base_timestamp if self.attributes & fields.DELETE_HORIZON_MASK else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; -1 if the batch has no sequence."""
        if self.base_sequence < 0:
            return -1
        return sequence_plus(self.base_sequence, self.last_offset - self.base_offset)


class BatchStamp(NamedTuple):
    """The header fields that the writer of a batch chooses. The other fields are computed from the records."""

    leader_epoch: int = NO_LEADER_EPOCH
    codec: Codec = Codec.NONE
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = -1
    """Sequence number of the first record. If the same call makes several batches, later batches continue the
    sequence.
    """
    transactional: bool = False
    control: bool = False
    compression_level: int | None = None
    """Level of the codec; None: Kafka's default."""
    delete_horizon_ms: Timestamp | None = None
    """Stored as the base timestamp; the times of the records do not change."""

    @property
    def attributes(self) -> int:
        """The header's attribute bits. Raises ValueError for a compressed control batch, which Kafka does not have."""
        if self.control and self.codec:
            raise ValueError("a control batch is never compressed")
        return (
            self.codec
            | self.timestamp_type << 3
            | (fields.TRANSACTIONAL_MASK if self.transactional else 0)
            | (fields.CONTROL_MASK if self.control else 0)
            | (fields.DELETE_HORIZON_MASK if self.delete_horizon_ms is not None else 0)
        )


PLAIN = BatchStamp()


@cython.final
@cython.cclass
class Batches:
    """The headers of adjacent batches as rows of integers; indexing and iterating make `BatchHeader` values."""

    def __init__(self, rows: memoryview[int], stop: int, problem: CorruptBatchError | None = None) -> None:
        self.rows = rows
        """Rows of `fields.ROW_SIZE` int64, one per batch."""
        self.stop = stop
        """Position of the first byte after these batches."""
        self.problem = problem
        """The error at which the scan stopped; None if it reached its end or its limit."""

    def __len__(self) -> int:
        return len(self.rows) // fields.ROW_SIZE

    def __getitem__(self, index: int) -> BatchHeader:
        count = len(self)
        if index < 0:
            index += count
        if not 0 <= index < count:
            raise IndexError(index)
        row = index * fields.ROW_SIZE
        return BatchHeader._make(self.rows[row : row + fields.ROW_SIZE])

    def __iter__(self) -> Iterator[BatchHeader]:
        for index in range(len(self)):
            yield self[index]

    def column(self, field: str) -> memoryview[int]:
        """Return one field of every batch, by the field's name in `BatchHeader`; a view, not a copy."""
        return self.rows[BatchHeader._fields.index(field) :: fields.ROW_SIZE]

    def largest(self, field: str, count: int) -> int:
        """Return the largest value of a field among the first `count` batches; `count` is at least 1."""
        row: cython.p_longlong = memory.int64s_of(self.rows)
        first: cython.Py_ssize_t = BatchHeader._fields.index(field)
        found: cython.longlong = row[first]
        total: cython.Py_ssize_t = count
        number: cython.Py_ssize_t
        for number in range(1, total):
            found = max(found, row[fields.ROW_SIZE * number + first])
        return found

    def count_ascending(self, lowest: int, limit: int) -> int:
        """Return how many batches, counted from the first, have ascending last offsets within [lowest, limit]."""
        row: cython.p_longlong = memory.int64s_of(self.rows)
        before: cython.longlong = lowest - 1
        most: cython.longlong = min(limit, 2**63 - 1)
        end: cython.Py_ssize_t = len(self.rows)
        at: cython.Py_ssize_t = fields.LAST_OFFSET
        while at < end and before < row[at] <= most:
            before = row[at]
            at += fields.ROW_SIZE
        return at // fields.ROW_SIZE

    def count_visible(self, start_offset: int, end_offset: int) -> int:
        """Return how many records the batches inside the range declare; control and hidden batches are not counted."""
        row: cython.p_longlong = memory.int64s_of(self.rows)
        first: cython.longlong = start_offset
        beyond: cython.longlong = end_offset
        found: cython.longlong = 0
        end: cython.Py_ssize_t = len(self.rows)
        at: cython.Py_ssize_t = 0
        while at < end:
            hidden: cython.longlong = row[at + fields.ATTRIBUTES] & (fields.CONTROL_MASK | fields.HIDDEN_MASK)
            if not hidden and first <= row[at + fields.BASE_OFFSET] and row[at + fields.LAST_OFFSET] < beyond:
                found += row[at + fields.RECORD_COUNT]
            at += fields.ROW_SIZE
        return found

    def overlap(self, lowest: int, count: int) -> bool:
        """Return whether one of the first `count` v2 batches begins below `lowest` or before its predecessor ends."""
        row: cython.p_longlong = memory.int64s_of(self.rows)
        before: cython.longlong = lowest - 1
        end: cython.Py_ssize_t = min(fields.ROW_SIZE * count, len(self.rows))
        at: cython.Py_ssize_t = 0
        while at < end:
            if row[at + fields.BASE_OFFSET] <= before and row[at + fields.MAGIC] == fields.CURRENT_MAGIC:
                return True
            before = row[at + fields.LAST_OFFSET]
            at += fields.ROW_SIZE
        return False


def sequence_plus(sequence: int, delta: int) -> int:
    """Return the sequence number `delta` records later, or earlier if `delta` is negative; 0 follows 2^31-1."""
    return (sequence + delta) % (MAX_SEQUENCE + 1)
