"""Counts consecutive valid batches without an object per batch. Compiled by Cython; also runs uncompiled."""

from __future__ import annotations

from typing import NamedTuple

import cython

from topicfs.storage.codec.columns import Columns

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.storage.codec.binary import fields, memory


class Expected(NamedTuple):
    """What the next batches must fit. Gaps between batches are allowed."""

    start_offset: int
    """The lowest base offset of the next batch."""
    largest_offset: int
    """The largest offset that a record of the segment may have."""
    leader_epoch: int
    """The leader epoch of the last batch."""
    epoch_end_offset: int
    """The exclusive end of the offsets that belong to `leader_epoch`, according to the checkpoint of leader epochs."""


def end_of_sound(columns: Columns, first: int, expected: Expected) -> int:
    """Return the index of the first batch, from the index `first` on, that does not fit `expected`.

    If all batches fit, return the number of batches. The records in a batch must fit as well: their offsets ascend,
    and unless the broker set the times, the batch's largest timestamp is that of its latest record.
    """
    view: memoryview = columns.batches.rows
    rows: cython.p_longlong = memory.int64s_of(view)
    block_view: memoryview = columns.block
    block: cython.p_longlong = memory.int64s_of(block_view)
    stride: cython.Py_ssize_t = len(columns)
    before: cython.longlong = expected.start_offset - 1
    largest: cython.longlong = expected.largest_offset
    leader_epoch: cython.longlong = expected.leader_epoch
    epoch_end: cython.longlong = expected.epoch_end_offset
    total: cython.Py_ssize_t = len(view) // fields.ROW_SIZE
    begin: cython.Py_ssize_t = first
    record: cython.Py_ssize_t = rows[fields.ROW_SIZE * (begin - 1) + fields.RECORD_END] if begin else 0
    batch: cython.Py_ssize_t
    for batch in range(begin, total):
        row: cython.Py_ssize_t = fields.ROW_SIZE * batch
        base_offset: cython.longlong = rows[row + fields.BASE_OFFSET]
        last_offset: cython.longlong = rows[row + fields.LAST_OFFSET]
        if not before < base_offset <= last_offset <= largest:
            return batch
        if rows[row + fields.LEADER_EPOCH] != leader_epoch or base_offset >= epoch_end:
            return batch
        end: cython.Py_ssize_t = rows[row + fields.RECORD_END]
        if record < end and not _records_fit(
            block, stride, record, end, rows[row + fields.ATTRIBUTES], rows[row + fields.MAX_TIMESTAMP]
        ):
            return batch
        before = last_offset
        record = end
    return total


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _records_fit(
    block: cython.p_longlong,
    stride: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    attributes: cython.longlong,
    max_timestamp: cython.longlong,
) -> cython.bint:
    """Return whether the records [first, last), at least one, ascend, and their latest time is `max_timestamp`."""
    offset: cython.longlong = block[first]
    latest: cython.longlong = block[stride + first]
    index: cython.Py_ssize_t
    for index in range(first + 1, last):
        if block[index] <= offset:
            return False
        offset = block[index]
        latest = max(latest, block[stride + index])
    # With LogAppendTime the batch's own time counts, not the times of its records.
    return attributes & fields.TIMESTAMP_TYPE_MASK != 0 or latest == max_timestamp
