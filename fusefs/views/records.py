"""Single records, found by offset, by time or from the end, as selectors need them.

No function here scans from the start of the log: the log finds a batch by its indexes, and at most that batch is
decoded. Only counting back from the end reads more: it reads the headers of as many batches as are needed for the
requested number of records.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from topicfs.fusefs.allowance import current
from topicfs.fusefs.forms import BATCH, Form
from topicfs.fusefs.forms.decoder import check_line
from topicfs.fusefs.views.decoded_fetch import Damage, DecodedFetch, read_decoded, segment_path
from topicfs.storage import errors
from topicfs.storage.codec.aborted_filter import hide_aborted
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.headers import Batches, BatchHeader
from topicfs.storage.codec.records import FoundRecord
from topicfs.storage.codec.value_copy import find_value
from topicfs.storage.engine import Partition
from topicfs.storage.model import Header, Isolation, Offset, Position, Timestamp, TopicPartition
from topicfs.storage.remote import ThreadNeededError

_STRIDE = 2**20
"""Bytes of batches read in one step."""

_PLAIN_BYTES = 2**21
"""Largest batch that is searched in the event loop regardless of the request's allowance; takes 1 to 2 ms.

The default of max.message.bytes is half of this size.
"""

INLINE_SEARCH_BYTES = 2**20
"""Bytes that a search by time may scan in the event loop's thread. (Index entries are 4 KiB apart.)"""


class BatchCutError(LookupError):
    """A whole batch was requested, but some of its records were deleted."""


def content_of(found: FoundRecord, form: Form, partition: Partition) -> bytes:
    """Return the content of a record's file: for `.batch`, the whole batch. Raises BatchCutError if the log cuts it."""
    if form is BATCH:
        log_start_offset = partition.log_start_offset
        if found.batch.base_offset < log_start_offset:
            raise BatchCutError(
                f"{partition.topic}-{partition.number}: the batch of offset {found.offset} "
                f"begins at {found.batch.base_offset}, and records below {log_start_offset} were deleted"
            )
        return bytes(found.batch_bytes)
    try:
        check_line(form, found.columns, found.number)
    except errors.OversizeBatchError as error:
        raise error.in_file(
            segment_path(partition, found.segment_base_offset), found.batch_position
        ) from None
    return form.render_one(found.columns, found.number, TopicPartition(partition.topic, partition.number))


def headers_json(headers: tuple[Header, ...]) -> str:
    """Return headers as in `log.json`: one list in which names and values alternate."""
    flat = [
        part if part is None else part.decode("utf-8", "replace") for header in headers for part in header
    ]
    return json.dumps(flat, ensure_ascii=False, separators=(",", ":"))


class PlainRecord(NamedTuple):
    """The parts of a record that the record's own file shows."""

    offset: Offset
    timestamp: Timestamp
    value: bytes


def find_plain(partition: Partition, offset: Offset, isolation: Isolation) -> PlainRecord | None:
    """Return a record, faster than `find_record`; None if the caller must call `find_record` instead."""
    if not _is_visible(partition, offset, isolation):
        return None
    try:
        fetched = partition.read(offset, max_bytes=1, isolation=isolation)
    except (errors.OffsetOutOfRangeError, errors.SegmentDeletedError, errors.CorruptionError):
        return None
    if fetched.aborted or len(fetched.data) > _PLAIN_BYTES:
        return None
    found = find_value(fetched.data, offset)
    return None if found is None else PlainRecord(offset, Timestamp(found[1]), found[0])


def find_record(
    partition: Partition, offset: Offset, *, isolation: Isolation = Isolation.READ_COMMITTED
) -> FoundRecord | None:
    """Return the record at an offset; None if it is invisible, compacted away or a marker. Raises CorruptionError."""
    if not _is_visible(partition, offset, isolation):
        return None
    try:
        fetched = read_decoded(partition, offset, max_bytes=1, isolation=isolation)
    except errors.SegmentDeletedError:
        return None
    for piece in fetched.pieces:
        if isinstance(piece, Damage):
            raise piece.error
        index = piece.find(offset)
        if index < len(piece) and piece.offsets[index] == offset:
            return _found(piece, index, fetched)
    return None


def _found(columns: Columns, index: int, fetched: DecodedFetch) -> FoundRecord:
    batch = next(batch for batch in columns.batches if batch.record_end > index)
    position = Position(fetched.position + batch.position)
    batch_bytes = fetched.data[batch.position : batch.end_position]
    offset, timestamp = Offset(columns.offsets[index]), Timestamp(columns.timestamps[index])
    base_offset = fetched.segment_base_offset
    return FoundRecord(offset, timestamp, columns, index, batch, position, base_offset, batch_bytes)


def first_record_at(
    partition: Partition, timestamp: Timestamp, isolation: Isolation = Isolation.READ_COMMITTED
) -> FoundRecord | None:
    """Return the first visible record at or after a time; None if there is none.

    The engine returns either the record itself, or an offset where the search for a visible record begins. The search
    may have to read all headers of a segment and inflate a large batch. In the event loop's thread, only a short
    search is done.
    """
    request = current()
    most = min(request.remaining, INLINE_SEARCH_BYTES) if request is not None and request.inline else None
    try:
        found = partition.record_at(timestamp, isolation=isolation, max_bytes=most)
    except errors.SearchTooLongError as error:
        raise ThreadNeededError from error
    if found is None:
        return None
    if isinstance(found, FoundRecord):
        if request is not None:
            request.remaining -= found.columns.size_bytes
        return found
    for columns, fetched in _columns_from(partition, found.offset, isolation):
        index = columns.find_time(timestamp, found.offset)
        if index < len(columns):
            visible = _is_visible(partition, Offset(columns.offsets[index]), isolation)
            return _found(columns, index, fetched) if visible else None
    return None


def first_offset_at(partition: Partition, timestamp: Timestamp, isolation: Isolation) -> Offset | None:
    found = first_record_at(partition, timestamp, isolation)
    return None if found is None else found.offset


def earliest_offset(
    partition: Partition, *, isolation: Isolation = Isolation.READ_COMMITTED
) -> Offset | None:
    """Return the offset of the first visible record; None if there is none."""
    start_offset = partition.log_start_offset
    for columns, _fetched in _columns_from(partition, start_offset, isolation):
        index = columns.find(start_offset)
        if index < len(columns):
            offset = Offset(columns.offsets[index])
            return offset if _is_visible(partition, offset, isolation) else None
    return None


def latest_offset(partition: Partition, *, isolation: Isolation = Isolation.READ_COMMITTED) -> Offset | None:
    """Return the offset of the last visible record; None if there is none."""
    end_offset = partition.visible_end(isolation)
    offset = last_records_start(partition, 1, end_offset, isolation=isolation)
    return offset if offset < end_offset else None


def _is_visible(partition: Partition, offset: Offset, isolation: Isolation) -> bool:
    return partition.log_start_offset <= offset < partition.visible_end(isolation)


def _columns_from(
    partition: Partition, offset: Offset, isolation: Isolation
) -> Iterator[tuple[Columns, DecodedFetch]]:
    """Yield runs of records from `offset` on, each run with its fetch. Raises CorruptionError at a damaged batch."""
    end_offset, max_bytes = partition.visible_end(isolation), 1
    while offset < end_offset:
        fetched = read_decoded(partition, offset, max_bytes=max_bytes, isolation=isolation)
        for piece in fetched.pieces:
            if isinstance(piece, Damage):
                raise piece.error
            yield piece, fetched
        if not fetched.pieces:
            return
        offset, max_bytes = fetched.next_offset, _STRIDE


def last_records_start(
    partition: Partition, count: int, end_offset: Offset, *, isolation: Isolation
) -> Offset:
    """Return the offset from which there are `count` records before `end_offset`; if there are fewer, the first offset.

    Returns `end_offset` if there are no records. Steps back, doubling the number of offsets each time, until there are
    enough records; one step suffices if offsets are dense. A damaged batch counts with the record count of its header.
    """
    start_offset = partition.log_start_offset
    upper, missing = end_offset, count
    # There are at most as many records as offsets.
    while upper > start_offset and end_offset - start_offset > count:
        lower = Offset(max(upper - max(missing, end_offset - upper), start_offset))
        windows = _windows_between(partition, lower, upper, isolation)
        found = sum(window.count(lower, upper) for window in windows)
        if found >= missing:
            return _skip_records(partition, found - missing, lower, upper, isolation=isolation)
        upper, missing = lower, missing - found
    return _skip_records(partition, 0, start_offset, end_offset, isolation=isolation)


def _skip_records(
    partition: Partition, surplus: int, start_offset: Offset, end_offset: Offset, *, isolation: Isolation
) -> Offset:
    """Return the offset of the record after the first `surplus` records in [start_offset, end_offset), or the end."""
    for window in _windows_between(partition, start_offset, end_offset, isolation):
        records = window.count(start_offset, end_offset)
        if records > surplus:
            return window.skip(surplus, start_offset, end_offset)
        surplus -= records
    return end_offset


class _HeaderWindow:
    """The headers of adjacent batches. Only the first and last batch of a range are decoded, as far as needed."""

    def __init__(self, partition: Partition, isolation: Isolation, batches: Batches) -> None:
        self.partition, self.isolation, self.batches = partition, isolation, batches

    def count(self, start_offset: Offset, end_offset: Offset) -> int:
        cut = sum(
            len(self._inside(batch, start_offset, end_offset))
            for batch in self._outermost(end_offset)
            if not _is_whole(batch, start_offset, end_offset)
        )
        return cut + self.batches.count_visible(start_offset, end_offset)

    def _outermost(self, end_offset: Offset) -> list[BatchHeader]:
        """Return the first batch of the window, and the last batch that begins below `end_offset`."""
        last = bisect_left(self.batches.column("base_offset"), end_offset) - 1
        return [self.batches[index] for index in sorted({0, last}) if 0 <= index <= last]

    def skip(self, surplus: int, start_offset: Offset, end_offset: Offset) -> Offset:
        """Return the offset of the record after the first `surplus` records; the window must contain more records."""
        for batch in self.batches:
            if not _is_whole(batch, start_offset, end_offset):
                records = len(self._inside(batch, start_offset, end_offset))
            else:
                records = 0 if batch.is_control or batch.is_hidden else batch.record_count
            if records > surplus:
                inside = self._inside(batch, start_offset, end_offset)
                place = Offset(max(batch.base_offset, start_offset))
                return Offset(inside[surplus]) if surplus < len(inside) else place
            surplus -= records
        return end_offset

    def _inside(self, batch: BatchHeader, start_offset: Offset, end_offset: Offset) -> memoryview[int]:
        place = Offset(max(batch.base_offset, start_offset))
        return _visible_offsets(self.partition, place, start_offset, end_offset, isolation=self.isolation)


def _is_whole(batch: BatchHeader, start_offset: Offset, end_offset: Offset) -> bool:
    return start_offset <= batch.base_offset and batch.end_offset <= end_offset


def _windows_between(
    partition: Partition, start_offset: Offset, end_offset: Offset, isolation: Isolation
) -> Iterator[_HeaderWindow]:
    """Yield the headers of the batches of [start_offset, end_offset), window by window."""
    offset, allowed = start_offset, current()
    while offset < end_offset:
        try:
            fetched = partition.read(offset, max_bytes=_STRIDE, isolation=isolation)
        except errors.OffsetOutOfRangeError as error:
            raise errors.SegmentDeletedError(str(error)) from None
        if not fetched.data:
            return
        if allowed is not None:
            allowed.walk(len(fetched.data))
        batches = scan(fetched.data)
        hide_aborted(batches, fetched.aborted)
        yield _HeaderWindow(partition, isolation, batches)
        offset = fetched.next_offset


def _visible_offsets(
    partition: Partition, place: Offset, start_offset: Offset, end_offset: Offset, *, isolation: Isolation
) -> memoryview[int]:
    """Return the offsets in [start_offset, end_offset) of the records in the batch that contains `place`."""
    fetched = read_decoded(partition, place, max_bytes=1, isolation=isolation)
    for piece in fetched.pieces:
        if not isinstance(piece, Damage):
            return piece.offsets[piece.find(start_offset) : piece.find(end_offset)]
    return memoryview(b"").cast("q")
