"""Answers the common requests where they are read. `fusefs.requests.loop` has the picture.

A request costs two system calls and its handler. The handler starts without its own task. Nearly every handler ends
without waiting, so its answer is written immediately. The kernel copies data directly from and to the process's
buffers, while other threads may hold the interpreter's lock.

Compiled by Cython; runs uncompiled with the same results.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any

import cython

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.nodes.ownership import Ownership, shown_mode
from topicfs.fusefs.requests.begun_coroutine import BegunCoroutine

if cython.compiled:
    from cython.cimports.topicfs.fusefs.requests import device, wire
    from cython.cimports.topicfs.fusefs.requests.request_counts import RequestCounts, now
    from cython.cimports.topicfs.storage.codec.binary import memory
else:
    from topicfs.fusefs.requests import device, wire
    from topicfs.fusefs.requests.request_counts import RequestCounts, now
    from topicfs.storage.codec.binary import memory

_LOGGER = logging.getLogger("topicfs")

NANOSECONDS = cython.declare(cython.longlong, 1_000_000_000)

REQUESTS_IN_A_ROW = cython.declare(cython.int, 64)
"""Requests served before the event loop runs. A turn of the event loop costs about as much as half a request."""
NANOSECONDS_IN_A_ROW = cython.declare(cython.longlong, 1_000_000)
"""Time after which the event loop runs, even if fewer requests were served. A few large reads take about as long."""

_COMES_AGAIN = (errno.EAGAIN, errno.EINTR)
_FOLLOW = cython.declare(cython.uint, 63)
"""`request_counts.FOLLOW`."""

Waiting = tuple[int, int, int, int, BegunCoroutine[Any]]
"""A request whose handler waits: opcode, kind for the counts, ID, start time, and handler."""


@cython.final
@cython.cclass
class CommonRequests:
    """Reads requests from the device, and answers the common ones. Not thread-safe."""

    _device: cython.int
    _handlers: Any
    _relay: Any
    _counts: RequestCounts
    _uid: cython.uint
    _gid: cython.uint
    _umask: cython.uint
    _shown_modes: dict[int, int]
    _request: bytearray
    _answered: bytearray

    def __init__(
        self,
        device: int,
        handlers: Any,
        relay: Callable[[bytes], Coroutine[Any, Any, None]],
        owner: Ownership,
        counts: RequestCounts,
    ) -> None:
        """Answer common requests with `handlers`, which raise only FileError, and all others with `relay`.

        `owner` owns all files.
        """
        self._device = device
        self._handlers = handlers
        self._relay = relay
        self._counts = counts
        self._uid, self._gid, self._umask = owner
        self._shown_modes = {}
        self._request = memory.new_octets(wire.LARGEST_REQUEST_SIZE)
        self._answered = bytearray(wire.ANSWER_HEADER_SIZE + wire.ENTRY_SIZE)

    def serve(self) -> Any:
        """Serve requests until a handler waits, no request is left, or the event loop must run.

        Return the `Waiting` request that this task must finish with `go_on`; None if none waits. Raises OSError.
        """
        octets: cython.p_uchar = memory.writable(self._request)
        size: cython.long
        opcode: cython.uint
        _count: cython.int
        began: cython.longlong = now()
        ended: cython.longlong
        until: cython.longlong = began + NANOSECONDS_IN_A_ROW
        for _count in range(REQUESTS_IN_A_ROW):
            size = device.receive(self._device, octets, wire.LARGEST_REQUEST_SIZE)
            if size < 0:
                if -size == errno.ENOENT:  # The kernel canceled the request while it was read.
                    continue
                if -size in _COMES_AGAIN:
                    return None
                raise OSError(-size, os.strerror(-size))
            opcode = device.number_at(octets, 4, 4)
            waiting = self._begin(opcode, octets, size, began)
            if waiting is not None:
                return waiting
            if not _is_common(opcode):
                return None  # pyfuse3 runs now.
            ended = now()
            self._counts.note(opcode, ended - began)
            if ended >= until:
                return None
            began = ended  # One clock reading per request: the next request starts where this one ended.
        return None

    async def go_on(self, waiting: Waiting) -> None:
        """Wait for the handler of a request, and answer it."""
        opcode, kind, number, began, handler = waiting
        try:
            self._answer(opcode, number, await handler)
        except Exception as error:  # noqa: BLE001 - the program gets it
            self._refuse(opcode, kind, number, error)
        if _is_common(opcode):
            self._counts.note(kind, now() - began)

    @cython.cfunc
    def _begin(
        self, opcode: cython.uint, octets: cython.p_uchar, size: cython.long, began: cython.longlong
    ) -> Any:
        """Start the handler of a request. If the handler ends, answer; if it waits, return the waiting request."""
        number: cython.ulonglong = device.number_at(octets, 8, 8)
        try:
            if opcode in (wire.FORGET, wire.BATCH_FORGET):
                self._handlers.forget(_forgotten(opcode, octets, size))
                return None
            if opcode == wire.OPENDIR:
                pid = device.number_at(octets, 32, 4)
                self._answer(opcode, number, self._handlers.opendir(device.number_at(octets, 16, 8), pid))
                return None
            if opcode == wire.RELEASEDIR:
                self._answer(opcode, number, self._handlers.releasedir(device.number_at(octets, 40, 8)))
                return None
            coroutine = self._handler_of_file(opcode, octets, size)
            if coroutine is None:
                coroutine = self._handler_of_node(opcode, octets, size)
            ended, result = device.begin(coroutine)
            if ended:
                self._answer(opcode, number, result)
                return None
            kind: cython.uint = opcode
            if opcode == wire.READ and self._handlers.follows(device.number_at(octets, 40, 8)):
                kind = _FOLLOW
            return opcode, kind, number, began, BegunCoroutine(coroutine, result)
        except Exception as error:  # noqa: BLE001 - the program gets it
            self._refuse(opcode, opcode, number, error)
        return None

    @cython.cfunc
    def _handler_of_file(self, opcode: cython.uint, octets: cython.p_uchar, size: cython.long) -> Any:
        """Return the handler of a request about an open file; None if `opcode` is another kind of request."""
        fh: cython.ulonglong = device.number_at(octets, 40, 8) if size >= 48 else 0
        if opcode == wire.WRITE:
            data = device.octets_at(octets, wire.WRITE_HEADER_SIZE, size - wire.WRITE_HEADER_SIZE)
            return self._handlers.write(fh, data, device.number_at(octets, 48, 8))
        if opcode == wire.READ:
            return self._handlers.read(fh, device.number_at(octets, 48, 8), device.number_at(octets, 56, 4))
        if opcode == wire.FLUSH:
            return self._handlers.flush(fh)
        if opcode == wire.RELEASE:
            return self._handlers.release(fh)
        return None

    @cython.cfunc
    def _handler_of_node(self, opcode: cython.uint, octets: cython.p_uchar, size: cython.long) -> Any:
        """Return the handler of a request about a node, or of an uncommon request."""
        node_id: cython.ulonglong = device.number_at(octets, 16, 8)
        pid: cython.uint = device.number_at(octets, 32, 4)
        if opcode == wire.LOOKUP:
            name = device.octets_at(octets, wire.REQUEST_HEADER_SIZE, size - wire.REQUEST_HEADER_SIZE - 1)
            return self._handlers.find_or_offload(node_id, name, pid)
        if opcode == wire.OPEN:
            return self._handlers.open(node_id, device.number_at(octets, 40, 4), pid)
        if opcode == wire.GETATTR:
            return self._handlers.getattr(node_id, pid)
        return self._relay(device.octets_at(octets, 0, size))

    @cython.cfunc
    def _answer(self, opcode: cython.uint, number: cython.ulonglong, result: Any) -> object:
        """Answer a common request with its handler's result."""
        target: cython.p_uchar = memory.writable(self._answered)
        at: cython.Py_ssize_t = wire.ANSWER_HEADER_SIZE
        size: cython.Py_ssize_t = 0
        body: object = None
        if opcode == wire.READ:
            body = result
            self._counts.bytes_read += len(result)
        elif opcode == wire.WRITE:
            size = wire.WRITTEN_SIZE
            self._counts.bytes_written += result
            device.put_number(target, at, 8, result)
        elif opcode == wire.OPEN:
            size = wire.OPENED_SIZE
            fh, handle = result
            device.put_number(target, at, 8, fh)
            device.put_number(target, at + 8, 8, _open_flags(handle))
        elif opcode == wire.OPENDIR:
            size = wire.OPENED_SIZE
            device.put_number(target, at, 8, result)
            device.put_number(target, at + 8, 8, 0)
        elif opcode == wire.LOOKUP:
            size = wire.ENTRY_SIZE
            node, attributes = result
            device.put_number(target, at, 8, node.node_id)
            device.put_number(target, at + 8, 8, 0)
            _put_time(target, at + 16, at + 32, node.entry_timeout)
            _put_time(target, at + 24, at + 36, attributes.timeout)
            self._put_attributes(target, at + wire.ENTRY_HEADER_SIZE, attributes)
        elif opcode == wire.GETATTR:
            size = wire.ATTRIBUTES_ANSWER_SIZE
            _put_time(target, at, at + 8, result.timeout)
            device.put_number(target, at + 12, 4, 0)
            self._put_attributes(target, at + wire.ATTRIBUTES_HEADER_SIZE, result)
        elif not _is_common(opcode):
            return None
        self._write(number, 0, size, body)
        return None

    @cython.cfunc
    def _refuse(self, opcode: cython.uint, kind: cython.uint, number: cython.ulonglong, error: Any) -> object:
        """Answer with the errno of an error. An error that is not a FileError is logged and becomes EIO."""
        if not isinstance(error, FileError):
            _LOGGER.error("request %d: unexpected", opcode, exc_info=error)
            error = FileError(Refusal.FAILED)
        self._counts.note_error(kind, error.number)
        if opcode not in (wire.FORGET, wire.BATCH_FORGET):
            self._write(number, -error.number, 0, None)
        return None

    @cython.cfunc
    def _put_attributes(self, target: cython.p_uchar, at: cython.Py_ssize_t, attributes: Any) -> object:
        """Write a `struct fuse_attr` from the attributes in `fusefs.nodes.nodes`."""
        mode, size, mtime_ns, _timeout, ino, block_size = attributes
        size_bytes: cython.longlong = size
        time_ns: cython.longlong = mtime_ns
        number: cython.Py_ssize_t
        shown = self._shown_modes.get(mode)  # Cached: there are few modes, and every stat needs one.
        if shown is None:
            shown = self._shown_modes[mode] = shown_mode(mode, self._umask)
        device.put_number(target, at, 8, ino)
        device.put_number(target, at + 8, 8, size_bytes)
        device.put_number(target, at + 16, 8, (size_bytes + wire.STAT_BLOCK - 1) // wire.STAT_BLOCK)
        for number in range(3):  # atime, mtime and ctime are the same.
            device.put_number(target, at + 24 + 8 * number, 8, time_ns // NANOSECONDS)
            device.put_number(target, at + 48 + 4 * number, 4, time_ns % NANOSECONDS)
        device.put_number(target, at + 60, 4, shown)
        device.put_number(target, at + 64, 4, 1)
        device.put_number(target, at + 68, 4, self._uid)
        device.put_number(target, at + 72, 4, self._gid)
        device.put_number(target, at + 76, 4, 0)
        device.put_number(target, at + 80, 4, block_size)
        device.put_number(target, at + 84, 4, 0)
        return None

    @cython.cfunc
    def _write(
        self, number: cython.ulonglong, error: cython.int, size: cython.Py_ssize_t, body: Any
    ) -> object:
        """Write the answer: a negative errno (`error`), the `size` bytes that `_answer` filled in, or `body`."""
        target: cython.p_uchar = memory.writable(self._answered)
        head: cython.Py_ssize_t = wire.ANSWER_HEADER_SIZE + size
        written: cython.long
        device.put_number(target, 0, 4, head + (0 if body is None else len(body)))
        device.put_number(target, 4, 4, error & 0xFFFFFFFF)
        device.put_number(target, 8, 8, number)
        written = device.answer(self._device, target, head, body)
        # ENOENT means that the program no longer waits.
        if written < 0 and written != -errno.ENOENT:
            _LOGGER.error("an answer was refused: %s", os.strerror(-written))
        return None


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_common(opcode: cython.uint) -> cython.bint:
    return opcode in (
        wire.LOOKUP,
        wire.FORGET,
        wire.GETATTR,
        wire.OPEN,
        wire.READ,
        wire.WRITE,
        wire.RELEASE,
        wire.FLUSH,
        wire.OPENDIR,
        wire.RELEASEDIR,
        wire.BATCH_FORGET,
    )


@cython.cfunc
def _forgotten(opcode: cython.uint, octets: cython.p_uchar, size: cython.long) -> list[tuple[int, int]]:
    if opcode == wire.FORGET:
        return [(device.number_at(octets, 16, 8), device.number_at(octets, 40, 8))]
    count: cython.Py_ssize_t = min(device.number_at(octets, 40, 4), (size - 48) // 16)
    return [
        (device.number_at(octets, 48 + 16 * index, 8), device.number_at(octets, 56 + 16 * index, 8))
        for index in range(count)
    ]


@cython.cfunc
def _open_flags(handle: Any) -> cython.uint:
    flags: cython.uint = 0
    if handle.direct_io:
        flags |= wire.DIRECT_IO
    if handle.keep_cache:
        flags |= wire.KEEP_CACHE
    if not handle.flushes:
        flags |= wire.NO_FLUSH
    return flags


@cython.cfunc
@cython.exceptval(check=False)
def _put_time(
    target: cython.p_uchar, at: cython.Py_ssize_t, part_at: cython.Py_ssize_t, seconds: cython.double
) -> cython.void:
    """Write the whole seconds at `at`, and the nanoseconds at `part_at`."""
    whole: cython.ulonglong = int(seconds)
    device.put_number(target, at, 8, whole)
    device.put_number(target, part_at, 4, int((seconds - whole) * NANOSECONDS))
