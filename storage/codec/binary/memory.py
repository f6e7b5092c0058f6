"""Raw memory for the compiled modules: pointers to the bytes of buffers, and new buffers to write into.

Only in this module do compiled code and plain sources differ: compiled functions return C pointers, uncompiled
functions return the objects themselves, which are indexed in the same way. A pointer is valid as long as its object
is held and not resized. A view pins its buffer, so that nobody can resize the buffer. Nothing here checks bounds.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

from topicfs.storage.codec.binary.crc import crc32c

if cython.compiled:
    from cython.cimports.cpython.array import clone
    from cython.cimports.cpython.buffer import PyBUF_READ
    from cython.cimports.cpython.bytearray import (
        PyByteArray_AS_STRING,
        PyByteArray_FromStringAndSize,
        PyByteArray_Resize,
    )
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory, PyMemoryView_GET_BUFFER
    from cython.cimports.libc.string import memchr, memcpy
    from cython.cimports.topicfs.storage.codec.binary.short_crc import has_short_crc32c, short_crc32c
    from cython.cimports.topicfs.storage.codec.binary.vectors import release_upper_halves

_INT64 = array("q")
_SHORT = cython.declare(cython.Py_ssize_t, has_short_crc32c() * 1024 if cython.compiled else 0)
"""Up to this size, the processor's instruction computes a checksum directly; for more bytes the library is faster."""


@cython.cfunc
def flat_view(data: Any) -> memoryview:
    """Return a view of unsigned bytes over any buffer; while it is held, pointers into the buffer stay valid."""
    view: memoryview = memoryview(data)
    if type(data) is not bytes and (view.format != "B" or not view.c_contiguous):
        view = view.cast("B")
    return view


@cython.cfunc
def part_of(view: memoryview, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> memoryview:
    """Return a view of [start, end), valid while `view` is held; for a single call, this is cheaper than a slice."""
    if cython.compiled:
        octets: cython.p_char = cython.cast(cython.p_char, PyMemoryView_GET_BUFFER(view).buf)
        return PyMemoryView_FromMemory(octets + start, end - start, PyBUF_READ)
    return view[start:end]


@cython.cfunc
def checksum_of(view: memoryview, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled and end - start <= _SHORT:
        return short_crc32c(octets_of(view) + start, end - start)
    return crc32c(part_of(view, start, end))


@cython.cfunc
def octets_of(view: memoryview) -> cython.p_uchar:
    """Return a pointer to the bytes of a flat view."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)
    return view


@cython.cfunc
def int64s_of(view: memoryview) -> cython.p_longlong:
    """Return a pointer to the integers of a flat view of format `q`."""
    if cython.compiled:
        return cython.cast(cython.p_longlong, PyMemoryView_GET_BUFFER(view).buf)
    return view


@cython.cfunc
def writable(octets: bytearray) -> cython.p_uchar:
    """Return a pointer to the bytes of `octets`, valid until it is resized."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(octets))
    return octets


@cython.cfunc
def new_int64s(count: cython.Py_ssize_t) -> memoryview:
    """Return space for `count` integers, uninitialized in compiled code."""
    if cython.compiled:
        return memoryview(clone(_INT64, count, zero=False))
    return memoryview(array("q", bytes(8 * count)))


@cython.cfunc
def new_octets(size: cython.Py_ssize_t) -> bytearray:
    """Return space for `size` bytes, uninitialized in compiled code."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size)
    return bytearray(size)


@cython.cfunc
def resize(octets: bytearray, size: cython.Py_ssize_t) -> object:
    """Change the size of `octets` in place; pointers to it become invalid. Compiled code does not clear new bytes."""
    if cython.compiled:
        PyByteArray_Resize(octets, size)
    elif size > len(octets):
        octets.extend(bytes(size - len(octets)))
    else:
        del octets[size:]
    return None


@cython.cfunc
def new_text(size: cython.Py_ssize_t) -> Any:
    """Return space for `size` bytes that will become a `bytes` object: see `text_octets` and `finished`."""
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.NULL, size)
    return bytearray(size)


@cython.cfunc
def text_octets(text: Any) -> cython.p_uchar:
    """Return a pointer to the bytes of an unfinished text."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyBytes_AS_STRING(text))
    return text


@cython.cfunc
def finished(text: Any) -> bytes:
    """Return the completely written text as `bytes`, which must not be written any more."""
    if cython.compiled:
        whole: bytes = text
        return whole
    return bytes(text)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def copy(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.void:
    """Copy `size` bytes from `source[start:]` to `target[at:]`; the two ranges must not overlap."""
    if cython.compiled:
        memcpy(target + at, source + start, size)
    else:
        target[at : at + size] = source[start : start + size]


@cython.cfunc
@cython.exceptval(check=False)
def position_of(
    octet: cython.int, source: cython.p_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the position of the first byte in [start, end) that equals `octet`; `end` if there is none."""
    if cython.compiled:
        found: cython.p_uchar = cython.cast(cython.p_uchar, memchr(source + start, octet, end - start))
        return end if found == cython.NULL else found - source
    while start < end and source[start] != octet:
        start += 1
    return start


def release_vectors() -> None:
    """Clear the upper halves of the wide vector registers (VZEROUPPER) after a library that leaves them in use."""
    if cython.compiled:
        release_upper_halves()
