"""Record batches as they stand: the `log.batch` file, which is read as a consumer fetches and written as a producer sends.

Whole batches, one after the other, nothing between them. What shows no record does not show: transaction markers,
batches of aborted transactions, and those that compaction has emptied. Unlike lines, batches are not decoded to be
shown; so `RawBatches` stands where the other forms have columns of records.

What is written becomes what a producer may send, with the same records in it:

    batch                                           becomes
    a plain one                                     the same bytes; its producer's id, epoch and sequence stay
    of a transaction                                plain, without a producer: no marker will follow it here
    thinned out by compaction                       dense, without a producer: its sequence would have holes
    marked LogAppendTime, or with a delete horizon  CreateTime, each record with the time it showed
    of an old format (magic 0 or 1)                 format 2
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import cast

from topicfs.storage.codec.aborted_filter import hide_aborted
from topicfs.storage.codec.batch import scan, set_producer
from topicfs.storage.codec.binary import fields
from topicfs.storage.codec.columns import Columns, decode
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.codec.headers import Batches, BatchHeader, BatchStamp
from topicfs.storage.codec.records import encode_columns
from topicfs.storage.errors import (
    CorruptBatchError,
    InvalidRecordError,
    OversizeBatchError,
    RecordTooLargeError,
)
from topicfs.storage.model import NO_PRODUCER_ID, AbortedTransaction, Buffer, TopicPartition

_ATTRIBUTES = struct.Struct(">H")
_WITHOUT_MEANING = 0xFF80
"""Attribute bits that no version of the format uses."""
_NOT_SHOWN = fields.CONTROL_MASK | fields.HIDDEN_MASK
_ENCODED_BYTES = 2 * MAX_CONTENT_BYTES
"""Most bytes that the records of batches encoded again may take in memory, one after the other, in one write."""
_ONE_BATCH_BYTES = 2**31 - 1
"""A batch encoded again stays one batch; the log judges its size afterwards."""


class RawBatches:
    """Adjacent batches in place of their records: as much of `Columns` as a view asks for."""

    __slots__ = ("batches", "data")

    def __init__(self, data: memoryview, batches: Batches) -> None:
        self.data = data
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def offsets(self) -> memoryview[int]:
        """First offset of each batch."""
        return self.batches.column("base_offset")

    @property
    def size_bytes(self) -> int:
        """Size of all of them."""
        return self.batches.stop - self.batches[0].position

    def within(self, first: int, max_bytes: int) -> int:
        """Index behind the batches from `first` on that take `max_bytes` together; at least one."""
        positions = self.batches.column("position").tolist()
        return max(bisect_right(positions, positions[first] + max_bytes) - 1, first + 1)


def find_batches(
    data: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    aborted: Sequence[AbortedTransaction] = (),
    max_content_bytes: int = MAX_CONTENT_BYTES,
) -> Iterator[Columns]:
    """`decode_each` for whole batches: `RawBatches` of which nothing but checksums was looked at.

    Raises TornBatchError, CorruptBatchError; OversizeBatchError at one of more than `max_content_bytes`.
    """
    view = memoryview(data)
    batches = scan(view, start, end, check_crc=True)
    problem = batches.problem
    if batches.stop - start > max_content_bytes:
        for number, size in enumerate(batches.column("size_bytes")):
            if size > max_content_bytes:
                problem = OversizeBatchError(
                    batches[number].position,
                    f"a batch of {size} bytes; at most {max_content_bytes} are read at once",
                )
                batches = Batches(batches.rows[: number * fields.ROW_SIZE], problem.position)
                break
    if aborted:
        hide_aborted(batches, aborted)
    if len(batches):
        yield cast("Columns", RawBatches(view, batches))
    if problem is not None:
        raise problem


class WholeBatches:
    """See `Form`; its columns are `RawBatches`. A batch that is not wholly within the offsets asked for is left out."""

    suffix = ".batch"
    outdated = False
    tells_times = True

    def render(self, columns: Columns, place: TopicPartition, start_offset: int, end_offset: int) -> bytes:
        data, spans = columns.data, _spans(columns.batches, start_offset, end_offset)
        return b"".join(data[start:end] for start, end in spans)

    def render_one(self, columns: Columns, index: int, place: TopicPartition) -> bytes:
        header = columns.batches[index]
        return bytes(columns.data[header.position : header.end_position])

    def measure(
        self, columns: Columns, place: TopicPartition, start_offset: int, end_offset: int
    ) -> array[int]:
        """See `Form`: the headers say it."""
        return array("q", (size for _, size in _shown(columns.batches, start_offset, end_offset)))

    def parse(self, text: Buffer, *, timestamp: int, max_batch_bytes: int) -> list[bytearray]:
        """Return whole batches, such as a producer may send.

        Raises InvalidRecordError for what is none, RecordTooLargeError.
        """
        scanned = scan(text, check_crc=True)
        if scanned.problem is not None:
            raise InvalidRecordError(f"not a record batch: {scanned.problem}")
        return list(_as_sent(text, scanned, max_batch_bytes))


BATCH = WholeBatches()


def _shown(batches: Batches, start_offset: int, end_offset: int) -> Iterator[tuple[int, int]]:
    """The position of every batch, and the number of bytes it shows: all or none."""
    names = ("position", "size_bytes", "base_offset", "last_offset", "attributes", "record_count")
    columns = [batches.column(field).tolist() for field in names]
    for position, size, base_offset, last_offset, attributes, records in zip(*columns, strict=True):
        shown = (
            records != 0
            and not attributes & _NOT_SHOWN
            and start_offset <= base_offset
            and last_offset < end_offset
        )
        yield position, size if shown else 0


def _spans(batches: Batches, start_offset: int, end_offset: int) -> Iterator[tuple[int, int]]:
    """Start and end of each run of bytes that shows."""
    start = end = 0
    for position, size in _shown(batches, start_offset, end_offset):
        if not size:
            continue
        if position != end:
            if end > start:
                yield start, end
            start = position
        end = position + size
    if end > start:
        yield start, end


def _as_sent(data: Buffer, batches: Batches, max_batch_bytes: int) -> Iterator[bytearray]:
    """The batches as a producer may send them; the records of those encoded again are bounded together."""
    left = _ENCODED_BYTES
    for header in batches:
        _check(header, max_batch_bytes)
        if _wants_encoding(header):
            columns = _records(data, header, left)
            left -= columns.size_bytes
            yield _encoded(columns, header)
        else:
            yield _without_transaction(data, header)


def _check(header: BatchHeader, max_batch_bytes: int) -> None:
    """Raise InvalidRecordError or RecordTooLargeError where the header alone says that no log takes it."""
    if header.size_bytes > max_batch_bytes:
        raise RecordTooLargeError(f"batch of {header.size_bytes} bytes, at most {max_batch_bytes} are taken")
    if header.is_control:
        raise InvalidRecordError("a transaction's marker, which comes from a coordinator alone")


def _without_transaction(data: Buffer, header: BatchHeader) -> bytearray:
    """The same batch; one of a transaction without its producer."""
    batch = bytearray(memoryview(data)[header.position : header.end_position])
    if header.is_transactional:
        if header.attributes & _WITHOUT_MEANING:
            raise InvalidRecordError(
                f"a transaction's batch with attributes {header.attributes:#06x}: what the bits without a meaning say of "
                "the plain batch that it would become, nobody knows"
            )
        _ATTRIBUTES.pack_into(
            batch, fields.ATTRIBUTES_POSITION, header.attributes & ~fields.TRANSACTIONAL_MASK
        )
        set_producer(batch, 0, producer_id=NO_PRODUCER_ID, producer_epoch=-1, base_sequence=-1)
    return batch


def _is_dense(header: BatchHeader) -> bool:
    return header.last_offset - header.base_offset + 1 == header.record_count


def _wants_encoding(header: BatchHeader) -> bool:
    marked = header.attributes & (fields.TIMESTAMP_TYPE_MASK | fields.DELETE_HORIZON_MASK)
    return header.magic != fields.CURRENT_MAGIC or marked != 0 or not _is_dense(header)


def _records(data: Buffer, header: BatchHeader, left: int) -> Columns:
    """A batch's records, which may inflate to `left` bytes. Raises InvalidRecordError, RecordTooLargeError."""
    limit = min(max(left, 0), MAX_CONTENT_BYTES)
    try:
        columns = decode(data, header.position, header.end_position, max_content_bytes=limit)[0]
    except OversizeBatchError as error:
        raise RecordTooLargeError(f"{error}; write less at once") from error
    except CorruptBatchError as error:
        raise InvalidRecordError(f"not a record batch: {error}") from error
    if not len(columns):
        raise InvalidRecordError(f"a batch without records at position {header.position}")
    return columns


def _encoded(columns: Columns, header: BatchHeader) -> bytearray:
    codec = header.codec
    stamp = BatchStamp(codec=codec)
    if header.magic == fields.CURRENT_MAGIC and _is_dense(header) and not header.is_transactional:
        stamp = BatchStamp(
            codec=codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
    return encode_columns(columns, stamp, max_batch_bytes=_ONE_BATCH_BYTES)[0]
