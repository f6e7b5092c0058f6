"""Strings and numbers of JSON (RFC 8259). Each is measured before it is written.

Escapes the same characters as kcat's library: quote, backslash, the five control characters that have letter escapes,
and other control characters as four upper-case hex digits. Bytes that are not UTF-8 have no JSON string; `field_size`
returns -1 for them. Compiled by Cython; runs uncompiled with the same results.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import memory
else:
    from topicfs.storage.codec.binary import memory

_NULL = cython.declare(bytes, b"null")
_BASE64 = cython.declare(bytes, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_HEX = cython.declare(bytes, b"0123456789ABCDEF")


@cython.cfunc
@cython.exceptval(check=False)
def field_size(
    source: cython.p_uchar, start: cython.Py_ssize_t, length: cython.longlong, lenient: cython.bint
) -> cython.Py_ssize_t:
    """Return the size of a string with its quotes, or of `null`.

    If the bytes are not UTF-8, return -1, or with `lenient` the size of the string that `put_string` writes.
    """
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
        size += sequence or 6
        at += sequence or 1
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _is_plain(source: cython.p_uchar, start: cython.Py_ssize_t, length: cython.longlong) -> cython.bint:
    """Return whether the text is ASCII without characters to escape."""
    odd: cython.int = 0
    index: cython.Py_ssize_t
    if cython.compiled:
        # One pointer and no early exit, so that the C compiler can vectorize the loop.
        field: cython.p_uchar = source + start
        for index in range(length):
            odd |= (
                (field[index] < ord(" "))
                | (field[index] >= 128)
                | (field[index] == ord('"'))
                | (field[index] == ord("\\"))
            )
    else:
        for index in range(start, start + length):
            odd |= (
                not ord(" ") <= source[index] < 128 or source[index] == ord('"') or source[index] == ord("\\")
            )
    return odd == 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _letter_of(octet: cython.int) -> cython.int:
    """Return the letter that escapes `octet` after a backslash; 0 if `octet` has no such letter."""
    if octet == ord('"') or octet == ord("\\"):
        return octet
    if octet == ord("\n"):
        return ord("n")
    if octet == ord("\r"):
        return ord("r")
    if octet == ord("\t"):
        return ord("t")
    if octet == ord("\f"):
        return ord("f")
    return ord("b") if octet == ord("\b") else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _escaped_size(octet: cython.int) -> cython.int:
    if octet >= ord(" ") and octet != ord('"') and octet != ord("\\"):
        return 1
    return ord("") if _letter_of(octet) else 6


@cython.cfunc
@cython.exceptval(check=False)
def _sequence_size(
    source: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the size of the multibyte UTF-8 sequence at `at`; 0 if it is invalid (Unicode, table 3-7)."""
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
def put_field(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    length: cython.longlong,
    base64: cython.bint,
) -> cython.Py_ssize_t:
    if length < 0:
        return put_text(target, at, _NULL)
    if base64:
        return _put_base64(target, at, source, start, length)
    return put_string(target, at, source, start, length)


@cython.cfunc
@cython.exceptval(check=False)
def put_string(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    length: cython.longlong,
) -> cython.Py_ssize_t:
    """Write a string in quotes. Bytes that are not UTF-8 become lone surrogates.

    `field_size` with `lenient` returns the size of this string.
    """
    target[at] = ord('"')
    at += 1
    if _is_plain(source, start, length):
        memory.copy(target, at, source, start, length)
        at += length
    else:
        at = _put_escaped(target, at, source, start, start + length)
    target[at] = ord('"')
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
                memory.copy(target, at, source, start, sequence)
                at += sequence
                start += sequence
                continue
            at = _put_code_unit(target, at, 0xDC00 | octet)
        elif _escaped_size(octet) == 1:
            target[at] = octet
            at += 1
        elif _letter_of(octet):
            target[at] = ord("\\")
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
    target[at] = ord("\\")
    target[at + 1] = ord("u")
    index: cython.int
    for index in range(4):
        target[at + 2 + index] = digits[(unit >> (12 - 4 * index)) & 15]
    return at + 6


@cython.cfunc
@cython.exceptval(check=False)
def base64_size(length: cython.longlong) -> cython.Py_ssize_t:
    return (length + 2) // 3 * 4 + 2


@cython.cfunc
@cython.exceptval(check=False)
def _put_base64(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    length: cython.longlong,
) -> cython.Py_ssize_t:
    """Write a string in base64, in quotes (RFC 4648 §4, padded)."""
    digits: cython.p_const_uchar = _BASE64
    target[at] = ord('"')
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
        target[at + 2] = digits[(group >> 6) & 63] if rest > 1 else ord("=")
        target[at + 3] = digits[group & 63] if rest > 2 else ord("=")
        at += 4
        index += 3
    target[at] = ord('"')
    return at + 1


@cython.cfunc
@cython.exceptval(check=False)
def integer_size(value: cython.longlong) -> cython.Py_ssize_t:
    """Return the number of characters of a decimal integer: its digits and its sign."""
    size: cython.Py_ssize_t = 1 if value >= 0 else 2
    rest: cython.ulonglong = _magnitude(value)
    while rest >= 10:
        rest //= 10
        size += 1
    return size


@cython.cfunc
@cython.exceptval(check=False)
def put_integer(target: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    end: cython.Py_ssize_t = at + integer_size(value)
    rest: cython.ulonglong = _magnitude(value)
    index: cython.Py_ssize_t = end - 1
    if value < 0:
        target[at] = ord("-")
    while rest >= 10:
        target[index] = ord("0") + rest % 10
        rest //= 10
        index -= 1
    target[index] = ord("0") + rest
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
@cython.exceptval(check=False)
def put_text(target: cython.p_uchar, at: cython.Py_ssize_t, text: bytes) -> cython.Py_ssize_t:
    source: cython.p_uchar = text
    memory.copy(target, at, source, 0, len(text))
    return at + len(text)
