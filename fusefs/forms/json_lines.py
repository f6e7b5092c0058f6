"""One JSON object a line, as `kcat -J` 1.7.1 prints it, without `broker`: the `log.json` file.

    {"topic":…,"partition":…,"offset":…,"tstype":"create","ts":…,"headers":["name","value",…],"key":…,"payload":…}

`tstype` is `create` or `logappend`; it and `ts` are left out where the format of the record (v0) has no time, and
`headers` where there are none. Null keys, payloads and header values are null. What is no UTF-8 appears in base64, as
`key_base64`, `payload_base64` or `headers_base64`: there every value of the record's headers, never a name. A name that
is no UTF-8 shows its odd bytes as lone surrogates (U+DC80 to U+DCFF, Python's surrogateescape).

This module renders; `json_parsing` is the way back. Compiled by Cython; runs uncompiled with the same results.
"""

from __future__ import annotations

import json
from array import array

import cython

from fusefs.forms.json_parsing import parse_records
from storage.codec.batch import Buffer
from storage.codec.records import Columns, columns_of, encode_columns

if cython.compiled:
    from cython.cimports.storage.codec.memory import (
        copy,
        finished,
        int64s_of,
        new_octets,
        new_text,
        octets_of,
        text_octets,
        writable,
    )
else:
    from storage.codec.memory import (
        copy,
        finished,
        int64s_of,
        new_octets,
        new_text,
        octets_of,
        text_octets,
        writable,
    )

_CREATE = cython.declare(bytes, b',"tstype":"create","ts":')
_LOG_APPEND = cython.declare(bytes, b',"tstype":"logappend","ts":')
_HEADERS = cython.declare(bytes, b',"headers":[')
_HEADERS_BASE64 = cython.declare(bytes, b',"headers_base64":[')
_KEY = cython.declare(bytes, b',"key":')
_KEY_BASE64 = cython.declare(bytes, b',"key_base64":')
_PAYLOAD = cython.declare(bytes, b',"payload":')
_PAYLOAD_BASE64 = cython.declare(bytes, b',"payload_base64":')
_NULL = cython.declare(bytes, b"null")
_END = cython.declare(bytes, b"}\n")
_BASE64 = cython.declare(bytes, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_HEX = cython.declare(bytes, b"0123456789ABCDEF")

MIN_OFFSET = -(2**63)
MAX_OFFSET = 2**63 - 1


class JsonLines:
    """See `Form`."""

    suffix = ".json"

    def render(
        self, columns: Columns, *, topic: str, partition: int, start_offset: int, end_offset: int
    ) -> bytes:
        """One object a record."""
        lines: _Lines = _Lines(columns, topic, partition)
        text: object = new_text(sum(lines.measure(start_offset, end_offset)))
        lines.put(text_octets(text), start_offset, end_offset)
        return finished(text)

    def render_one(self, columns: Columns, index: int, *, topic: str, partition: int) -> bytes:
        """The line."""
        if not 0 <= index < len(columns):
            raise IndexError(index)
        lines: _Lines = _Lines(columns, topic, partition)
        lines.first = index
        lines.last = index + 1
        text: object = new_text(sum(lines.measure(MIN_OFFSET, MAX_OFFSET)))
        lines.put(text_octets(text), MIN_OFFSET, MAX_OFFSET)
        return finished(text)

    def measure(
        self, columns: Columns, *, topic: str, partition: int, start_offset: int, end_offset: int
    ) -> array[int]:
        """Everything is looked at as for rendering, but nothing written."""
        lines: _Lines = _Lines(columns, topic, partition)
        return lines.measure(start_offset, end_offset)

    def parse(self, text: Buffer, *, timestamp: int, max_batch_bytes: int) -> list[bytearray]:
        """See `json_parsing` for what a line may hold."""
        records = parse_records(text, timestamp)
        return encode_columns(columns_of(records), max_batch_bytes=max_batch_bytes, unit="line")


JSON = JsonLines()


@cython.final
@cython.cclass
class _Lines:
    """The lines of some columns: measured first, then written."""

    columns: Columns
    data: memoryview
    block: memoryview
    rows: memoryview
    head: bytes
    kinds: bytearray
    spans: list[memoryview[int]]
    first: cython.Py_ssize_t
    last: cython.Py_ssize_t
    count: cython.Py_ssize_t

    def __init__(self, columns: Columns, topic: str, partition: int) -> None:
        self.columns = columns
        self.data = columns.data
        self.block = columns.block
        self.rows = columns.batches.rows
        name = json.dumps(topic, ensure_ascii=False)
        self.head = f'{{"topic":{name},"partition":{partition},"offset":'.encode()
        self.count = len(columns)
        self.kinds = new_octets(self.count)
        self.spans = []
        self.first = 0
        self.last = self.count

    @cython.cfunc
    def measure(self, start_offset: cython.longlong, end_offset: cython.longlong) -> array[int]:
        """Bytes of each batch's lines; notes what must be shown in base64."""
        sizes = array("q")
        row: cython.p_longlong = int64s_of(self.rows)
        column: cython.p_longlong = int64s_of(self.block)
        index: cython.Py_ssize_t = 0
        batch: cython.Py_ssize_t
        for batch in range(len(self.rows) // 15):
            size: cython.Py_ssize_t = 0
            while index < row[batch * 15 + 14]:
                if self.first <= index < self.last and start_offset <= column[index] < end_offset:
                    size += self.line_size(index, _time_size(row, batch * 15, column[self.count + index]))
                index += 1
            sizes.append(size)
        return sizes

    @cython.cfunc
    def line_size(self, index: cython.Py_ssize_t, time_size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        source: cython.p_uchar = octets_of(self.data)
        column: cython.p_longlong = int64s_of(self.block)
        count: cython.Py_ssize_t = self.count
        kind: cython.int = 0
        size: cython.Py_ssize_t = len(self.head) + _integer_size(column[index]) + time_size
        if column[7 * count + index]:
            spans: memoryview = self.columns.header_spans(index)
            self.spans.append(spans)
            if _headers_are_text(source, int64s_of(spans), len(spans) // 4):
                size += len(_HEADERS) + _headers_size(source, int64s_of(spans), len(spans) // 4, False)
            else:
                kind = 4
                size += len(_HEADERS_BASE64) + _headers_size(source, int64s_of(spans), len(spans) // 4, True)
        part: cython.Py_ssize_t = _field_size(
            source, column[2 * count + index], column[3 * count + index], False
        )
        if part < 0:
            kind |= 1
            part = len(_KEY_BASE64) - len(_KEY) + _base64_size(column[3 * count + index])
        size += len(_KEY) + part
        part = _field_size(source, column[4 * count + index], column[5 * count + index], False)
        if part < 0:
            kind |= 2
            part = len(_PAYLOAD_BASE64) - len(_PAYLOAD) + _base64_size(column[5 * count + index])
        writable(self.kinds)[index] = kind
        return size + len(_PAYLOAD) + part + len(_END)

    @cython.cfunc
    def put(
        self, target: cython.p_uchar, start_offset: cython.longlong, end_offset: cython.longlong
    ) -> object:
        """Write what `measure` has measured, with the same bounds."""
        row: cython.p_longlong = int64s_of(self.rows)
        column: cython.p_longlong = int64s_of(self.block)
        at: cython.Py_ssize_t = 0
        index: cython.Py_ssize_t = 0
        batch: cython.Py_ssize_t
        with_headers: cython.Py_ssize_t = 0
        for batch in range(len(self.rows) // 15):
            while index < row[batch * 15 + 14]:
                if self.first <= index < self.last and start_offset <= column[index] < end_offset:
                    at = _put_text(target, at, self.head)
                    at = _put_integer(target, at, column[index])
                    at = _put_time(target, at, row, batch * 15, column[self.count + index])
                    if column[7 * self.count + index]:
                        at = self.put_headers(target, at, index, self.spans[with_headers])
                        with_headers += 1
                    at = self.put_fields(target, at, index)
                index += 1
        return None

    @cython.cfunc
    def put_headers(
        self, target: cython.p_uchar, at: cython.Py_ssize_t, index: cython.Py_ssize_t, spans: memoryview
    ) -> cython.Py_ssize_t:
        source: cython.p_uchar = octets_of(self.data)
        span: cython.p_longlong = int64s_of(spans)
        base64: cython.bint = writable(self.kinds)[index] & 4 != 0
        at = _put_text(target, at, _HEADERS_BASE64 if base64 else _HEADERS)
        header: cython.Py_ssize_t
        for header in range(len(spans) // 4):
            if header:
                target[at] = 44
                at += 1
            at = _put_string(target, at, source, span[4 * header], span[4 * header + 1])
            target[at] = 44
            at = _put_field(target, at + 1, source, span[4 * header + 2], span[4 * header + 3], base64)
        target[at] = 93
        return at + 1

    @cython.cfunc
    def put_fields(
        self, target: cython.p_uchar, at: cython.Py_ssize_t, index: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        source: cython.p_uchar = octets_of(self.data)
        column: cython.p_longlong = int64s_of(self.block)
        kind: cython.int = writable(self.kinds)[index]
        count: cython.Py_ssize_t = self.count
        at = _put_text(target, at, _KEY_BASE64 if kind & 1 else _KEY)
        at = _put_field(
            target, at, source, column[2 * count + index], column[3 * count + index], kind & 1 != 0
        )
        at = _put_text(target, at, _PAYLOAD_BASE64 if kind & 2 else _PAYLOAD)
        at = _put_field(
            target, at, source, column[4 * count + index], column[5 * count + index], kind & 2 != 0
        )
        return _put_text(target, at, _END)


@cython.cfunc
@cython.exceptval(check=False)
def _headers_are_text(
    source: cython.p_uchar, span: cython.p_longlong, headers: cython.Py_ssize_t
) -> cython.bint:
    """Whether every value is UTF-8 or null."""
    header: cython.Py_ssize_t
    for header in range(headers):
        if _field_size(source, span[4 * header + 2], span[4 * header + 3], False) < 0:
            return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _headers_size(
    source: cython.p_uchar, span: cython.p_longlong, headers: cython.Py_ssize_t, base64: cython.bint
) -> cython.Py_ssize_t:
    """Of names, values, the commas between them and the closing bracket: as many commas and brackets as parts."""
    size: cython.Py_ssize_t = 2 * headers
    header: cython.Py_ssize_t
    for header in range(headers):
        size += _field_size(source, span[4 * header], span[4 * header + 1], True)
        if base64 and span[4 * header + 3] >= 0:
            size += _base64_size(span[4 * header + 3])
        else:
            size += _field_size(source, span[4 * header + 2], span[4 * header + 3], False)
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _time_size(
    row: cython.p_longlong, header: cython.Py_ssize_t, timestamp: cython.longlong
) -> cython.Py_ssize_t:
    if row[header + 5] == 0:
        return 0
    return (len(_LOG_APPEND) if row[header + 7] & 8 else len(_CREATE)) + _integer_size(timestamp)


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
    if row[header + 5] == 0:
        return at
    at = _put_text(target, at, _LOG_APPEND if row[header + 7] & 8 else _CREATE)
    return _put_integer(target, at, timestamp)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _base64_size(length: cython.longlong) -> cython.Py_ssize_t:
    """With its quotes."""
    return (length + 2) // 3 * 4 + 2


@cython.cfunc
@cython.exceptval(check=False)
def _field_size(
    source: cython.p_uchar, start: cython.Py_ssize_t, length: cython.longlong, lenient: cython.bint
) -> cython.Py_ssize_t:
    """Bytes of a string with its quotes, or of `null`; -1 for what is no UTF-8, unless `lenient`."""
    if length < 0:
        return 4
    if _is_plain(source, start, length):
        return length + 2
    size: cython.Py_ssize_t = 2
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + length
    while at < end:
        if source[at] < 0x80:
            size += _escaped_size(source[at])
            at += 1
            continue
        sequence: cython.Py_ssize_t = _sequence_size(source, at, end)
        if sequence == 0 and not lenient:
            return -1
        size += sequence if sequence else 6
        at += sequence if sequence else 1
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _is_plain(source: cython.p_uchar, start: cython.Py_ssize_t, length: cython.longlong) -> cython.bint:
    """Whether all of it is ASCII that stands for itself in a JSON string."""
    odd: cython.int = 0
    index: cython.Py_ssize_t
    if cython.compiled:
        # One pointer and no early end: the C compiler makes vector code of it.
        field: cython.p_uchar = source + start
        for index in range(length):
            odd |= (field[index] < 32) | (field[index] >= 128) | (field[index] == 34) | (field[index] == 92)
    else:
        for index in range(start, start + length):
            odd |= not 32 <= source[index] < 128 or source[index] == 34 or source[index] == 92
    return odd == 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _letter_of(octet: cython.int) -> cython.int:
    """The letter that stands after a backslash for `octet`; 0 where there is none."""
    if octet == 34 or octet == 92:  # noqa: PLR1714 -- a tuple would be a Python object in the compiled loop
        return octet
    if octet == 10:
        return 110
    if octet == 13:
        return 114
    if octet == 9:
        return 116
    if octet == 12:
        return 102
    return 98 if octet == 8 else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _escaped_size(octet: cython.int) -> cython.int:
    if octet >= 32 and octet != 34 and octet != 92:  # noqa: PLR1714 -- see `_letter_of`
        return 1
    return 2 if _letter_of(octet) else 6


@cython.cfunc
@cython.exceptval(check=False)
def _sequence_size(
    source: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Bytes of the UTF-8 sequence (of two and more) at `at`; 0 where there is none (Unicode, table 3-7)."""
    lead: cython.int = source[at]
    size: cython.Py_ssize_t = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if lead < 0xC2 or lead > 0xF4 or end - at < size:
        return 0
    second: cython.int = source[at + 1]
    lowest: cython.int = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    highest: cython.int = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if second < lowest or second > highest:
        return 0
    index: cython.Py_ssize_t
    for index in range(2, size):
        if source[at + index] & 0xC0 != 0x80:
            return 0
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _put_field(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    length: cython.longlong,
    base64: cython.bint,
) -> cython.Py_ssize_t:
    if length < 0:
        return _put_text(target, at, _NULL)
    if base64:
        return _put_base64(target, at, source, start, length)
    return _put_string(target, at, source, start, length)


@cython.cfunc
@cython.exceptval(check=False)
def _put_string(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    length: cython.longlong,
) -> cython.Py_ssize_t:
    """In quotes; bytes that are no UTF-8 as lone surrogates (`lenient` has measured them)."""
    target[at] = 34
    at += 1
    if _is_plain(source, start, length):
        copy(target, at, source, start, length)
        at += length
    else:
        at = _put_escaped(target, at, source, start, start + length)
    target[at] = 34
    return at + 1


@cython.cfunc
@cython.exceptval(check=False)
def _put_escaped(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    while start < end:
        octet: cython.int = source[start]
        if octet >= 0x80:
            sequence: cython.Py_ssize_t = _sequence_size(source, start, end)
            if sequence:
                copy(target, at, source, start, sequence)
                at += sequence
                start += sequence
                continue
            at = _put_code_unit(target, at, 0xDC00 | octet)
        elif _escaped_size(octet) == 1:
            target[at] = octet
            at += 1
        elif _letter_of(octet):
            target[at] = 92
            target[at + 1] = _letter_of(octet)
            at += 2
        else:
            at = _put_code_unit(target, at, octet)
        start += 1
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _put_code_unit(target: cython.p_uchar, at: cython.Py_ssize_t, unit: cython.int) -> cython.Py_ssize_t:
    digits: cython.p_const_uchar = _HEX
    target[at] = 92
    target[at + 1] = 117
    index: cython.int
    for index in range(4):
        target[at + 2 + index] = digits[(unit >> (12 - 4 * index)) & 15]
    return at + 6


@cython.cfunc
@cython.exceptval(check=False)
def _put_base64(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    length: cython.longlong,
) -> cython.Py_ssize_t:
    """In quotes (RFC 4648 §4, padded)."""
    digits: cython.p_const_uchar = _BASE64
    target[at] = 34
    at += 1
    index: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + length
    while index < end:
        rest: cython.Py_ssize_t = end - index
        group: cython.int = source[index] << 16
        if rest > 1:
            group |= source[index + 1] << 8
        if rest > 2:
            group |= source[index + 2]
        target[at] = digits[group >> 18]
        target[at + 1] = digits[(group >> 12) & 63]
        target[at + 2] = digits[(group >> 6) & 63] if rest > 1 else 61
        target[at + 3] = digits[group & 63] if rest > 2 else 61
        at += 4
        index += 3
    target[at] = 34
    return at + 1


@cython.cfunc
@cython.exceptval(check=False)
def _integer_size(value: cython.longlong) -> cython.Py_ssize_t:
    """Decimal digits, and the sign."""
    size: cython.Py_ssize_t = 1 if value >= 0 else 2
    rest: cython.ulonglong = _magnitude(value)
    while rest >= 10:
        rest //= 10
        size += 1
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _put_integer(target: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    end: cython.Py_ssize_t = at + _integer_size(value)
    rest: cython.ulonglong = _magnitude(value)
    index: cython.Py_ssize_t = end - 1
    if value < 0:
        target[at] = 45
    while rest >= 10:
        target[index] = 48 + rest % 10
        rest //= 10
        index -= 1
    target[index] = 48 + rest
    return end


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _magnitude(value: cython.longlong) -> cython.ulonglong:
    if cython.compiled:
        unsigned: cython.ulonglong = cython.cast(cython.ulonglong, value)
        return 0 - unsigned if value < 0 else unsigned
    return abs(value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_text(target: cython.p_uchar, at: cython.Py_ssize_t, text: bytes) -> cython.Py_ssize_t:
    source: cython.p_uchar = text
    copy(target, at, source, 0, len(text))
    return at + len(text)
