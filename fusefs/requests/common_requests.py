"""The common requests, answered where they are read.

    /dev/fuse ──► a common one? ── no ──────────────────────────────────────► pyfuse3, as if it had read it
                     │ yes
                     ▼
                  begin its handler ── it waits ──► the begun handler ──────► pyfuse3, whose task goes on with it
                     │ it ended, as nearly every one does
                     ▼
    /dev/fuse ◄── the answer, and on to the next request

So a request costs two system calls and what its handler takes: no task is switched to, no coroutine of pyfuse3's runs,
and the event loop has its turn (`turns`) as often as in the short loop. What the kernel copies is copied from where it
lies, while others may have the interpreter's lock.

This module is compiled by Cython, and runs uncompiled with the same results; in front of libfuse it stands compiled only.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import cython

from topicfs.fusefs.nodes.ownership import Ownership, shown_mode
from topicfs.fusefs.requests.begun_coroutine import BegunCoroutine

if cython.compiled:
    from cython.cimports.topicfs.fusefs.requests import device, wire
    from cython.cimports.topicfs.fusefs.requests.in_front import is_seen_first, take_place
    from cython.cimports.topicfs.fusefs.requests.request_counts import RequestCounts, now
    from cython.cimports.topicfs.storage.codec.binary import memory
else:
    from topicfs.fusefs.requests import device, wire
    from topicfs.fusefs.requests.request_counts import RequestCounts, now
    from topicfs.storage.codec.binary import memory

log = logging.getLogger("topicfs")

BLOCK = cython.declare(cython.longlong, 512)
"""Bytes; st_blocks counts in these."""
NANOSECONDS = cython.declare(cython.longlong, 1_000_000_000)


_COMES_AGAIN = (errno.EAGAIN, errno.EINTR, errno.ENOENT)


class LoopTurns(Protocol):
    """The turns of requests and of all else: see `fusefs.mounting.request_loop`."""

    def is_over(self, now: int) -> bool: ...


class Handlers(Protocol):
    """The handlers of the common requests; FileError is their only exception. See `fusefs.filesystem`."""

    def find_patiently(self, parent_id: int, name: bytes, pid: int) -> Coroutine[Any, Any, Any]: ...
    def forget(self, forgotten: Sequence[tuple[int, int]]) -> None: ...
    def getattr(self, node_id: int, pid: int) -> Coroutine[Any, Any, Any]: ...
    def open(self, node_id: int, flags: int, pid: int) -> Coroutine[Any, Any, Any]: ...
    def read(self, fh: int, position: int, size: int) -> Coroutine[Any, Any, Any]: ...
    def write(self, fh: int, data: bytes, position: int) -> Coroutine[Any, Any, Any]: ...
    def flush(self, fh: int) -> Coroutine[Any, Any, Any]: ...
    def release(self, fh: int) -> Coroutine[Any, Any, Any]: ...


@cython.final
@cython.cclass
class CommonRequests:
    """Reads requests from the device, and answers the common ones. Used by one thread."""

    _handlers: Any
    _turns: Any
    _begun: Any
    _counts: RequestCounts
    _uid: cython.uint
    _gid: cython.uint
    _umask: cython.uint
    _shown_modes: dict[int, int]
    _request: bytearray
    _answered: bytearray
    _descriptor: cython.int

    def __init__(
        self,
        handlers: Handlers,
        turns: LoopTurns,
        owner: Ownership,
        counts: RequestCounts | None = None,
    ) -> None:
        """Answer by `handlers`, in `turns` with others; all files belong to `owner`.

        `counts`: where what is answered here is counted.
        """
        self._handlers = handlers
        self._turns = turns
        self._begun = None
        self._counts = RequestCounts() if counts is None else counts
        self._uid, self._gid, self._umask = owner
        self._shown_modes = {}
        self._request = memory.new_octets(wire.LARGEST_REQUEST_SIZE)
        self._answered = bytearray(wire.ANSWER_HEADER_SIZE + wire.ENTRY_SIZE)
        self._descriptor = -1

    def take(self) -> Any:
        """Return the handler that was begun for the request that pyfuse3 has been handed, or None; who awaits it goes on with it."""
        begun, self._begun = self._begun, None
        return begun

    @property
    def in_use(self) -> bool:
        """True once it was asked to read a request."""
        return self._descriptor >= 0

    @property
    def request(self) -> bytearray:
        """The memory in which `read` leaves a request."""
        return self._request

    def read(self, descriptor: int) -> int:
        """Answer common requests until another one is read; return its size, or a negative errno.

        EINTR: nothing is there now, or it is the others' turn.
        """
        octets: cython.p_uchar = memory.writable(self._request)
        size: cython.long
        opcode: cython.uint
        began: cython.longlong
        ended: cython.longlong
        if descriptor != self._descriptor:
            # Nobody waits in a read: whether there is a request is for the event loop to see.
            os.set_blocking(descriptor, False)
            self._descriptor = descriptor
        if self._begun is not None:  # Nothing that libfuse takes for a request leaves one.
            log.error("a request was begun and never taken up")
            self.take().close()
        began = now()
        while True:
            size = device.receive(self._descriptor, octets, wire.LARGEST_REQUEST_SIZE)
            if size < 0:
                # ENOENT: the kernel took the request back while it was read.
                return -errno.EINTR if -size in _COMES_AGAIN else size
            if size < wire.REQUEST_HEADER_SIZE or not self._is_answered(octets, size):
                return size if self._begun is None else _without_data(octets, size)
            opcode = device.number_at(octets, 4, 4)
            ended = now()
            # One look at the clock a request: the next one begins where this one ended.
            self._counts.note(opcode, ended - began)
            began = ended
            if self._turns.is_over(ended):
                return -errno.EINTR

    @cython.cfunc
    def _is_answered(self, octets: cython.p_uchar, size: cython.long) -> cython.bint:
        """Answer a request; False if it is not common, or waits."""
        opcode: cython.uint = device.number_at(octets, 4, 4)
        try:
            if opcode in (wire.FORGET, wire.BATCH_FORGET):
                self._handlers.forget(_forgotten(opcode, octets, size))
                return True
            coroutine = self._handler_of_file(opcode, octets, size)
            if coroutine is None:
                coroutine = self._handler_of_node(opcode, octets, size)
            if coroutine is None:
                return False
            ended, result = device.begin(coroutine)
            if not ended:
                self._begun = BegunCoroutine(coroutine, result)
                return False
            self._answer(octets, opcode, result)
        except Exception as error:
            number: int = getattr(error, "number", 0)
            if not number:
                log.exception("request %d: unexpected", opcode)
            self._counts.note_error(opcode, number or errno.EIO)
            if opcode not in (wire.FORGET, wire.BATCH_FORGET):
                self._write(octets, -(number or errno.EIO), 0, None)
        return True

    @cython.cfunc
    def _handler_of_file(self, opcode: cython.uint, octets: cython.p_uchar, size: cython.long) -> Any:
        """Return the handler of what is asked of an open file, or None."""
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
        """Return the handler of what is asked of a node, or None."""
        node_id: cython.ulonglong = device.number_at(octets, 16, 8)
        pid: cython.uint = device.number_at(octets, 32, 4)
        if opcode == wire.LOOKUP:
            name = device.octets_at(octets, wire.REQUEST_HEADER_SIZE, size - wire.REQUEST_HEADER_SIZE - 1)
            return self._handlers.find_patiently(node_id, name, pid)
        if opcode == wire.OPEN:
            return self._handlers.open(node_id, device.number_at(octets, 40, 4), pid)
        if opcode == wire.GETATTR:
            return self._handlers.getattr(node_id, pid)
        return None

    @cython.cfunc
    def _answer(self, octets: cython.p_uchar, opcode: cython.uint, result: Any) -> object:
        """Answer with what a handler returned."""
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
        self._write(octets, 0, size, body)
        return None

    @cython.cfunc
    def _put_attributes(self, target: cython.p_uchar, at: cython.Py_ssize_t, attributes: Any) -> object:
        """Write a `struct fuse_attr` of the attributes of `fusefs.nodes.nodes`."""
        mode, size, mtime_ns, _timeout, ino, block_size = attributes
        size_bytes: cython.longlong = size
        time_ns: cython.longlong = mtime_ns
        number: cython.Py_ssize_t
        shown = self._shown_modes.get(mode)  # There are a handful, and every stat asks for one.
        if shown is None:
            shown = self._shown_modes[mode] = shown_mode(mode, self._umask)
        device.put_number(target, at, 8, ino)
        device.put_number(target, at + 8, 8, size_bytes)
        device.put_number(target, at + 16, 8, (size_bytes + BLOCK - 1) // BLOCK)
        for number in range(3):  # Of the last access, change of content, and change: the same.
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
    def _write(self, octets: cython.p_uchar, error: cython.int, size: cython.Py_ssize_t, body: Any) -> object:
        """Write the answer to a request: a negative errno, or `size` bytes of what `_answer` filled in, or a body."""
        target: cython.p_uchar = memory.writable(self._answered)
        head: cython.Py_ssize_t = wire.ANSWER_HEADER_SIZE + size
        written: cython.long
        device.put_number(target, 0, 4, head + (0 if body is None else len(body)))
        device.put_number(target, 4, 4, error & 0xFFFFFFFF)
        memory.copy(target, 8, octets, 8, 8)
        written = device.answer(self._descriptor, target, head, body)
        # ENOENT: nobody waits any more.
        if written < 0 and written != -errno.ENOENT:
            log.error("an answer was refused: %s", os.strerror(-written))
        return None


@cython.cfunc
def _without_data(octets: cython.p_uchar, size: cython.long) -> cython.long:
    """Cut the bytes off a write whose handler was begun, which has them: pyfuse3 would copy them once more. Return the size left."""
    if device.number_at(octets, 4, 4) == wire.WRITE:
        size = wire.WRITE_HEADER_SIZE
        device.put_number(octets, 0, 4, size)
        device.put_number(octets, 56, 4, 0)
    return size


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
    """Write whole seconds at one place, and the nanoseconds beside them at another."""
    whole: cython.ulonglong = int(seconds)
    device.put_number(target, at, 8, whole)
    device.put_number(target, part_at, 4, int((seconds - whole) * NANOSECONDS))


def may_stand_in_front() -> bool:
    """Return whether `stand_in_front` has an effect, for a pyfuse3 that is not in use yet."""
    if cython.compiled:
        return bool(is_seen_first())
    return False


def stand_in_front(requests: CommonRequests | None) -> None:
    """Have `requests` read what pyfuse3 would read through libfuse; None: libfuse again."""
    global _IN_FRONT  # noqa: PLW0603 - there is one session in a process
    _IN_FRONT = requests
    if cython.compiled:
        if requests is None:
            take_place(cython.NULL, cython.NULL, 0)
        else:
            take_place(_read_in_front, memory.writable(requests.request), wire.LARGEST_REQUEST_SIZE)


_IN_FRONT: Any = None


@cython.cfunc
@cython.exceptval(check=False)
def _read_in_front(descriptor: cython.int) -> cython.long:
    try:
        requests: CommonRequests = _IN_FRONT
        return requests.read(descriptor)
    except BaseException:
        # libfuse knows no exceptions.
        log.exception("reading a request: unexpected")
        return -errno.EINTR
