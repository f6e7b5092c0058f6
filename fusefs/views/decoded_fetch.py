"""Decoded results of partition reads: runs of readable records, and between them the batches that cannot be read.

A damaged batch costs only its own records. The next batch is found by the damaged batch's size or, if the size is
damaged too, by probing for the next offset at which the log can be read.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from topicfs.fusefs.allowance import current
from topicfs.fusefs.forms.decoder import Decode
from topicfs.storage.codec.aborted_filter import still_aborted
from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.codec.binary.frame import base_offset_at, end_at, is_plain_at
from topicfs.storage.codec.columns import Columns, decode_each
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.disk.names import SegmentFileKind, segment_file
from topicfs.storage.engine import Partition
from topicfs.storage.errors import (
    CorruptBatchError,
    CorruptionError,
    OffsetOutOfRangeError,
    OversizeBatchError,
    SegmentDeletedError,
)
from topicfs.storage.model import AbortedTransaction, Fetched, Isolation, Offset
from topicfs.storage.remote import ThreadNeededError

DECODED_BYTES = 4 * 2**20
"""Memory limit in bytes for a fetch's or batch's decoded records: a small batch can inflate to a large one."""

_ONE_MORE_BATCH = 2**20


class Damage(NamedTuple):
    """A batch whose records cannot be read, or the unreadable remainder of a broken file."""

    offset: Offset
    """Offset of the first missing record, as far as it is known."""
    error: CorruptionError


Piece: TypeAlias = Columns | Damage


class DecodedFetch(NamedTuple):
    """The decoded batches of one read: runs of readable records, and the damage between them."""

    pieces: list[Piece]
    """Runs and damage in offset order; empty if the log has no records at or after the offset."""
    segment_base_offset: Offset
    position: int
    """Position of the first batch in the segment's file; positions in the pieces' batches are relative to it."""
    size_bytes: int
    """Total size of the batches."""
    next_offset: Offset
    """Offset to read next."""
    data: memoryview
    """The bytes of the batches."""
    decoded_bytes: int = 0
    """Bytes of memory that the pieces use."""

    def below(self, end_offset: Offset) -> Iterator[Piece]:
        """Yield the pieces, but no damage at or above `end_offset`: a reader that ends there does not reach it."""
        return (piece for piece in self.pieces if not isinstance(piece, Damage) or piece.offset < end_offset)


def read_decoded(
    partition: Partition, offset: Offset, *, max_bytes: int, isolation: Isolation
) -> DecodedFetch:
    """Read and decode batches, beginning with the batch that contains `offset`: at least one, if there is any.

    If one request repeats a read, its batches are decoded only once. Raises SegmentDeletedError if the offset was
    removed.
    """
    fetched = fetch(partition, offset, max_bytes=max_bytes, isolation=isolation)
    if isinstance(fetched, DecodedFetch):
        return fetched
    request = current()
    if request is None:
        return decoded(partition, offset, fetched, isolation=isolation)
    read = (partition, fetched[1:])
    if request.read != read:
        request.last = None  # Drop the old result first: two may be large.
        request.last, request.read = decoded(partition, offset, fetched, isolation=isolation), read
    assert isinstance(request.last, DecodedFetch)
    return request.last


def fetch(
    partition: Partition, offset: Offset, *, max_bytes: int, isolation: Isolation
) -> Fetched | DecodedFetch:
    """Read batches from the one that contains `offset`, or return the damage there. Raises SegmentDeletedError."""
    try:
        return partition.read(offset, max_bytes=max_bytes, isolation=isolation)
    except OffsetOutOfRangeError as error:
        raise SegmentDeletedError(str(error)) from None
    except CorruptionError as error:
        next_offset = _next_readable(partition, offset, isolation)
        return DecodedFetch([Damage(offset, error)], offset, 0, 0, next_offset, memoryview(b""))


def decoded(
    partition: Partition,
    offset: Offset,
    fetched: Fetched,
    *,
    isolation: Isolation,
    decode: Decode = decode_each,
) -> DecodedFetch:
    """Decode fetched batches from `offset` on; `decode` is the decoder of the form (`fusefs.forms.decoder_of`).

    Stops after the batch with which the decoded records exceed DECODED_BYTES. Raises ThreadNeededError and
    RequestTooLargeError if the request's allowance does not suffice.
    """
    data, request = fetched.data, current()
    limit = MAX_CONTENT_BYTES if request is None else request.begin(len(data))
    pieces: list[Piece] = []
    failure: CorruptBatchError | None = None
    end = taken = 0
    try:
        for columns in decode(data, aborted=fetched.aborted, max_content_bytes=limit):
            pieces.append(columns)
            end = columns.batches.stop
            taken += columns.size_bytes
            if taken >= DECODED_BYTES or (request is not None and end < len(data) and request.is_late):
                break
    except CorruptBatchError as error:
        failure = error.with_traceback(None)  # A traceback would keep the inflated bytes alive.
    if failure is not None:
        return _decoded_around_damage(partition, offset, fetched, decode, isolation, failure)
    if request is not None:
        request.remaining -= taken
    base, position = fetched.segment_base_offset, fetched.position
    if end == len(data):
        return DecodedFetch(pieces, base, position, end, fetched.next_offset, data, taken)
    return DecodedFetch(pieces, base, position, end, columns.batches[-1].end_offset, data[:end], taken)


def _decoded_around_damage(
    partition: Partition,
    offset: Offset,
    fetched: Fetched,
    decode: Decode,
    isolation: Isolation,
    failure: CorruptBatchError,
) -> DecodedFetch:
    """Decode runs of batches and skip each batch that fails; `failure` is the first failure."""
    data = fetched.data
    pieces: list[Piece] = []
    next_offset, end, taken = offset, 0, 0
    for found in _runs(data, fetched.aborted, decode, failure):
        if isinstance(found, CorruptBatchError):
            file = segment_path(partition, fetched.segment_base_offset)
            pieces.append(Damage(next_offset, found.in_file(file, fetched.position + found.position)))
            end = end_at(data, found.position)
            next_offset = _offset_after_damage(partition, next_offset, fetched, end, isolation)
            taken += _cost_of(data, found.position, end)
        else:
            pieces.append(found)
            end, next_offset = found.batches.stop, found.batches[-1].end_offset
            taken += found.size_bytes
        if taken >= DECODED_BYTES:
            break
    if end == len(data) and not isinstance(pieces[-1], Damage):
        next_offset = fetched.next_offset
    base, position = fetched.segment_base_offset, fetched.position
    return DecodedFetch(pieces, base, position, end, next_offset, data[:end], taken)


def _runs(
    data: memoryview, aborted: Sequence[AbortedTransaction], decode: Decode, first: CorruptBatchError
) -> Iterator[Columns | CorruptBatchError]:
    """Yield runs of readable batches, and between them the error of each unreadable batch; `first` is the first error.

    In the event loop's thread, stops before a batch that exceeds the remaining allowance of the request.
    """
    allowed, at = current(), 0
    limit = MAX_CONTENT_BYTES if allowed is None else allowed.begin(len(data))
    readable = _Readable(data, at, aborted, decode, limit, first)
    while at < len(data):
        yield from readable
        failure = readable.failure
        if failure is None:
            return
        if isinstance(failure, OversizeBatchError) and limit < MAX_CONTENT_BYTES:
            if failure.position == 0:
                raise ThreadNeededError
            return
        if allowed is not None:
            allowed.remaining -= _cost_of(data, failure.position, end_at(data, failure.position))
        yield failure
        if allowed is not None and allowed.is_late:
            return
        at = end_at(data, failure.position)
        readable = _Readable(data, at, readable.aborted, decode, limit)


def _cost_of(data: memoryview, position: int, end: int) -> int:
    """Return how many bytes decoding the bad batch may have cost. For a compressed batch this is the codec's limit."""
    if len(data) - position < HEADER_SIZE:
        return len(data) - position
    return end - position if is_plain_at(data, position) else MAX_CONTENT_BYTES


class _Readable:
    """The runs of readable batches from a position up to the first unreadable batch."""

    def __init__(
        self,
        data: memoryview,
        at: int,
        aborted: Sequence[AbortedTransaction],
        decode: Decode,
        limit: int,
        failure: CorruptBatchError | None = None,
    ) -> None:
        self.failure = failure
        """The damage of the batch that ends the run; None if the run reaches the end of the data."""
        self.aborted = aborted
        """The aborted transactions with records in this run or after it."""
        self._data = data
        self._at = at
        self._decode = decode
        self._limit = limit

    def __iter__(self) -> Iterator[Columns]:
        if self.failure is None:
            try:
                yield from self._runs(None)
            except CorruptBatchError as error:
                self.failure = error.with_traceback(None)  # A traceback would keep the inflated bytes alive.
        if self.failure is not None and self._at < self.failure.position:
            yield from self._runs(self.failure.position)  # Decode the run again, up to the damaged batch.

    def _runs(self, end: int | None) -> Iterator[Columns]:
        allowed = current()
        for columns in self._decode(
            self._data, self._at, end, aborted=self.aborted, max_content_bytes=self._limit
        ):
            if allowed is not None:
                allowed.remaining -= columns.size_bytes
            yield columns
            self._at = columns.batches.stop
            if self.aborted:
                self.aborted = still_aborted(self.aborted, columns.batches)


def segment_path(partition: Partition, base_offset: Offset) -> Path:
    """Return the path of a segment's log for messages; without a directory, the partition's name."""
    if partition.directory is None:
        return Path(f"{partition.topic}-{partition.number}")
    return partition.directory / segment_file(base_offset, SegmentFileKind.LOG)


def _offset_after_damage(
    partition: Partition, offset: Offset, fetched: Fetched, at: int, isolation: Isolation
) -> Offset:
    """Return the first offset after a damaged batch. `at` is where the batch ends.

    The checksum of the batch failed, so its last offset is not trusted. The base offset of the next batch is used
    instead. After the last batch of a segment, the end of the segment is used.
    """
    if at < len(fetched.data):
        return _base_offset(partition, offset, fetched.data, at, isolation)
    try:
        longer = partition.read(offset, max_bytes=len(fetched.data) + _ONE_MORE_BATCH, isolation=isolation)
    except CorruptionError:
        return _next_readable(partition, offset, isolation)
    begins = fetched.position + at - longer.position
    if longer.segment_base_offset == fetched.segment_base_offset and 0 <= begins < len(longer.data):
        return _base_offset(partition, offset, longer.data, begins, isolation)
    segments = (one for one in partition.segments() or () if one.base_offset <= offset < one.end_offset)
    segment_end = next((one.end_offset for one in segments), Offset(offset + 1))
    return min(segment_end, partition.visible_end(isolation))


def _base_offset(
    partition: Partition, offset: Offset, data: memoryview, position: int, isolation: Isolation
) -> Offset:
    """Return the base offset of the batch at a position, clamped to lie above `offset` and within the log."""
    return Offset(min(max(base_offset_at(data, position), offset + 1), partition.visible_end(isolation)))


def _next_readable(partition: Partition, offset: Offset, isolation: Isolation) -> Offset:
    """Return the first readable offset after a broken part of a file, or the visible end.

    A read finds its position by the segment's index. So reads of offsets between the break and the next index entry
    fail.
    """
    end_offset = partition.visible_end(isolation)
    fails, step = offset, 1
    while not _readable(partition, Offset(min(fails + step, end_offset)), isolation):
        fails, step = Offset(fails + step), step * 2
    between = range(fails + 1, min(fails + step, end_offset))
    readable = bisect_left(between, True, key=lambda one: _readable(partition, Offset(one), isolation))
    return Offset(min(between.start + readable, end_offset))


def _readable(partition: Partition, offset: Offset, isolation: Isolation) -> bool:
    if offset >= partition.visible_end(isolation):
        return True
    try:
        partition.read(offset, max_bytes=1, isolation=isolation)
    except CorruptionError:
        return False
    return True
