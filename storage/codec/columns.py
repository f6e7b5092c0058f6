"""Records as columns: the form in which readers get record batches, without an object per record.

This module is compiled by Cython, and runs uncompiled with the same results; `record_parts` knows the layout of a
record. A buffer must not change while it is read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import cython

from topicfs.storage.codec.aborted_filter import hide_aborted
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES, MAX_RECORDS
from topicfs.storage.codec.compression.codecs import inflate
from topicfs.storage.codec.compression.legacy import read_records
from topicfs.storage.codec.headers import Batches, BatchHeader
from topicfs.storage.codec.record_parts import CAUSES
from topicfs.storage.errors import CorruptBatchError, OversizeBatchError
from topicfs.storage.model import NO_TIMESTAMP, AbortedTransaction, Buffer, Header, Offset, Record, Timestamp

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
    from cython.cimports.topicfs.storage.codec.record_parts import decode_records, header_spans
else:
    from topicfs.storage.codec.binary import fields, memory
    from topicfs.storage.codec.record_parts import decode_records, header_spans


_MAX_CONTENT_BYTES = cython.declare(cython.longlong, MAX_CONTENT_BYTES)
_MAX_RECORDS = cython.declare(cython.longlong, MAX_RECORDS)


@cython.final
@cython.cclass
class Columns:
    """Records of adjacent batches: eight columns of int64, and the bytes to which the columns point.

    The length of a null key or value is -1. Headers stay as they are stored, including their count; a record without
    headers has header length 0. A column is a view: it is cheap to take, and stays valid as long as it is held.
    """

    _data: memoryview
    _block: memoryview
    _count: cython.Py_ssize_t
    _batches: Batches

    def __init__(self, data: memoryview[int], block: memoryview[int], count: int, batches: Batches) -> None:
        self._data = data
        self._block = block
        self._count = count
        self._batches = batches

    def __len__(self) -> int:
        return self._count

    @property
    def data(self) -> memoryview[int]:
        """The buffer to which all positions refer: the caller's buffer, or inflated content."""
        return self._data

    @property
    def block(self) -> memoryview[int]:
        """All eight columns for compiled readers, one after the other in the order of the properties below."""
        return self._block

    @property
    def batches(self) -> Batches:
        """The batches, including batches without records.

        A header's `record_end` is the index after the batch's last record.
        """
        return self._batches

    @property
    def offsets(self) -> memoryview[int]:
        return self._column(fields.OFFSETS)

    @property
    def timestamps(self) -> memoryview[int]:
        """Milliseconds; the batch's max timestamp if the broker stamped it (LogAppendTime)."""
        return self._column(fields.TIMESTAMPS)

    @property
    def key_positions(self) -> memoryview[int]:
        return self._column(fields.KEY_POSITIONS)

    @property
    def key_lengths(self) -> memoryview[int]:
        return self._column(fields.KEY_LENGTHS)

    @property
    def value_positions(self) -> memoryview[int]:
        return self._column(fields.VALUE_POSITIONS)

    @property
    def value_lengths(self) -> memoryview[int]:
        return self._column(fields.VALUE_LENGTHS)

    @property
    def header_positions(self) -> memoryview[int]:
        """Position of each record's header count, which the headers follow."""
        return self._column(fields.HEADER_POSITIONS)

    @property
    def header_lengths(self) -> memoryview[int]:
        """Size of a record's header count and headers together; 0 if the record has no headers."""
        return self._column(fields.HEADER_LENGTHS)

    def _column(self, number: int) -> memoryview[int]:
        start = number * self._count
        return self._block[start : start + self._count]

    def key(self, index: int) -> bytes | None:
        return self._part(fields.KEY_POSITIONS, index)

    def value(self, index: int) -> bytes | None:
        return self._part(fields.VALUE_POSITIONS, index)

    def _part(self, column: int, index: int) -> bytes | None:
        index = self._checked(index)
        start = self._block[column * self._count + index]
        length = self._block[(column + 1) * self._count + index]
        return None if length < 0 else bytes(self._data[start : start + length])

    def keys(self, first: int, last: int) -> list[bytes | None]:
        """Return the keys of the records [first, last). Raises IndexError for an invalid range."""
        return self._parts(fields.KEY_POSITIONS, first, last)

    def values(self, first: int, last: int) -> list[bytes | None]:
        """Return the values of the records [first, last). Raises IndexError for an invalid range."""
        return self._parts(fields.VALUE_POSITIONS, first, last)

    @cython.cfunc
    def _parts(
        self, column: cython.Py_ssize_t, first: cython.longlong, last: cython.longlong
    ) -> list[bytes | None]:
        """Return the keys or the values of a range of records, each as a bytes object of its own."""
        count: cython.Py_ssize_t = self._count
        if not 0 <= first <= last <= count:
            raise IndexError(f"records {first} to {last} of {count}")
        source: cython.p_uchar = memory.octets_of(self._data)
        position: cython.p_longlong = memory.int64s_of(self._block)
        found: list[bytes | None] = []
        index: cython.Py_ssize_t
        for index in range(first, last):
            length: cython.longlong = position[(column + 1) * count + index]
            if length < 0:
                found.append(None)
                continue
            text: object = memory.new_text(length)
            memory.copy(memory.text_octets(text), 0, source, position[column * count + index], length)
            found.append(memory.finished(text))
        return found

    def _checked(self, index: int) -> int:
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return index % self._count

    def headers(self, index: int) -> tuple[Header, ...]:
        """Return the record's headers, in order; names may repeat."""
        spans = self.header_spans(index)
        data = self._data
        found = []
        for at in range(0, len(spans), fields.SPAN_SIZE):
            value = at + fields.HEADER_VALUE_POSITION
            start, length = spans[value], spans[value + 1]
            name = bytes(data[spans[at] : spans[at] + spans[at + 1]])
            found.append(Header(name, None if length < 0 else bytes(data[start : start + length])))
        return tuple(found)

    def header_spans(self, index: int) -> memoryview[int]:
        """Return four int64 per header: position and length of its name, then of its value (length -1: null)."""
        index = self._checked(index)
        position = self._block[fields.HEADER_POSITIONS * self._count + index]
        length = self._block[fields.HEADER_LENGTHS * self._count + index]
        return header_spans(self._data, position, position + length)

    def record(self, index: int) -> Record:
        """Return the record at `index` as a value."""
        index = self._checked(index)
        return Record(
            Offset(self._block[index]),
            Timestamp(self._block[fields.TIMESTAMPS * self._count + index]),
            self.key(index),
            self.value(index),
            self.headers(index),
        )

    def __iter__(self) -> Iterator[Record]:
        for index in range(self._count):
            yield self.record(index)

    @property
    def size_bytes(self) -> int:
        """Memory that the columns and their data take. The data is the whole inflated content, or the plain batches."""
        rows: memoryview = self._batches.rows
        row: cython.p_longlong = memory.int64s_of(rows)
        total: cython.Py_ssize_t = len(rows)
        held: cython.Py_ssize_t = len(self._data)
        if total and _is_plain(row, 0):
            last: cython.Py_ssize_t = total - fields.ROW_SIZE
            held = row[last + fields.POSITION] + row[last + fields.SIZE_BYTES] - row[fields.POSITION]
        return 8 * fields.COLUMN_COUNT * self._count + held

    def within(self, first: cython.Py_ssize_t, max_bytes: cython.longlong) -> int:
        """Return the exclusive end of the records, from `first` on, whose content fits into `max_bytes`.

        At least one record is included, even if it is larger.
        """
        column: cython.p_longlong = memory.int64s_of(self._block)
        count: cython.Py_ssize_t = self._count
        taken: cython.longlong = 0
        index: cython.Py_ssize_t = first
        while index < count:
            taken += max(column[fields.KEY_LENGTHS * count + index], 0)
            taken += (
                max(column[fields.VALUE_LENGTHS * count + index], 0)
                + column[fields.HEADER_LENGTHS * count + index]
            )
            if taken > max_bytes and index > first:
                break
            index += 1
        return index

    def time_bounds(self) -> tuple[int, int]:
        """Return the smallest and the largest timestamp; -1 and -1 if there are no records."""
        column: cython.p_longlong = memory.int64s_of(self._block)
        count: cython.Py_ssize_t = self._count
        if not count:
            return NO_TIMESTAMP, NO_TIMESTAMP
        least: cython.longlong = column[fields.TIMESTAMPS * count]
        most: cython.longlong = least
        index: cython.Py_ssize_t
        for index in range(1, count):
            least = min(least, column[fields.TIMESTAMPS * count + index])
            most = max(most, column[fields.TIMESTAMPS * count + index])
        return least, most

    def is_numbered_from(self, first: cython.longlong) -> bool:
        """Return whether the offsets are `first`, `first` + 1, and so on without a gap."""
        column: cython.p_longlong = memory.int64s_of(self._block)
        index: cython.Py_ssize_t = 0
        while index < self._count and column[index] - index == first:
            index += 1
        return index == self._count

    def find(self, offset: int) -> int:
        """Return the index of the first record at or after `offset`; if there is none, the number of records."""
        return bisect_left(self._block, offset, 0, self._count)

    def find_time(self, timestamp: cython.longlong, offset: cython.longlong) -> int:
        """Return the index of the first record at or after both `timestamp` and `offset`.

        If there is no such record, return the number of records.
        """
        column: cython.p_longlong = memory.int64s_of(self._block)
        count: cython.Py_ssize_t = self._count
        index: cython.Py_ssize_t = 0
        while index < count and (
            column[fields.TIMESTAMPS * count + index] < timestamp or column[index] < offset
        ):
            index += 1
        return index


def decode(  # noqa: PLR0913 -- what readers choose, each by its name
    data: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    control: bool = False,
    aborted: Sequence[AbortedTransaction] = (),
    create_times: bool = False,
    max_content_bytes: int = MAX_CONTENT_BYTES,
) -> list[Columns]:
    """Return the records of the whole batches in `data[start:end]`.

    A run of uncompressed batches becomes one `Columns` over `data` itself. Each compressed batch and each entry of an
    old format becomes a `Columns` of its own. Control batches have no records in the result unless `control` is set,
    and batches of `aborted` transactions never have any. `aborted` is sorted by first offset. With `create_times`,
    records keep their producers' times even if the broker stamped the batch (LogAppendTime), except in the old formats.

    Raises TornBatchError or CorruptBatchError, with the batch's position in `data`, if a batch is not whole and valid.
    Checksum (unless `check_crc` is off), record count, lengths and offsets are checked. Raises OversizeBatchError if a
    batch exceeds the bounds of `compression.bounds`, or its records inflate to more than `max_content_bytes`. All
    inflated content is in memory at the same time; use `decode_each` to handle one batch after the other.
    """
    view: memoryview = memory.flat_view(data)
    batches = scan(view, start, end, check_crc=check_crc)
    problem = batches.problem
    if problem is not None:
        raise problem
    if aborted:
        hide_aborted(batches, aborted)
    rows: memoryview = batches.rows
    total: cython.Py_ssize_t = len(rows)
    found: list[Columns] = []
    first: cython.Py_ssize_t = 0
    while first < total:
        last: cython.Py_ssize_t = _run_end(memory.int64s_of(rows), first, total)
        found.append(_decode_run(view, rows, first, last, control, create_times, max_content_bytes))
        first = last
    return found


def decode_each(  # noqa: PLR0913 -- as `decode`
    data: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    control: bool = False,
    aborted: Sequence[AbortedTransaction] = (),
    create_times: bool = False,
    max_content_bytes: int = MAX_CONTENT_BYTES,
) -> Iterator[Columns]:
    """Yield the same `Columns` that `decode` returns, one by one; a batch is inflated when it is requested.

    The memory of a batch is freed when the caller drops it. An error of `decode` is raised only after all batches
    before the faulty batch have been yielded.
    """
    view: memoryview = memory.flat_view(data)
    batches = scan(view, start, end, check_crc=check_crc)
    if aborted:
        hide_aborted(batches, aborted)
    rows: memoryview = batches.rows
    total: cython.Py_ssize_t = len(rows)
    first: cython.Py_ssize_t = 0
    while first < total:
        last: cython.Py_ssize_t = _run_end(memory.int64s_of(rows), first, total)
        yield _decode_run(view, rows, first, last, control, create_times, max_content_bytes)
        first = last
    if batches.problem is not None:
        raise batches.problem


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_plain(row: cython.p_longlong, at: cython.Py_ssize_t) -> cython.bint:
    """Return whether the batch is of format v2 and uncompressed."""
    if row[at + fields.MAGIC] != fields.CURRENT_MAGIC:
        return False
    return not row[at + fields.ATTRIBUTES] & fields.CODEC_MASK


@cython.cfunc
@cython.exceptval(check=False)
def _run_end(row: cython.p_longlong, first: cython.Py_ssize_t, total: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the end of the run at row `first`: all adjacent plain batches, or one batch of another kind."""
    last: cython.Py_ssize_t = first + fields.ROW_SIZE
    if _is_plain(row, first):
        while last < total and _is_plain(row, last):
            last += fields.ROW_SIZE
    return last


@cython.cfunc
def _decode_run(  # noqa: PLR0913, PLR0917 -- all of `decode`'s options that are left
    view: memoryview,
    rows: memoryview,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    control: cython.bint,
    create_times: cython.bint,
    max_content_bytes: cython.longlong,
) -> Columns:
    row: cython.p_longlong = memory.int64s_of(rows)
    run: memoryview = rows[first:last] if last - first < len(rows) else rows
    if _is_plain(row, first):
        return _decode_span(view, run, control, False, create_times)
    return _decode_wrapped(view, run, control, create_times, max_content_bytes)


@cython.cfunc
def _decode_wrapped(
    view: memoryview,
    rows: memoryview,
    control: cython.bint,
    create_times: cython.bint,
    max_content_bytes: cython.longlong,
) -> Columns:
    """Return the records of one compressed batch, or of one entry of an old format."""
    header = Batches(rows, 0)[0]
    if header.magic < fields.CURRENT_MAGIC:
        return _decode_legacy(view, header, max_content_bytes)
    if header.is_hidden or (header.is_control and not control):
        return Columns(view, memory.new_int64s(0), 0, Batches(rows, header.end_position))
    _check_bounds(header.position, header.size_bytes, header.record_count)
    content = view[header.position + fields.HEADER_SIZE : header.end_position]
    data = inflate(header.codec, content, position=header.position, limit=max_content_bytes)
    return _decode_span(memory.flat_view(data), rows, control, True, create_times)


@cython.cfunc
def _check_bounds(position: cython.Py_ssize_t, size: cython.longlong, count: cython.longlong) -> object:
    """Raise OversizeBatchError if a batch has more bytes or records than can be decoded."""
    if size > _MAX_CONTENT_BYTES:
        raise OversizeBatchError(
            position, f"a batch of {size} bytes; at most {MAX_CONTENT_BYTES} are decoded"
        )
    if count > _MAX_RECORDS:
        raise OversizeBatchError(position, f"{count} records in a batch; at most {MAX_RECORDS} are read")
    return None


def _decode_legacy(view: memoryview[int], header: BatchHeader, max_content_bytes: int) -> Columns:
    """Return the records of an old-format entry; its first offset and count are known only after inflating."""
    _check_bounds(header.position, header.size_bytes, 0)
    records = read_records(view, header, max_content_bytes)
    count = len(records.offsets)
    header = header._replace(
        base_offset=records.offsets[0],
        last_offset=max(header.last_offset, *records.offsets),
        record_count=count,
        record_end=count,
    )
    batches = Batches(memoryview(array("q", header)), header.end_position)
    return Columns(records.data, memoryview(records.block), count, batches)


@cython.cfunc
def _decode_span(
    data: memoryview, rows: memoryview, control: cython.bint, inflated: cython.bint, create_times: cython.bint
) -> Columns:
    """Return the records of the batches with these headers; if `inflated`, `data` is the content of the only batch."""
    row: cython.p_longlong = memory.int64s_of(rows)
    octets: cython.p_uchar = memory.octets_of(data)
    total: cython.Py_ssize_t = _count_records(rows, len(data) if inflated else -1, control)
    block: memoryview = memory.new_int64s(fields.COLUMN_COUNT * total)
    columns: cython.p_longlong = memory.int64s_of(block)
    done: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    for number in range(len(rows) // fields.ROW_SIZE):
        header: cython.Py_ssize_t = fields.ROW_SIZE * number
        # A control batch, or a batch of an aborted transaction, which `_count_records` did not count.
        if row[header + fields.RECORD_END] == done and row[header + fields.RECORD_COUNT] != 0:
            continue
        start: cython.Py_ssize_t = 0 if inflated else row[header + fields.POSITION] + fields.HEADER_SIZE
        end: cython.Py_ssize_t = (
            len(data) if inflated else row[header + fields.POSITION] + row[header + fields.SIZE_BYTES]
        )
        cause: cython.int = decode_records(
            octets, start, end, row, header, columns, total, done, create_times
        )
        if cause != fields.RECORDS_FIT:
            if cause == fields.TOO_MANY_HEADERS:
                raise OversizeBatchError(row[header + fields.POSITION], CAUSES[cause])
            raise CorruptBatchError(row[header + fields.POSITION], CAUSES[cause])
        done = row[header + fields.RECORD_END]
    header = len(rows) - fields.ROW_SIZE
    return Columns(
        data, block, total, Batches(rows, row[header + fields.POSITION] + row[header + fields.SIZE_BYTES])
    )


@cython.cfunc
def _count_records(rows: memoryview, inflated: cython.Py_ssize_t, control: cython.bint) -> cython.Py_ssize_t:
    """Return the number of records that the batches of `rows` declare; write running totals to `record_end`.

    Control batches count only if `control` is set; hidden batches never count. `inflated`: size of the inflated
    records, or -1 if the records are in the batches themselves.
    """
    row: cython.p_longlong = memory.int64s_of(rows)
    unread: cython.longlong = fields.HIDDEN_MASK if control else fields.HIDDEN_MASK | fields.CONTROL_MASK
    total: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    for number in range(len(rows) // fields.ROW_SIZE):
        header: cython.Py_ssize_t = fields.ROW_SIZE * number
        count: cython.longlong = row[header + fields.RECORD_COUNT]
        room: cython.longlong = (
            row[header + fields.SIZE_BYTES] - fields.HEADER_SIZE if inflated < 0 else inflated
        )
        # A record takes at least seven bytes, so the size of the bytes limits the allocation.
        if count < 0 or count * fields.MIN_RECORD_SIZE > room:
            raise CorruptBatchError(
                row[header + fields.POSITION], f"{count} records declared in {room} bytes"
            )
        if row[header + fields.ATTRIBUTES] & unread == 0:
            if count > _MAX_RECORDS or row[header + fields.SIZE_BYTES] > _MAX_CONTENT_BYTES:
                _check_bounds(row[header + fields.POSITION], row[header + fields.SIZE_BYTES], count)
            total += count
        row[header + fields.RECORD_END] = total
    return total
