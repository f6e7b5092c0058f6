"""Values alone, one per line: the `log` file.

A null value and an empty value both render as a bare LF; a value that contains LF is shown as it is. Compiled by
Cython; runs uncompiled with the same results.
"""

from __future__ import annotations

from array import array

import cython

from topicfs.storage.codec.records import Columns, encode_lines
from topicfs.storage.model import Buffer, TopicPartition

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.storage.codec.binary import fields, memory


class Values:
    """See `Form`."""

    suffix = ""
    outdated = False
    tells_times = False

    def render(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> bytes:
        """Render each value and an LF."""
        data: memoryview = columns.data
        block: memoryview = columns.block
        column: cython.p_longlong = memory.int64s_of(block)
        count: cython.Py_ssize_t = len(columns)
        size: cython.Py_ssize_t = _size(column, count, 0, count, start_offset, end_offset)
        text: object = memory.new_text(size)
        _put(memory.text_octets(text), memory.octets_of(data), column, count, start_offset, end_offset)
        return memory.finished(text)

    def render_one(self, columns: Columns, index: int, partition: TopicPartition) -> bytes:
        """Render the value without LF; nothing for null."""
        return columns.value(index) or b""

    def measure(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> array[int]:
        """Return the size of each batch's lines: adds up the lengths of the values without reading the values."""
        block: memoryview = columns.block
        column: cython.p_longlong = memory.int64s_of(block)
        count: cython.Py_ssize_t = len(columns)
        sizes = array("q")
        first: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t
        for last in columns.batches.column("record_end"):
            sizes.append(_size(column, count, first, last, start_offset, end_offset))
            first = last
        return sizes

    def parse(self, text: Buffer, *, timestamp: int, max_batch_bytes: int) -> list[bytearray]:
        """Parse each line as a value without a key."""
        return encode_lines(text, timestamp=timestamp, max_batch_bytes=max_batch_bytes)


VALUES = Values()


@cython.cfunc
@cython.exceptval(check=False)
def _size(
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
            length: cython.longlong = column[fields.VALUE_LENGTHS * count + index]
            size += 1 + max(0, length)
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _put(
    target: cython.p_uchar,
    source: cython.p_uchar,
    column: cython.p_longlong,
    count: cython.Py_ssize_t,
    start_offset: cython.longlong,
    end_offset: cython.longlong,
) -> cython.void:
    """Write the lines that `_size` has measured."""
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(count):
        if start_offset <= column[index] < end_offset:
            length: cython.Py_ssize_t = column[fields.VALUE_LENGTHS * count + index]
            if length > 0:
                memory.copy(target, at, source, column[fields.VALUE_POSITIONS * count + index], length)
                at += length
            target[at] = ord("\n")
            at += 1
