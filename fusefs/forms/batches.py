"""Raw record batches: the `log.batch` file, read like a consumer's fetch and written like a producer's request.

It contains whole batches, one after the other. Batches without visible records are left out: transaction markers,
batches of aborted transactions, and batches that compaction has emptied. Batches are not decoded to be shown, so
`RawBatches` takes the place of the other forms' columns of records.

A written batch is converted to what a producer may send, with the same records:

    batch                                           becomes
    a plain one                                     the same bytes, with its producer ID, epoch and sequence
    of a transaction                                plain, without a producer: no marker will follow it here
    thinned out by compaction                       dense, without a producer: its sequence would have gaps
    marked LogAppendTime, or with a delete horizon  CreateTime, with the timestamps that the records showed
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
"""Attribute bits that no version of the format defines."""
_NOT_SHOWN = fields.CONTROL_MASK | fields.HIDDEN_MASK
_ENCODED_BYTES = 2 * MAX_CONTENT_BYTES
"""Limit on the total size of the records in a write that are encoded again."""
_ONE_BATCH_BYTES = 2**31 - 1
"""More than any batch has: a batch that is encoded again is not split, and the log checks its size."""


class RawBatches:
    """Adjacent batches that are not decoded to records; implements the part of `Columns` that views use."""

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
        """Total size of the batches in bytes."""
        return self.batches.stop - self.batches[0].position

    def within(self, first: int, max_bytes: int) -> int:
        """Return the end index of the batches from `first` on that fit in `max_bytes`, or of one batch if none fits."""
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
    """Do what `decode_each` does, but yield whole batches (`RawBatches`) and check only their checksums.

    Raises TornBatchError, CorruptBatchError; OversizeBatchError for a batch larger than `max_content_bytes`.
    """
    view = memoryview(data)
    batches = scan(view, start, end, check_crc=True)
    problem = batches.problem
    if batches.stop - start > max_content_bytes:
        for number, size in enumerate(batches.column("size_bytes")):
            if size > max_content_bytes:
                problem = OversizeBatchError(
                    batches[number].position, f"a batch of {size} bytes; the limit is {max_content_bytes}"
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
    """The form of raw batches: `Form` with columns of `RawBatches`.

    A batch that lies partly outside the offset range is left out.
    """

    suffix = ".batch"
    outdated = False
    tells_times = True

    def render(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> bytes:
        data, spans = columns.data, _spans(columns.batches, start_offset, end_offset)
        return b"".join(data[start:end] for start, end in spans)

    def render_one(self, columns: Columns, index: int, partition: TopicPartition) -> bytes:
        header = columns.batches[index]
        return bytes(columns.data[header.position : header.end_position])

    def measure(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> array[int]:
        """See `Form`; only headers are read."""
        return array("q", (size for _, size in _shown(columns.batches, start_offset, end_offset)))

    def parse(self, text: Buffer, *, timestamp: int, max_batch_bytes: int) -> list[bytearray]:
        """Return whole batches that a producer may send.

        Raises InvalidRecordError if `text` is not a sequence of whole batches, RecordTooLargeError if a batch is too
        large.
        """
        scanned = scan(text, check_crc=True)
        if scanned.problem is not None:
            raise InvalidRecordError(f"not a record batch: {scanned.problem}")
        return list(_as_sent(text, scanned, max_batch_bytes))


BATCH = WholeBatches()


def _shown(batches: Batches, start_offset: int, end_offset: int) -> Iterator[tuple[int, int]]:
    """Yield the position of each batch and how many of its bytes are shown: either all or 0."""
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
    """Yield the start and end of each sequence of adjacent bytes that is shown."""
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
    """Yield the batches as a producer may send them; limits the memory for batches that are encoded again."""
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
    """Raise InvalidRecordError or RecordTooLargeError if a log would refuse the batch because of its header."""
    if header.size_bytes > max_batch_bytes:
        raise RecordTooLargeError(f"a batch of {header.size_bytes} bytes; the limit is {max_batch_bytes}")
    if header.is_control:
        raise InvalidRecordError("a transaction marker, which only a coordinator may write")


def _without_transaction(data: Buffer, header: BatchHeader) -> bytearray:
    """Return the batch; if it belongs to a transaction, remove its producer."""
    batch = bytearray(memoryview(data)[header.position : header.end_position])
    if header.is_transactional:
        if header.attributes & _WITHOUT_MEANING:
            raise InvalidRecordError(
                f"a transaction's batch with attributes {header.attributes:#06x}: it cannot become a plain batch, "
                "because the meaning of its undefined bits is unknown"
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
    """Decode a batch to at most `left` bytes. Raises InvalidRecordError, RecordTooLargeError."""
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
