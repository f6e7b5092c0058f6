r"""Key TAB value, one record per line: the `log.kv` file.

A null key or value is `\N`; TAB, LF, CR and backslash are escaped as `\t \n \r \\`, so that every line parses back to
the same bytes. Headers and times are not shown. A line without TAB is a value without key; a TAB after the first one
belongs to the value. Compiled by Cython; runs uncompiled with the same results.
"""

# ruff: noqa: PLR0913, PLR0917 -- functions over raw memory take pointers and bounds one by one

from __future__ import annotations

from array import array

import cython

from topicfs.fusefs.forms.form import FormError
from topicfs.storage.codec.headers import Batches
from topicfs.storage.codec.records import Columns, encode_columns
from topicfs.storage.model import Buffer, TopicPartition

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.storage.codec.binary import fields, memory

MIN_OFFSET = -(2**63)
MAX_OFFSET = 2**63 - 1


class KeyValue:
    """See `Form`."""

    suffix = ".kv"
    outdated = False
    tells_times = False

    def render(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> bytes:
        """Render each record as key, TAB, value, LF."""
        return _render(columns, 0, len(columns), start_offset, end_offset)

    def render_one(self, columns: Columns, index: int, partition: TopicPartition) -> bytes:
        if not 0 <= index < len(columns):
            raise IndexError(index)
        return _render(columns, index, index + 1, MIN_OFFSET, MAX_OFFSET)

    def measure(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> array[int]:
        """Return the size of each batch's lines. An escaped byte takes two bytes."""
        data: memoryview = columns.data
        block: memoryview = columns.block
        source: cython.p_uchar = memory.octets_of(data)
        column: cython.p_longlong = memory.int64s_of(block)
        count: cython.Py_ssize_t = len(columns)
        sizes = array("q")
        first: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t
        for last in columns.batches.column("record_end"):
            sizes.append(_size(source, column, count, first, last, start_offset, end_offset))
            first = last
        return sizes

    def parse(self, text: Buffer, *, timestamp: int, max_batch_bytes: int) -> list[bytearray]:
        r"""Parse lines: a backslash must begin `\N` (the whole key or value) or one of the four escapes."""
        return encode_columns(_columns(text, timestamp), max_batch_bytes=max_batch_bytes, unit="line")


KV = KeyValue()


@cython.cfunc
def _render(
    columns: Columns,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    start_offset: cython.longlong,
    end_offset: cython.longlong,
) -> bytes:
    data: memoryview = columns.data
    block: memoryview = columns.block
    source: cython.p_uchar = memory.octets_of(data)
    column: cython.p_longlong = memory.int64s_of(block)
    count: cython.Py_ssize_t = len(columns)
    text: object = memory.new_text(_size(source, column, count, first, last, start_offset, end_offset))
    target: cython.p_uchar = memory.text_octets(text)
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(first, last):
        if start_offset <= column[index] < end_offset:
            key: cython.Py_ssize_t = fields.KEY_POSITIONS * count + index
            value: cython.Py_ssize_t = fields.VALUE_POSITIONS * count + index
            at = _put_field(target, at, source, column[key], column[key + count])
            target[at] = ord("\t")
            at = _put_field(target, at + 1, source, column[value], column[value + count])
            target[at] = ord("\n")
            at += 1
    return memory.finished(text)


@cython.cfunc
@cython.exceptval(check=False)
def _size(
    source: cython.p_uchar,
    column: cython.p_longlong,
    count: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    start_offset: cython.longlong,
    end_offset: cython.longlong,
) -> cython.Py_ssize_t:
    """Return the size of the lines of records [first, last) within the offset range."""
    size: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(first, last):
        if start_offset <= column[index] < end_offset:
            key: cython.Py_ssize_t = fields.KEY_POSITIONS * count + index
            value: cython.Py_ssize_t = fields.VALUE_POSITIONS * count + index
            size += 2 + _field_size(source, column[key], column[key + count])
            size += _field_size(source, column[value], column[value + count])
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _escape_of(octet: cython.uchar) -> cython.uchar:
    """Return the letter that escapes `octet` after a backslash; 0 if it needs no escape."""
    if octet == ord("\t"):
        return ord("t")
    if octet == ord("\n"):
        return ord("n")
    if octet == ord("\r"):
        return ord("r")
    return ord("\\") if octet == ord("\\") else 0


@cython.cfunc
@cython.exceptval(check=False)
def _field_size(
    source: cython.p_uchar, start: cython.Py_ssize_t, length: cython.longlong
) -> cython.Py_ssize_t:
    if length < 0:
        return 2
    escapes: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    if cython.compiled:
        # One pointer and no call, so that the C compiler can vectorize the loop.
        field: cython.p_uchar = source + start
        for index in range(length):
            escapes += (
                (field[index] == ord("\t"))
                | (field[index] == ord("\n"))
                | (field[index] == ord("\r"))
                | (field[index] == ord("\\"))
            )
    else:
        for index in range(start, start + length):
            escapes += _escape_of(source[index]) != 0
    return length + escapes


@cython.cfunc
@cython.exceptval(check=False)
def _put_field(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    length: cython.longlong,
) -> cython.Py_ssize_t:
    if length < 0:
        target[at] = ord("\\")
        target[at + 1] = ord("N")
        return at + 2
    if _field_size(source, start, length) == length:
        memory.copy(target, at, source, start, length)
        return at + length
    index: cython.Py_ssize_t
    for index in range(start, start + length):
        letter: cython.uchar = _escape_of(source[index])
        if letter:
            target[at] = ord("\\")
            target[at + 1] = letter
            at += 2
        else:
            target[at] = source[index]
            at += 1
    return at


@cython.cfunc
def _columns(text: Buffer, timestamp: cython.longlong) -> Columns:
    """Parse the lines into records, whose bytes are in a copy of the text without the escapes."""
    view: memoryview = memory.flat_view(text)
    source: cython.p_uchar = memory.octets_of(view)
    end: cython.Py_ssize_t = len(view)
    count: cython.Py_ssize_t = _count_lines(source, end)
    if end and source[end - 1] != ord("\n"):
        raise ValueError("the last line has no LF")
    # Removing escapes never makes a text longer.
    plain: bytearray = memory.new_octets(end)
    block: memoryview = memory.new_int64s(fields.COLUMN_COUNT * count)
    column: cython.p_longlong = memory.int64s_of(block)
    position: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(count):
        stop: cython.Py_ssize_t = memory.position_of(ord("\n"), source, position, end)
        tab: cython.Py_ssize_t = memory.position_of(ord("\t"), source, position, stop)
        column[index] = index
        column[fields.TIMESTAMPS * count + index] = timestamp
        column[fields.KEY_POSITIONS * count + index] = at
        column[fields.KEY_LENGTHS * count + index] = -1
        if tab < stop:
            length: cython.longlong = _take_field(memory.writable(plain), at, source, position, tab)
            if length < -1:
                raise FormError(
                    index + 1, "a backslash in the key must be followed by t, n, r or a backslash"
                )
            column[fields.KEY_LENGTHS * count + index] = length
            at += max(length, 0)
            position = tab + 1
        length = _take_field(memory.writable(plain), at, source, position, stop)
        if length < -1:
            raise FormError(index + 1, "a backslash in the value must be followed by t, n, r or a backslash")
        column[fields.VALUE_POSITIONS * count + index] = at
        column[fields.VALUE_LENGTHS * count + index] = length
        column[fields.HEADER_POSITIONS * count + index] = 0
        column[fields.HEADER_LENGTHS * count + index] = 0
        at += max(length, 0)
        position = stop + 1
    return Columns(memoryview(plain), block, count, Batches(block[:0], 0))


@cython.cfunc
@cython.exceptval(check=False)
def _count_lines(source: cython.p_uchar, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    count: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(end):
        count += source[index] == ord("\n")
    return count


@cython.cfunc
@cython.exceptval(check=False)
def _take_field(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.longlong:
    """Write the field in [start, end) without its escapes; return its length, -1 for null, -2 for a bad escape."""
    if end - start == 2 and source[start] == ord("\\") and source[start + 1] == ord("N"):
        return -1
    first: cython.Py_ssize_t = at
    while True:
        stop: cython.Py_ssize_t = memory.position_of(ord("\\"), source, start, end)
        memory.copy(target, at, source, start, stop - start)
        at += stop - start
        if stop == end:
            return at - first
        octet: cython.int = _escaped(source[stop + 1]) if stop + 1 < end else -1
        if octet < 0:
            return -2
        target[at] = octet
        at += 1
        start = stop + 2


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _escaped(letter: cython.int) -> cython.int:
    """Return the byte that `letter` means after a backslash; -1 for any other letter."""
    if letter == ord("t"):
        return ord("\t")
    if letter == ord("n"):
        return ord("\n")
    if letter == ord("r"):
        return ord("\r")
    return ord("\\") if letter == ord("\\") else -1
