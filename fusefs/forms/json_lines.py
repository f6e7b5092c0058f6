"""One JSON object per line, as `kcat -J` 1.7.1 prints it, without `broker`: the `log.json` file.

    {"topic":…,"partition":…,"offset":…,"tstype":"create","ts":…,"headers":["name","value",…],"key":…,"payload":…}

`tstype` is `create` or `logappend`. Records of format v0, which has no timestamps, have neither `tstype` nor `ts`,
and records without headers have no `headers`. Null keys, payloads and header values are null. Bytes that are not
UTF-8 are shown in base64, as `key_base64`, `payload_base64` or `headers_base64`; `headers_base64` has all header
values of the record in base64, but never the names. In a name, bytes that are not UTF-8 become lone surrogates
(U+DC80 to U+DCFF, Python's surrogateescape).

This module renders; `json_parser` parses. Compiled by Cython; runs uncompiled with the same results.
"""

from __future__ import annotations

import json
from array import array

import cython

from topicfs.fusefs.forms.json_parser import parse_records
from topicfs.storage.codec.records import Columns, columns_of, encode_columns
from topicfs.storage.model import Buffer, TopicPartition

if cython.compiled:
    from cython.cimports.topicfs.fusefs.forms.json_strings import (
        base64_size,
        field_size,
        integer_size,
        put_field,
        put_integer,
        put_string,
        put_text,
    )
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
else:
    from topicfs.fusefs.forms.json_strings import (
        base64_size,
        field_size,
        integer_size,
        put_field,
        put_integer,
        put_string,
        put_text,
    )
    from topicfs.storage.codec.binary import fields, memory

_CREATE = cython.declare(bytes, b',"tstype":"create","ts":')
_LOG_APPEND = cython.declare(bytes, b',"tstype":"logappend","ts":')
_HEADERS = cython.declare(bytes, b',"headers":[')
_HEADERS_BASE64 = cython.declare(bytes, b',"headers_base64":[')
_KEY = cython.declare(bytes, b',"key":')
_KEY_BASE64 = cython.declare(bytes, b',"key_base64":')
_PAYLOAD = cython.declare(bytes, b',"payload":')
_PAYLOAD_BASE64 = cython.declare(bytes, b',"payload_base64":')
_END = cython.declare(bytes, b"}\n")

MIN_OFFSET = -(2**63)
MAX_OFFSET = 2**63 - 1


class JsonForm:
    """See `Form`."""

    suffix = ".json"
    outdated = False
    tells_times = True

    def render(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> bytes:
        """Render one object per record."""
        lines: _LineWriter = _LineWriter(columns, partition)
        text: object = memory.new_text(sum(lines.measure(start_offset, end_offset)))
        lines.put(memory.text_octets(text), start_offset, end_offset)
        return memory.finished(text)

    def render_one(self, columns: Columns, index: int, partition: TopicPartition) -> bytes:
        if not 0 <= index < len(columns):
            raise IndexError(index)
        lines: _LineWriter = _LineWriter(columns, partition)
        lines.first = index
        lines.last = index + 1
        text: object = memory.new_text(sum(lines.measure(MIN_OFFSET, MAX_OFFSET)))
        lines.put(memory.text_octets(text), MIN_OFFSET, MAX_OFFSET)
        return memory.finished(text)

    def measure(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> array[int]:
        """Compute the sizes of all lines without writing them."""
        lines: _LineWriter = _LineWriter(columns, partition)
        lines.kept = False
        return lines.measure(start_offset, end_offset)

    def parse(self, text: Buffer, *, timestamp: int, max_batch_bytes: int) -> list[bytearray]:
        """Parse lines of JSON; see `json_parser` for the accepted fields."""
        records = parse_records(text, timestamp)
        return encode_columns(columns_of(records), max_batch_bytes=max_batch_bytes, unit="line")


JSON = JsonForm()


@cython.final
@cython.cclass
class _LineWriter:
    """Writes the lines of some columns: `measure` computes the sizes of the lines, `put` writes the lines."""

    columns: Columns
    data: memoryview
    block: memoryview
    rows: memoryview
    head: bytes
    kinds: bytearray
    spans: list[memoryview[int]]
    kept: cython.bint
    first: cython.Py_ssize_t
    last: cython.Py_ssize_t
    count: cython.Py_ssize_t

    def __init__(self, columns: Columns, partition: TopicPartition) -> None:
        self.columns = columns
        self.data = columns.data
        self.block = columns.block
        self.rows = columns.batches.rows
        topic = json.dumps(partition.topic, ensure_ascii=False)
        self.head = f'{{"topic":{topic},"partition":{partition.partition},"offset":'.encode()
        self.count = len(columns)
        self.kinds = memory.new_octets(self.count)
        self.spans = []
        self.kept = True  # spans of headers, used by `put`
        self.first = 0
        self.last = self.count

    @cython.cfunc
    def measure(self, start_offset: cython.longlong, end_offset: cython.longlong) -> array[int]:
        """Return the size of each batch's lines, and note for `put` which fields need base64."""
        sizes = array("q")
        row: cython.p_longlong = memory.int64s_of(self.rows)
        column: cython.p_longlong = memory.int64s_of(self.block)
        times: cython.Py_ssize_t = fields.TIMESTAMPS * self.count
        index: cython.Py_ssize_t = 0
        batch: cython.Py_ssize_t
        for batch in range(len(self.rows) // fields.ROW_SIZE):
            header: cython.Py_ssize_t = fields.ROW_SIZE * batch
            size: cython.Py_ssize_t = 0
            while index < row[header + fields.RECORD_END]:
                if self.first <= index < self.last and start_offset <= column[index] < end_offset:
                    size += self.line_size(index, _time_size(row, header, column[times + index]))
                index += 1
            sizes.append(size)
        return sizes

    @cython.cfunc
    def line_size(self, index: cython.Py_ssize_t, time_size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        source: cython.p_uchar = memory.octets_of(self.data)
        column: cython.p_longlong = memory.int64s_of(self.block)
        count: cython.Py_ssize_t = self.count
        key: cython.Py_ssize_t = fields.KEY_POSITIONS * count + index
        value: cython.Py_ssize_t = fields.VALUE_POSITIONS * count + index
        kind: cython.int = 0
        size: cython.Py_ssize_t = len(self.head) + integer_size(column[index]) + time_size
        if column[fields.HEADER_LENGTHS * count + index]:
            spans: memoryview = self.columns.header_spans(index)
            headers: cython.Py_ssize_t = len(spans) // fields.SPAN_SIZE
            if self.kept:
                self.spans.append(spans)
            if _headers_are_text(source, memory.int64s_of(spans), headers):
                size += len(_HEADERS) + _headers_size(source, memory.int64s_of(spans), headers, False)
            else:
                kind = 4
                size += len(_HEADERS_BASE64) + _headers_size(source, memory.int64s_of(spans), headers, True)
        part: cython.Py_ssize_t = field_size(source, column[key], column[key + count], False)
        if part < 0:
            kind |= 1
            part = len(_KEY_BASE64) - len(_KEY) + base64_size(column[key + count])
        size += len(_KEY) + part
        part = field_size(source, column[value], column[value + count], False)
        if part < 0:
            kind |= 2
            part = len(_PAYLOAD_BASE64) - len(_PAYLOAD) + base64_size(column[value + count])
        memory.writable(self.kinds)[index] = kind
        return size + len(_PAYLOAD) + part + len(_END)

    @cython.cfunc
    def put(
        self, target: cython.p_uchar, start_offset: cython.longlong, end_offset: cython.longlong
    ) -> object:
        """Write the lines that `measure` has measured. The offsets must be the same as for `measure`."""
        row: cython.p_longlong = memory.int64s_of(self.rows)
        column: cython.p_longlong = memory.int64s_of(self.block)
        times: cython.Py_ssize_t = fields.TIMESTAMPS * self.count
        at: cython.Py_ssize_t = 0
        index: cython.Py_ssize_t = 0
        batch: cython.Py_ssize_t
        with_headers: cython.Py_ssize_t = 0
        for batch in range(len(self.rows) // fields.ROW_SIZE):
            header: cython.Py_ssize_t = fields.ROW_SIZE * batch
            while index < row[header + fields.RECORD_END]:
                if self.first <= index < self.last and start_offset <= column[index] < end_offset:
                    at = put_text(target, at, self.head)
                    at = put_integer(target, at, column[index])
                    at = _put_time(target, at, row, header, column[times + index])
                    if column[fields.HEADER_LENGTHS * self.count + index]:
                        at = self.put_headers(target, at, index, self.spans[with_headers])
                        with_headers += 1
                    at = self.put_fields(target, at, index)
                index += 1
        return None

    @cython.cfunc
    def put_headers(
        self, target: cython.p_uchar, at: cython.Py_ssize_t, index: cython.Py_ssize_t, spans: memoryview
    ) -> cython.Py_ssize_t:
        source: cython.p_uchar = memory.octets_of(self.data)
        span: cython.p_longlong = memory.int64s_of(spans)
        base64: cython.bint = memory.writable(self.kinds)[index] & 4 != 0
        at = put_text(target, at, _HEADERS_BASE64 if base64 else _HEADERS)
        number: cython.Py_ssize_t
        for number in range(len(spans) // fields.SPAN_SIZE):
            if number:
                target[at] = ord(",")
                at += 1
            name: cython.Py_ssize_t = fields.SPAN_SIZE * number
            value: cython.Py_ssize_t = name + fields.HEADER_VALUE_POSITION
            at = put_string(target, at, source, span[name], span[name + 1])
            target[at] = ord(",")
            at = put_field(target, at + 1, source, span[value], span[value + 1], base64)
        target[at] = ord("]")
        return at + 1

    @cython.cfunc
    def put_fields(
        self, target: cython.p_uchar, at: cython.Py_ssize_t, index: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        source: cython.p_uchar = memory.octets_of(self.data)
        column: cython.p_longlong = memory.int64s_of(self.block)
        kind: cython.int = memory.writable(self.kinds)[index]
        count: cython.Py_ssize_t = self.count
        key: cython.Py_ssize_t = fields.KEY_POSITIONS * count + index
        value: cython.Py_ssize_t = fields.VALUE_POSITIONS * count + index
        at = put_text(target, at, _KEY_BASE64 if kind & 1 else _KEY)
        at = put_field(target, at, source, column[key], column[key + count], kind & 1 != 0)
        at = put_text(target, at, _PAYLOAD_BASE64 if kind & 2 else _PAYLOAD)
        at = put_field(target, at, source, column[value], column[value + count], kind & 2 != 0)
        return put_text(target, at, _END)


@cython.cfunc
@cython.exceptval(check=False)
def _headers_are_text(
    source: cython.p_uchar, span: cython.p_longlong, headers: cython.Py_ssize_t
) -> cython.bint:
    """Return whether every value is UTF-8 or null."""
    number: cython.Py_ssize_t
    for number in range(headers):
        value: cython.Py_ssize_t = fields.SPAN_SIZE * number + fields.HEADER_VALUE_POSITION
        if field_size(source, span[value], span[value + 1], False) < 0:
            return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _headers_size(
    source: cython.p_uchar, span: cython.p_longlong, headers: cython.Py_ssize_t, base64: cython.bint
) -> cython.Py_ssize_t:
    """Return the size of names and values, each with the comma or closing bracket that follows it."""
    size: cython.Py_ssize_t = 2 * headers
    number: cython.Py_ssize_t
    for number in range(headers):
        name: cython.Py_ssize_t = fields.SPAN_SIZE * number
        value: cython.Py_ssize_t = name + fields.HEADER_VALUE_POSITION
        size += field_size(source, span[name], span[name + 1], True)
        if base64 and span[value + 1] >= 0:
            size += base64_size(span[value + 1])
        else:
            size += field_size(source, span[value], span[value + 1], False)
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _time_size(
    row: cython.p_longlong, header: cython.Py_ssize_t, timestamp: cython.longlong
) -> cython.Py_ssize_t:
    if row[header + fields.MAGIC] == 0:
        return 0
    by_broker: cython.bint = row[header + fields.ATTRIBUTES] & fields.TIMESTAMP_TYPE_MASK != 0
    return (len(_LOG_APPEND) if by_broker else len(_CREATE)) + integer_size(timestamp)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_time(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    row: cython.p_longlong,
    header: cython.Py_ssize_t,
    timestamp: cython.longlong,
) -> cython.Py_ssize_t:
    if row[header + fields.MAGIC] == 0:
        return at
    by_broker: cython.bint = row[header + fields.ATTRIBUTES] & fields.TIMESTAMP_TYPE_MASK != 0
    at = put_text(target, at, _LOG_APPEND if by_broker else _CREATE)
    return put_integer(target, at, timestamp)
