"""The request loop: from the kernel's requests to their answers.

    kernel ─► /dev/fuse ─► a common request? ── yes ─► its handler is begun ── it ends ──────────► /dev/fuse ─► kernel
                                │ no                            │ it waits                           ▲   ▲
                                ▼                               ▼                                    │   │
                        a pair of sockets               another task reads on,                       │   │
                           │        ▲                   this one goes on with it, and answers ───────┘   │
                           ▼        │ answers                                                            │
                     libfuse and pyfuse3                ─────────────────────────────────────────────────┘

libfuse reads one end of the pair as if it were /dev/fuse. Its mountpoint is `/dev/fd/N`, so that it mounts nothing itself. The
pair keeps the bounds of messages, as the device does. pyfuse3 negotiates with the kernel (INIT), answers the requests that are
not common, and notifies the kernel that a polled file is ready.

* The task that begins a handler also finishes it if the handler waits, because trio's locks and events belong to a task.
* Neither end blocks. `return_answers` empties the pair before pyfuse3 sends another answer or notification. If the pair is
  full, a request waits until pyfuse3 has read from it.
* A message must fit into the pair. By default the socket of an ordinary user holds 208 KiB. A write is never relayed, and the
  kernel gets a directory in answers of at most 64 KiB; an extended attribute is not larger.
* An INTERRUPT is dropped, because no handler acts on it. `fusefs.following.waiting_reads` finds the programs that shall end.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio

from topicfs.fusefs.nodes.ownership import Ownership
from topicfs.fusefs.requests import wire
from topicfs.fusefs.requests.common_requests import CommonRequests
from topicfs.fusefs.requests.request_counts import RequestCounts
from topicfs.fusefs.threads.turn import FifoLock

_LOGGER = logging.getLogger("topicfs")

MAX_IDLE_READERS = 64
"""Maximum number of idle tasks. Without idle tasks, each of many followers would need a new task for every line."""
LARGEST_LISTING = 2**16
"""Maximum size of the directory entries in one answer."""
LARGEST_MESSAGE = 2**17
"""Maximum size of a message. Each end of the pair has room for a message of this size."""
VERSION_WITHOUT_SPLICE = 13
"""The minor protocol version reported to libfuse. With a newer one, libfuse would use splice(2), which is slower."""


class RequestLoop:
    """Reads the kernel's requests. Not thread-safe."""

    def __init__(self, device: int, handlers: Any, owner: Ownership, counts: RequestCounts) -> None:
        os.set_blocking(device, False)
        self._device = device
        self._requests = CommonRequests(device, handlers, self._relay, owner, counts)
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._ours, self._theirs):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST_MESSAGE)
        self._relaying = FifoLock()
        self._idle = trio.lowlevel.ParkingLot()
        self._ended = False
        self._init = b""

    def mountpoint_of_library(self) -> str:
        """Return the mountpoint for libfuse: the path of a descriptor, which libfuse closes at its end."""
        return f"/dev/fd/{self._theirs.detach()}"

    async def run(self, library: Callable[[], Awaitable[None]], at_end: Callable[[], None]) -> None:
        """Serve until an unmount or a call of `end`. `library` is pyfuse3's main loop; `at_end` ends it and all waits."""
        self._at_end = at_end
        with self._ours:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._return_answers)
                async with trio.open_nursery() as self._tasks:
                    self._tasks.start_soon(self._run_library, library)
                    self._tasks.start_soon(self._serve)
                self.return_answers()
                nursery.cancel_scope.cancel()

    def end(self) -> None:
        """Stop reading requests. Requests that were already read are still answered."""
        if not self._ended:
            self._ended = True
            trio.lowlevel.notify_closing(self._device)
            self._idle.unpark_all()
            self._at_end()

    def return_answers(self) -> None:
        """Forward all of pyfuse3's answers to the kernel."""
        with suppress(BlockingIOError):
            while answer := self._ours.recv(LARGEST_MESSAGE):
                if answer[8:16] == self._init:
                    answer = _answer_of_today(answer)
                try:
                    os.write(self._device, answer)
                except FileNotFoundError:
                    pass  # The program no longer waits.
                except OSError as error:
                    _LOGGER.warning("the kernel refused an answer: %s", error)

    async def _run_library(self, library: Callable[[], Awaitable[None]]) -> None:
        await library()
        self.end()

    async def _return_answers(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._ours)
            self.return_answers()

    async def _serve(self) -> None:
        """Read requests until one must wait. Finish that request, and then wait until another reader is needed."""
        while not self._ended:
            try:
                waiting = self._requests.serve()
                if waiting is None:
                    await trio.lowlevel.wait_readable(self._device)
                    continue
            except trio.ClosedResourceError:
                return
            except OSError as error:
                if error.errno != errno.ENODEV:  # ENODEV: the filesystem was unmounted.
                    raise
                self.end()
                return
            if self._idle:
                self._idle.unpark()
            else:
                self._tasks.start_soon(self._serve)
            await self._requests.go_on(waiting)
            if len(self._idle) >= MAX_IDLE_READERS:
                return
            if not self._ended:
                await self._idle.park()

    async def _relay(self, request: bytes) -> None:
        (opcode,) = struct.unpack_from("=I", request, 4)
        if opcode == wire.INTERRUPT:
            return
        if opcode == wire.INIT:
            self._init = request[8:16]
            (minor,) = struct.unpack_from("=I", request, 44)
            request = _replaced(request, 44, min(minor, VERSION_WITHOUT_SPLICE))
        elif opcode in (wire.READDIR, wire.READDIRPLUS):
            (size,) = struct.unpack_from("=I", request, 56)
            request = _replaced(request, 56, min(size, LARGEST_LISTING))
        async with self._relaying:
            while True:
                with suppress(BlockingIOError):
                    self._ours.send(request)
                    return
                await trio.lowlevel.wait_writable(self._ours)


def _replaced(message: bytes, at: int, number: int) -> bytes:
    return message[:at] + struct.pack("=I", number) + message[at + 4 :]


def _answer_of_today(answer: bytes) -> bytes:
    """Return libfuse's answer to INIT, with the fields that newer kernels expect after `max_write`.

    libfuse writes these fields only for a newer protocol version.
    """
    if len(answer) != 40:
        return answer
    (largest_write,) = struct.unpack_from("=I", answer, 36)
    largest_write = min(largest_write, wire.LARGEST_WRITE)
    answer = _replaced(_replaced(answer, 36, largest_write), 0, 80)
    return answer + struct.pack("=IH34x", 1, largest_write // mmap.PAGESIZE)
