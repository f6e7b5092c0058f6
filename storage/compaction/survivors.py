"""Finds the records of a window that stay, without an object per record: marks them, groups them, copies columns.

A mark is one byte per record, the sum of:

    1  it stays: the newest of its key        2  its value is null        4  beyond what the map knows

Most batches keep all of their records, or none. Runs of such plain batches are copied or dropped as a whole. Other
batches are handled one by one. This module is compiled by Cython, and also runs uncompiled.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import cython

from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.headers import Batches

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.storage.codec.binary import fields, memory

STAYS = 1
NULL_VALUE = 2
BEYOND_MAP = 4

_STAYS = cython.declare(cython.int, STAYS)
_NULL_VALUE = cython.declare(cython.int, NULL_VALUE)
_SINGLE = cython.declare(cython.int, 0)
_COPIED = cython.declare(cython.int, 1)
_DROPPED = cython.declare(cython.int, 2)
_FILTERED = cython.declare(cython.int, 3)
"""C constants: the `BatchRunKind`s, and _FILTERED, a plain batch that keeps only some records."""


class BatchRunKind(IntEnum):
    """The kind of a run of batches."""

    SINGLE = 0
    """A single batch that must be handled on its own."""
    COPIED = 1
    """All records of the batches stay."""
    DROPPED = 2
    """No record of the batches stays, and no header has to stay."""


class BatchRun(NamedTuple):
    """Adjacent batches of one kind, up to the batch with number `stop` (exclusive)."""

    kind: BatchRunKind
    stop: int


def next_run(columns: Columns, marks: bytearray, first: int, *, keep_end_offset: int) -> BatchRun:
    """Return the run that begins with batch number `first` of `columns`.

    A batch is plain if it has format v2, is not a control batch, belongs to no transaction and has no delete horizon.
    A plain batch is copied if all its records stay and none is a tombstone. It is dropped if no record stays, no
    producer wrote it, and it does not end at `keep_end_offset`.
    """
    view: memoryview = columns.batches.rows
    rows: cython.p_longlong = memory.int64s_of(view)
    marked: memoryview = memoryview(marks)
    mark: cython.p_uchar = memory.octets_of(marked)
    total: cython.Py_ssize_t = len(view) // fields.ROW_SIZE
    at: cython.Py_ssize_t = first
    kind: cython.int = _kind(rows, at, mark, keep_end_offset)
    at += 1
    if kind in (_SINGLE, _FILTERED):
        return BatchRun(BatchRunKind.SINGLE, at)
    while at < total and _kind(rows, at, mark, keep_end_offset) == kind:
        at += 1
    return BatchRun(BatchRunKind.COPIED if kind == _COPIED else BatchRunKind.DROPPED, at)


def end_of_filtered(columns: Columns, marks: bytearray, first: int) -> int:
    """Return the number of the first batch, from `first` on, that is not filtered record by record.

    The batches before it are plain and uncompressed, and lose some of their records but not all. None of the records
    that stay is a tombstone.
    """
    view: memoryview = columns.batches.rows
    rows: cython.p_longlong = memory.int64s_of(view)
    marked: memoryview = memoryview(marks)
    mark: cython.p_uchar = memory.octets_of(marked)
    total: cython.Py_ssize_t = len(view) // fields.ROW_SIZE
    at: cython.Py_ssize_t = first
    while at < total and _kind(rows, at, mark, -1) == _FILTERED:
        at += 1
    return at


def filter_batches(columns: Columns, marks: bytearray, first: int, stop: int) -> Columns:
    """Return the batches [first, stop) with only the records that stay; the data is not copied."""
    source: memoryview = columns.batches.rows
    source_rows: cython.p_longlong = memory.int64s_of(source)
    begin: cython.Py_ssize_t = fields.ROW_SIZE * first
    size: cython.Py_ssize_t = fields.ROW_SIZE * stop - begin
    target: memoryview = memory.new_int64s(size)
    target[:] = source[begin : begin + size]
    rows: cython.p_longlong = memory.int64s_of(target)
    marked: memoryview = memoryview(marks)
    mark: cython.p_uchar = memory.octets_of(marked)
    start: cython.Py_ssize_t = source_rows[begin - 1] if begin else 0
    index: cython.Py_ssize_t = start
    kept: cython.longlong = 0
    number: cython.Py_ssize_t
    for number in range(size // fields.ROW_SIZE):
        row: cython.Py_ssize_t = fields.ROW_SIZE * number
        before: cython.longlong = kept
        while index < rows[row + fields.RECORD_END]:
            kept += mark[index] & 1
            index += 1
        rows[row + fields.RECORD_COUNT] = kept - before
        rows[row + fields.RECORD_END] = kept
    records = kept_records(columns, marks, start, index)
    return Columns(records.data, records.block, len(records), Batches(target, columns.batches.stop))


def end_of_nontransactional(columns: Columns, first: int) -> int:
    """Return the number of the first batch, from `first` on, that is transactional or a control batch."""
    view: memoryview = columns.batches.rows
    rows: cython.p_longlong = memory.int64s_of(view)
    total: cython.Py_ssize_t = len(view) // fields.ROW_SIZE
    at: cython.Py_ssize_t = first
    while (
        at < total
        and rows[fields.ROW_SIZE * at + fields.ATTRIBUTES] & (fields.TRANSACTIONAL_MASK | fields.CONTROL_MASK)
        == 0
    ):
        at += 1
    return at


def kept_records(columns: Columns, marks: bytearray, first: int, last: int) -> Columns:
    """Return the records of [first, last) that stay, without their batches; the data is not copied."""
    source_view: memoryview = columns.block
    source: cython.p_longlong = memory.int64s_of(source_view)
    stride: cython.Py_ssize_t = len(columns)
    start: cython.Py_ssize_t = first
    stop: cython.Py_ssize_t = last
    count: cython.Py_ssize_t = count_staying(marks, start, stop)
    block: memoryview = memory.new_int64s(fields.COLUMN_COUNT * count)
    target: cython.p_longlong = memory.int64s_of(block)
    marked: memoryview = memoryview(marks)
    mark: cython.p_uchar = memory.octets_of(marked)
    to: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    column: cython.Py_ssize_t
    for index in range(start, stop):
        if mark[index] & 1:
            for column in range(8):
                target[column * count + to] = source[column * stride + index]
            to += 1
    return Columns(columns.data, block, count, columns.batches)


def count_staying(marks: bytearray, first: int, last: int) -> int:
    """Return how many of the records in [first, last) stay."""
    marked: memoryview = memoryview(marks)
    mark: cython.p_uchar = memory.octets_of(marked)
    count: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(first, last):
        count += mark[index] & 1
    return count


def drop_tombstones(marks: bytearray, first: int, last: int) -> None:
    """Mark the tombstones in [first, last) as removed, except tombstones beyond what the map knows."""
    index: cython.Py_ssize_t
    for index in range(first, last):
        if marks[index] == STAYS | NULL_VALUE:
            marks[index] = NULL_VALUE


@cython.cfunc
@cython.exceptval(check=False)
def _kind(
    rows: cython.p_longlong, batch: cython.Py_ssize_t, mark: cython.p_uchar, keep_end_offset: cython.longlong
) -> cython.int:
    """Return the number of the batch's `BatchRunKind`; _FILTERED if it is plain and keeps only some records."""
    row: cython.Py_ssize_t = fields.ROW_SIZE * batch
    tied: cython.longlong = fields.TRANSACTIONAL_MASK | fields.CONTROL_MASK | fields.DELETE_HORIZON_MASK
    if rows[row + fields.MAGIC] != fields.CURRENT_MAGIC or rows[row + fields.ATTRIBUTES] & tied:
        return _SINGLE
    first: cython.Py_ssize_t = rows[row - fields.ROW_SIZE + fields.RECORD_END] if batch else 0
    last: cython.Py_ssize_t = rows[row + fields.RECORD_END]
    stays: cython.Py_ssize_t = 0
    nulls: cython.int = 0
    index: cython.Py_ssize_t
    for index in range(first, last):
        if mark[index] & 1:
            stays += 1
            nulls |= mark[index]
    if stays == 0:
        kept: cython.bint = rows[row + fields.LAST_OFFSET] + 1 == keep_end_offset
        return _SINGLE if kept or rows[row + fields.PRODUCER_ID] >= 0 else _DROPPED
    if nulls & _NULL_VALUE:
        return _SINGLE
    if stays == last - first:
        return _COPIED
    return _FILTERED if rows[row + fields.ATTRIBUTES] & fields.CODEC_MASK == 0 else _SINGLE
