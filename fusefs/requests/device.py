"""The kernel's device: reads requests, writes answers. Compiled by Cython; runs uncompiled with the same results."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from typing import Any

import cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy
    from cython.cimports.topicfs.fusefs.requests.device import begin_coroutine, read_device, write_device
    from cython.cimports.topicfs.storage.codec.binary import memory as raw

LARGE_ANSWER_BYTES = cython.declare(cython.Py_ssize_t, 2**15)
"""Smallest answer for which the interpreter's lock is released while the kernel copies it."""


@cython.cfunc
@cython.exceptval(-1000, check=True)
def receive(descriptor: cython.int, memory: cython.p_uchar, room: cython.Py_ssize_t) -> cython.long:
    """Read the next request without waiting; return its size, or a negative errno."""
    if cython.compiled:
        return read_device(descriptor, memory, room)
    try:
        return os.readv(descriptor, [memoryview(memory)[:room]])
    except OSError as error:
        return -(error.errno or 0)


@cython.cfunc
@cython.exceptval(-1000, check=True)
def answer(
    descriptor: cython.int, head: cython.p_uchar, head_size: cython.Py_ssize_t, body: Any
) -> cython.long:
    """Write an answer: a header, and the buffer `body` (or None); return its size, or a negative errno."""
    if cython.compiled:
        if body is None:
            return write_device(descriptor, head, head_size, cython.NULL, 0)
        view: memoryview = raw.flat_view(body)
        size: cython.Py_ssize_t = len(view)
        octets: cython.p_uchar = raw.octets_of(view)
        if size < LARGE_ANSWER_BYTES:
            return write_device(descriptor, head, head_size, octets, size)
        written: cython.long
        with cython.nogil:
            written = write_device(descriptor, head, head_size, octets, size)
        return written
    try:
        return os.writev(descriptor, [head[:head_size], b"" if body is None else body])
    except OSError as error:
        return -(error.errno or 0)


@cython.cfunc
def begin(coroutine: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
    """Run a coroutine until it first waits; return whether it ended, and its result or the object that it awaits."""
    if cython.compiled:
        ended: cython.int = 0
        result: object = begin_coroutine(coroutine, cython.address(ended))
        return ended != 0, result
    try:
        return False, coroutine.send(None)
    except StopIteration as end:
        return True, end.value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def number_at(memory: cython.p_uchar, at: cython.Py_ssize_t, size: cython.int) -> cython.ulonglong:
    """Return the unsigned number of `size` bytes at a position."""
    if cython.compiled:
        number: cython.ulonglong = 0
        memcpy(cython.address(number), memory + at, size)
        return number
    return int.from_bytes(memory[at : at + size], sys.byteorder)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_number(
    memory: cython.p_uchar, at: cython.Py_ssize_t, size: cython.int, number: cython.ulonglong
) -> cython.void:
    """Write an unsigned number of `size` bytes at a position."""
    if cython.compiled:
        memcpy(memory + at, cython.address(number), size)
    else:
        memory[at : at + size] = number.to_bytes(size, sys.byteorder)


@cython.cfunc
def octets_at(memory: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> bytes:
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, memory + at), size)
    return bytes(memory[at : at + size])
