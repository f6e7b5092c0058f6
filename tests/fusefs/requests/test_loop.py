"""The request loop, with sockets in place of the kernel and of libfuse (the "library")."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pyfuse3
import pytest
import trio
import trio.testing

from tests.doubles.waiting import TIMEOUT_SECONDS
from tests.fusefs.requests.test_common_requests import FH, OWNER, READ_REQUEST, Handlers, Kernel
from topicfs.fusefs.operations import PollNotification
from topicfs.fusefs.requests import wire
from topicfs.fusefs.requests.loop import LARGEST_LISTING, MAX_IDLE_READERS, RequestLoop
from topicfs.fusefs.requests.request_counts import RequestCounts

MKDIR = 9
POLL_NOTIFICATION = struct.pack("=IiQQ", 24, 1, 0, 7)


class Served:
    """A request loop, and the ends of its sockets that the kernel and the library use."""

    def __init__(self, device: socket.socket, kernel: Kernel) -> None:
        self.kernel = kernel
        self.handlers = Handlers()
        self.loop = RequestLoop(device.fileno(), self.handlers, OWNER, RequestCounts())
        self.library = socket.socket(fileno=int(self.loop.mountpoint_of_library().removeprefix("/dev/fd/")))
        self.ended = trio.Event()
        self.ends = 0

    def at_end(self) -> None:
        self.ends += 1
        self.ended.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await self.loop.run(self.ended.wait, self.at_end)

    async def asked(self) -> bytes:
        """Return the next request that is forwarded to the library."""
        await trio.lowlevel.wait_readable(self.library)
        return self.library.recv(2**21)

    async def answer(self) -> tuple[int, int, bytes]:
        await trio.lowlevel.wait_readable(self.kernel.end)
        return self.kernel.answer()


@pytest.fixture
def served() -> Iterator[Served]:
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernels:
        kernels.setblocking(False)
        served = Served(ours, Kernel(kernels))
        yield served
        served.library.close()


async def serving(served: Served, use: Callable[[], Awaitable[None]]) -> None:
    with trio.fail_after(TIMEOUT_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(served.run)
            await use()
            served.loop.end()


async def test_an_uncommon_request_is_forwarded_to_the_library(served: Served):
    """An uncommon request is forwarded unchanged to the library; the library's message is forwarded to the kernel."""

    async def use() -> None:
        number = served.kernel.asks(MKDIR, b"orders\0")
        request = await served.asked()
        assert request[8:16] == struct.pack("=Q", number)
        assert request.endswith(b"orders\0")
        served.library.send(struct.pack("=IiQ", 20, 0, number) + b"done")
        assert (0, number, b"done") == await served.answer()
        served.library.send(POLL_NOTIFICATION)
        assert (-1, 0, struct.pack("=Q", 7)) == await served.answer()

    await serving(served, use)


async def test_a_task_reads_while_others_wait(served: Served, monkeypatch: pytest.MonkeyPatch):
    """While any number of requests wait, the next request is served, and at the end all requests are answered."""
    count = 2 * MAX_IDLE_READERS
    opened = trio.Event()

    async def wait() -> bytes:
        await opened.wait()
        return b"late"

    async def use() -> None:
        monkeypatch.setattr(served.handlers, "read", lambda *_: wait())
        late = {served.kernel.asks(wire.READ, READ_REQUEST) for _ in range(count)}
        await trio.testing.wait_all_tasks_blocked()
        number = served.kernel.asks(wire.FLUSH, struct.pack("=QIIQ", FH, 0, 0, 0))
        assert (0, number, b"") == await served.answer()
        opened.set()
        assert late == {(await served.answer())[1] for _ in range(count)}

    await serving(served, use)
    assert [("flush", FH)] == served.handlers.asked


async def test_a_full_pair_delays_requests_and_loses_none(served: Served):
    """While the library's socket is full, uncommon requests wait and none is lost. Common requests are served."""
    count = 3000

    async def use() -> None:
        asked = []
        for _ in range(count):
            while True:
                with suppress(BlockingIOError):
                    asked.append(served.kernel.asks(MKDIR, b"orders\0"))
                    break
                await trio.testing.wait_all_tasks_blocked()
        number = served.kernel.asks(wire.FLUSH, struct.pack("=QIIQ", FH, 0, 0, 0))
        assert (0, number, b"") == await served.answer()
        passed = [struct.unpack_from("=Q", await served.asked(), 8)[0] for _ in range(count)]
        assert asked == passed

    await serving(served, use)


async def test_an_answer_always_finds_room(served: Served):
    """The library's socket always has space for an answer.

    The loop reads the answers of the library before it forwards the next request to the library.
    """
    body = b"x" * LARGEST_LISTING

    async def use() -> None:
        for number in range(1, 50):
            served.loop.return_answers()
            served.library.send(struct.pack("=IiQ", 16 + len(body), 0, number) + body)
            assert (0, number - 1 or 1, body) == (await served.answer() if number > 1 else (0, 1, body))

    await serving(served, use)


async def test_notifications_always_find_room(served: Served):
    """The socket of the library has space for any number of poll notifications."""
    told = 0

    async def use() -> None:
        nonlocal told
        notification = PollNotification(
            cast(
                "pyfuse3.PollHandle", SimpleNamespace(notify=lambda: served.library.send(POLL_NOTIFICATION))
            ),
            served.loop.return_answers,
        )
        for _ in range(2000):
            notification.notify()
            while served.kernel.is_answered():
                served.kernel.answer()
                told += 1
        while told < 2000:
            await served.answer()
            told += 1

    await serving(served, use)


@pytest.mark.parametrize("opcode", [wire.READDIR, wire.READDIRPLUS])
@pytest.mark.parametrize(("wanted", "given"), [(2**20, LARGEST_LISTING), (4096, 4096)])
async def test_a_listing_fits_into_the_pair(served: Served, opcode: int, wanted: int, given: int):
    """If a request asks for a listing larger than LARGEST_LISTING, the loop reduces the size in the request.

    The answer then fits into the socket.
    """

    async def use() -> None:
        served.kernel.asks(opcode, struct.pack("=QQIIQII", FH, 2**35, wanted, 7, 0, 8, 0))
        request = await served.asked()
        assert request[40:] == struct.pack("=QQIIQII", FH, 2**35, given, 7, 0, 8, 0)

    await serving(served, use)


async def test_an_interrupt_is_dropped(served: Served):
    """INTERRUPT is dropped: libfuse would answer with EAGAIN, and the kernel would send the interrupt again."""

    async def use() -> None:
        served.kernel.asks(wire.INTERRUPT, struct.pack("=Q", 2**33 + 1))
        number = served.kernel.asks(MKDIR, b"orders\0")
        assert (await served.asked())[8:16] == struct.pack("=Q", number)

    await serving(served, use)
    assert not served.kernel.is_answered()


INIT = struct.pack("=IIII", 7, 45, 131072, 0xF000_0000)
INIT_ANSWER = struct.pack("=IIIIHHI", 7, 38, 131072, 0x40_0000, 12, 9, 2**24)


async def test_the_library_gets_a_protocol_version_without_splice(served: Served):
    """libfuse gets protocol version 7.13, because it uses splice(2) from version 7.14 on.

    The loop adds the fields of the newer version to libfuse's answer.
    """

    async def use() -> None:
        number = served.kernel.asks(wire.INIT, INIT, node_id=0)
        assert struct.pack("=IIII", 7, 13, 131072, 0xF000_0000) == (await served.asked())[40:]
        served.library.send(struct.pack("=IiQ", 40, 0, number) + INIT_ANSWER)
        error, answered, body = await served.answer()
        assert (0, number, 64) == (error, answered, len(body))
        assert INIT_ANSWER[:20] == body[:20]
        # The largest write in bytes and in pages, and the granularity of times in nanoseconds.
        assert (2**20, 1, 2**20 // os.sysconf("SC_PAGE_SIZE"), 0) == struct.unpack_from("=IIHH", body, 20)
        assert not any(body[32:])

    await serving(served, use)


async def test_a_refused_negotiation_passes_as_it_is(served: Served):
    """An INIT answer that refuses the negotiation with an errno is passed on unchanged."""

    async def use() -> None:
        number = served.kernel.asks(wire.INIT, INIT, node_id=0)
        await served.asked()
        served.library.send(struct.pack("=IiQ", 16, -71, number))
        assert (71, number, b"") == await served.answer()

    await serving(served, use)


async def test_the_end_of_the_loop_answers_waiting_requests(served: Served, monkeypatch: pytest.MonkeyPatch):
    """When the loop ends, it answers the requests that wait, and ends the library once."""
    opened = trio.Event()

    async def wait() -> bytes:
        await opened.wait()
        return b"late"

    async def use() -> None:
        monkeypatch.setattr(served.handlers, "read", lambda *_: wait())
        served.kernel.asks(wire.READ, READ_REQUEST)
        await trio.testing.wait_all_tasks_blocked()
        served.loop.end()
        await trio.testing.wait_all_tasks_blocked()
        assert not served.kernel.is_answered()
        opened.set()
        assert b"late" == (await served.answer())[2]

    await serving(served, use)
    assert 1 == served.ends


async def test_a_library_that_ends_ends_the_loop(served: Served):
    """If the library ends, the loop ends as well, because forwarded requests would not be answered."""
    with trio.fail_after(TIMEOUT_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served.run)
            await trio.testing.wait_all_tasks_blocked()
            served.ended.set()
    assert 1 == served.ends


def test_child_processes_do_not_inherit_the_sockets():
    """Child processes do not inherit the sockets, because a child would keep the device of a dead daemon open."""
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernels:
        served = Served(ours, Kernel(kernels))
        ends = (served.library, served.loop._ours)
        assert [False, False] == [os.get_inheritable(end.fileno()) for end in ends]
        for end in ends:
            end.close()
