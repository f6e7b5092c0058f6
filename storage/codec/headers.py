"""The header of a record batch of format v2 (kafka-storage.md#batch-header): its picture, its fields, and many of them as rows.

     0  int64  base offset               ┐
     8  int32  batch length              │ what follows this field; the whole batch is 12 bytes longer
    12  int32  partition leader epoch    │ not under the checksum, so that a leader may set them
    16  int8   magic                     ┘
    17  uint32 checksum                    CRC-32C of everything after it
    21  int16  attributes                  bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                           6 delete horizon set (then the base timestamp is the horizon)
    23  int32  last offset delta           last offset = base offset + it, also after compaction
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
from typing import NamedTuple, TypeAlias

import cython

from storage.errors import CorruptBatchError
from storage.model import Offset, Position, ProducerId, Timestamp, TimestampType

if cython.compiled:
    from cython.cimports.storage.codec.memory import int64s_of
else:
    from storage.codec.memory import int64s_of

Buffer: TypeAlias = "bytes | bytearray | memoryview"

LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CHECKSUM_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35
PRODUCER_ID_POSITION = 43
HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Bytes of a batch that its length field does not count."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40
HIDDEN_MASK = 0x10000
"""Above the sixteen bits that a file has, whatever stands in them."""

CURRENT_MAGIC = 2
MAX_SEQUENCE = 2**31 - 1

FIELDS = 15
"""Of one batch in the rows of `Batches`, in the order of `BatchHeader`; the last one is its `record_end`."""


class Codec(IntEnum):
    """How a batch's records are compressed: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's spelling in dumps and settings (`none` is `uncompressed` in settings)."""
        return self.name.lower()


class BatchHeader(NamedTuple):
    """One batch's header, and where it stands.

    Batches of the old formats have it too: what they lack is -1, and a compressed one's base offset and count
    are unknown before it is inflated (its last offset, and -1).
    """

    position: Position
    """Of the batch's first byte in the buffer it was read from."""
    size_bytes: int
    """Of the whole batch, header included."""
    base_offset: Offset
    last_offset: Offset
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    base_timestamp: Timestamp
    """As stored: the delete horizon where there is one."""
    max_timestamp: Timestamp
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int
    """Records, as declared."""
    record_end: int = 0
    """In `Columns.batches`: index of the first record after this batch's."""

    @property
    def end_offset(self) -> Offset:
        """One past the last offset."""
        return Offset(self.last_offset + 1)

    @property
    def end_position(self) -> Position:
        """One past the last byte."""
        return Position(self.position + self.size_bytes)

    @property
    def codec(self) -> Codec:
        """Raises CorruptBatchError for one of the three values that no codec has."""
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptBatchError(self.position, f"unknown compression codec {number}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & TIMESTAMP_TYPE_MASK) >> 3)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def is_hidden(self) -> bool:
        """Whether it belongs to an aborted transaction, as `storage.codec.aborted_filter` found: nothing a file says."""
        return self.attributes & HIDDEN_MASK != 0

    @property
    def delete_horizon_ms(self) -> Timestamp | None:
        """When its tombstones or its marker may go; None where no compaction has set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def last_sequence(self) -> int:
        """Of its last record; -1 where the batch carries no sequence."""
        if self.base_sequence < 0:
            return -1
        return sequence_plus(self.base_sequence, self.last_offset - self.base_offset)


@cython.final
@cython.cclass
class Batches:
    """The headers of adjacent batches, as rows of integers: no object a batch.

    Indexing and iterating make `BatchHeader` values; `column(n)` gives one field of all of them.
    """

    _rows: memoryview
    _stop: cython.Py_ssize_t
    _problem: CorruptBatchError | None

    def __init__(self, rows: memoryview[int], stop: int, problem: CorruptBatchError | None = None) -> None:
        self._rows = rows
        self._stop = stop
        self._problem = problem

    @property
    def rows(self) -> memoryview[int]:
        """`FIELDS` int64 a batch, batch after batch."""
        return self._rows

    @property
    def stop(self) -> int:
        """Position of the first byte that belongs to no batch here."""
        return self._stop

    @property
    def problem(self) -> CorruptBatchError | None:
        """Why the scan stopped there; None where it reached its end or its limit."""
        return self._problem

    def __len__(self) -> int:
        return len(self._rows) // FIELDS

    def __getitem__(self, index: int) -> BatchHeader:
        count = len(self)
        if index < 0:
            index += count
        if not 0 <= index < count:
            raise IndexError(index)
        row = index * FIELDS
        return BatchHeader._make(self._rows[row : row + FIELDS])

    def __iter__(self) -> Iterator[BatchHeader]:
        for index in range(len(self)):
            yield self[index]

    def column(self, field: str) -> memoryview[int]:
        """One field of every batch, by its name in `BatchHeader`; a view, not a copy."""
        return self._rows[BatchHeader._fields.index(field) :: FIELDS]

    def largest(self, field: str, count: int) -> int:
        """The largest value of a field among the first `count` batches, of which there is at least one."""
        row: cython.p_longlong = int64s_of(self._rows)
        first: cython.Py_ssize_t = BatchHeader._fields.index(field)
        found: cython.longlong = row[first]
        at: cython.Py_ssize_t
        for at in range(first, count * 15, 15):
            found = max(found, row[at])
        return found

    def count_ascending(self, lowest: int, limit: int) -> int:
        """How many batches lead up to the first whose last offset is below `lowest`, not above the one before, or above `limit`."""
        row: cython.p_longlong = int64s_of(self._rows)
        before: cython.longlong = lowest - 1
        most: cython.longlong = min(limit, 2**63 - 1)
        end: cython.Py_ssize_t = len(self._rows)
        at: cython.Py_ssize_t = 3
        while at < end and before < row[at] <= most:
            before = row[at]
            at += 15
        return at // 15

    def count_visible(self, start_offset: int, end_offset: int) -> int:
        """How many records the batches wholly inside [start_offset, end_offset) declare, markers and hidden ones left out."""
        row: cython.p_longlong = int64s_of(self._rows)
        field: cython.Py_ssize_t = BatchHeader._fields.index("attributes")
        count_field: cython.Py_ssize_t = BatchHeader._fields.index("record_count")
        unseen: cython.longlong = CONTROL_MASK | HIDDEN_MASK
        first: cython.longlong = start_offset
        beyond: cython.longlong = end_offset
        found: cython.longlong = 0
        end: cython.Py_ssize_t = len(self._rows)
        at: cython.Py_ssize_t
        for at in range(0, end, 15):
            if not row[at + field] & unseen and first <= row[at + 2] and row[at + 3] < beyond:
                found += row[at + count_field]
        return found

    def overlap(self, lowest: int, count: int) -> bool:
        """Whether one of the first `count` begins before `lowest`, or before the one in front of it ends.

        Those of the old formats are not asked, for a compressed one does not tell.
        """
        row: cython.p_longlong = int64s_of(self._rows)
        before: cython.longlong = lowest - 1
        end: cython.Py_ssize_t = min(15 * count, len(self._rows))
        at: cython.Py_ssize_t = 2
        while at < end:
            if row[at] <= before and row[at + 3] == CURRENT_MAGIC:
                return True
            before = row[at + 1]
            at += 15
        return False


def sequence_plus(sequence: int, delta: int) -> int:
    """A sequence number `delta` records on (or back, where negative): after 2^31-1 comes 0."""
    return (sequence + delta) % (MAX_SEQUENCE + 1)
