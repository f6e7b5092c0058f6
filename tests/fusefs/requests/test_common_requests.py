"""Which requests are answered and which are forwarded; a socket pair takes the place of the kernel's device."""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from topicfs.fusefs.errors import FileError
from topicfs.fusefs.nodes.nodes import Attributes, nanoseconds
from topicfs.fusefs.nodes.ownership import Ownership
from topicfs.fusefs.requests import wire
from topicfs.fusefs.requests.common_requests import CommonRequests
from topicfs.fusefs.requests.request_counts import RequestCounts
from topicfs.storage.model import Timestamp

NODE, FH, PID = 7, 2**40 + 3, 4711
OWNER = Ownership(1000, 100)
READDIR = 28


class Kernel:
    """The kernel's end of the socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.last_id = 2**33

    def asks(self, opcode: int, body: bytes = b"", *, node_id: int = NODE) -> int:
        """Send a request and return its ID."""
        self.last_id += 1
        size = wire.REQUEST_HEADER_SIZE + len(body)
        self.end.send(struct.pack("=IIQQIIIHH", size, opcode, self.last_id, node_id, 0, 0, PID, 0, 0) + body)
        return self.last_id

    def answer(self) -> tuple[int, int, bytes]:
        """Return the errno, the request's ID and the body of the next answer."""
        received = self.end.recv(2**21)
        size, error, number = struct.unpack_from("=IiQ", received)
        assert len(received) == size
        return -error, number, received[wire.ANSWER_HEADER_SIZE :]

    def is_answered(self) -> bool:
        try:
            self.end.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        return True


class Handlers:
    """Handlers that return `result` or raise `error`, and record the arguments of each call."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.result: object = None
        self.error: Exception | None = None
        self.wait = False
        self.following = False

    def follows(self, fh: int) -> bool:
        return self.following

    def opendir(self, *asked: object) -> object:
        self.asked.append(("opendir", *asked))
        if self.error is not None:
            raise self.error
        return self.result

    def releasedir(self, *asked: object) -> None:
        self.asked.append(("releasedir", *asked))

    async def _answer(self, *asked: object) -> object:
        self.asked.append(asked)
        if self.wait:
            await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return self.result

    def find_or_offload(self, *asked: object):
        return self._answer("lookup", *asked)

    def forget(self, *asked: object) -> None:
        self.asked.append(("forget", *asked))

    def getattr(self, *asked: object):
        return self._answer("getattr", *asked)

    def open(self, *asked: object):
        return self._answer("open", *asked)

    def read(self, *asked: object):
        return self._answer("read", *asked)

    def write(self, *asked: object):
        return self._answer("write", *asked)

    def flush(self, *asked: object):
        return self._answer("flush", *asked)

    def release(self, *asked: object):
        return self._answer("release", *asked)


class Mount:
    """Reads requests from a kernel and calls handlers."""

    def __init__(self, kernel: Kernel, device: socket.socket) -> None:
        self.kernel = kernel
        self.device = device
        self.handlers = Handlers()
        self.passed_on: list[bytes] = []
        self.counts = RequestCounts()
        self.requests = CommonRequests(device.fileno(), self.handlers, self._pass_on, OWNER, self.counts)

    async def _pass_on(self, request: bytes) -> None:
        self.passed_on.append(request)

    def serve(self) -> Any:
        """Serve requests until none is left or one is forwarded; if a handler waits, return its unfinished call.

        One call of `CommonRequests.serve` may return earlier: on a busy machine, a request may use all its time.
        """
        forwarded = len(self.passed_on)
        while True:
            waiting = self.requests.serve()
            if waiting is not None or len(self.passed_on) > forwarded or not self._is_asked():
                return waiting

    def _is_asked(self) -> bool:
        return bool(select.select([self.device], [], [], 0)[0])

    def counted(self) -> dict[str, int]:
        return {kind: sum(durations.buckets) for kind, durations in self.counts.durations().items()}


@pytest.fixture
def mount() -> Iterator[Mount]:
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernels:
        for end in (ours, kernels):
            end.setblocking(False)
        for end in (ours, kernels):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**21)
        yield Mount(Kernel(kernels), ours)


def answers(mount: Mount, opcode: int, body: bytes, result: object) -> bytes:
    """Send a request, check that it is answered immediately with its ID, and return the body of the answer."""
    mount.handlers.result = result
    number = mount.kernel.asks(opcode, body)
    assert mount.serve() is None
    error, answered, content = mount.kernel.answer()
    assert (error, answered) == (0, number)
    return content


def test_a_read_is_answered_with_its_bytes(mount: Mount):
    """A read is answered with its data, which may be bytes or a view of any length."""
    body = struct.pack("=QQIIQII", FH, 2**35, 4096, 0, 0, 0, 0)
    for content in (b"some text", b"", memoryview(b"0some text")[1:], b"x" * 100_000):
        assert answers(mount, wire.READ, body, content) == bytes(content)
    assert [("read", FH, 2**35, 4096)] * 4 == mount.handlers.asked


@pytest.mark.parametrize("data", [b"a line\n", b"", b"x" * 2**17])
def test_a_write_gets_its_bytes_and_says_how_many_were_taken(mount: Mount, data: bytes):
    """The handler of WRITE gets data and position, and the answer has the number of written bytes."""
    body = struct.pack("=QQIIQII", FH, 99, len(data), 0, 0, 0, 0) + data
    assert answers(mount, wire.WRITE, body, len(data)) == struct.pack("=II", len(data), 0)
    assert mount.handlers.asked == [("write", FH, data, 99)]


@pytest.mark.parametrize(("opcode", "name"), [(wire.FLUSH, "flush"), (wire.RELEASE, "release")])
def test_the_end_of_a_file_is_answered_with_nothing(mount: Mount, opcode: int, name: str):
    """FLUSH and RELEASE are answered with an empty body."""
    assert b"" == answers(mount, opcode, struct.pack("=QIIQ", FH, 0, 0, 0), None)
    assert mount.handlers.asked == [(name, FH)]


@pytest.mark.parametrize(
    ("direct_io", "keep_cache", "flushes", "flags"),
    [(True, False, True, 1), (False, True, False, 2 | 32), (False, False, True, 0), (True, False, False, 33)],
)
def test_an_open_says_how_the_file_is_to_be_used(
    mount: Mount, direct_io: bool, keep_cache: bool, flushes: bool, flags: int
):
    """The answer to OPEN has the flags of the handle: direct I/O, kept cache, no flush."""
    handle = SimpleNamespace(direct_io=direct_io, keep_cache=keep_cache, flushes=flushes)
    content = answers(mount, wire.OPEN, struct.pack("=II", 0o100001, 0), (FH, handle))
    assert content == struct.pack("=QIi", FH, flags, 0)
    assert [("open", NODE, 0o100001, PID)] == mount.handlers.asked


def test_a_directory_is_opened_and_closed(mount: Mount):
    """OPENDIR is answered with a handle, or with the errno of an error. RELEASEDIR closes the handle."""
    assert answers(mount, wire.OPENDIR, struct.pack("=II", 0, 0), FH) == struct.pack("=QII", FH, 0, 0)
    assert b"" == answers(mount, wire.RELEASEDIR, struct.pack("=QIIQ", FH, 0, 0, 0), None)
    assert [("opendir", NODE, PID), ("releasedir", FH)] == mount.handlers.asked
    mount.handlers.error = FileError(errno.ENOENT)
    number = mount.kernel.asks(wire.OPENDIR, struct.pack("=II", 0, 0))
    assert mount.serve() is None
    assert mount.kernel.answer() == (errno.ENOENT, number, b"")
    assert {"opendir": 2, "releasedir": 1} == mount.counted()


ATTRIBUTES = Attributes(0o100644, 1025, 1_700_000_000_123_456_789, 2.5, 42, 524_288)
FUSE_ATTR = struct.pack(
    "=QQQQQQIIIIIIIIII",
    *(42, 1025, 3, 1_700_000_000, 1_700_000_000, 1_700_000_000),
    *(123_456_789, 123_456_789, 123_456_789, 0o100644, 1, *OWNER[:2], 0, 524_288, 0),
)


def test_a_lookup_is_answered_with_the_node_and_its_attributes(mount: Mount):
    """A lookup is answered with the node's ID and attributes; their inode number differs from the node's ID."""
    node = SimpleNamespace(node_id=2**33 + 1, entry_timeout=60.0)
    content = answers(mount, wire.LOOKUP, b"42.json\0", (node, ATTRIBUTES))
    assert content == struct.pack("=QQQQII", 2**33 + 1, 0, 60, 2, 0, 500_000_000) + FUSE_ATTR
    assert [("lookup", NODE, b"42.json", PID)] == mount.handlers.asked


def test_attributes_are_those_that_stat_shows(mount: Mount):
    """GETATTR is answered with the attributes and with the time for which the kernel may cache them."""
    content = answers(mount, wire.GETATTR, struct.pack("=IIQ", 0, 0, 0), ATTRIBUTES)
    assert content == struct.pack("=QII", 2, 500_000_000, 0) + FUSE_ATTR
    assert [("getattr", NODE, PID)] == mount.handlers.asked


@pytest.mark.parametrize("timestamp", [-(2**63), 0, 1_700_000_000_000_000, 2**63 - 1])
def test_attributes_of_any_record_are_answered(mount: Mount, timestamp: int):
    """An extreme timestamp in attributes is answered with the nearest time that the kernel can represent."""
    shown = nanoseconds(Timestamp(timestamp))
    attributes = Attributes(0o100444, 1, shown, 1.0, 42)
    content = answers(mount, wire.GETATTR, struct.pack("=IIQ", 0, 0, 0), attributes)
    seconds, fractions = struct.unpack_from("=3Q", content, 40), struct.unpack_from("=3I", content, 64)
    assert [divmod(shown, 10**9)] * 3 == list(zip(seconds, fractions, strict=True))


def test_forget_is_not_answered(mount: Mount):
    """FORGET and BATCH_FORGET are handled, but not answered."""
    mount.kernel.asks(wire.FORGET, struct.pack("=Q", 3))
    mount.kernel.asks(wire.BATCH_FORGET, struct.pack("=IIQQQQ", 2, 0, 8, 1, 9, 2))
    assert mount.serve() is None
    assert not mount.kernel.is_answered()
    assert [("forget", [(NODE, 3)]), ("forget", [(8, 1), (9, 2)])] == mount.handlers.asked


@pytest.mark.parametrize(
    ("error", "number"), [(FileError(errno.ESTALE), errno.ESTALE), (KeyError(FH), errno.EIO)]
)
def test_an_error_is_answered_with_its_errno(mount: Mount, error: Exception, number: int):
    """A FileError is answered with its errno, and an unexpected exception with EIO."""
    mount.handlers.error = error
    request = mount.kernel.asks(wire.WRITE, struct.pack("=QQIIQII", FH, 0, 1, 0, 0, 0, 0) + b"x")
    assert mount.serve() is None
    assert mount.kernel.answer() == (number, request, b"")


def test_a_result_of_a_wrong_type_is_answered_with_eio(mount: Mount):
    """If the result of a handler has a wrong type, the answer is EIO."""
    mount.handlers.result = "nothing of the kind"
    request = mount.kernel.asks(wire.OPEN, struct.pack("=II", 0, 0))
    assert mount.serve() is None
    assert mount.kernel.answer() == (errno.EIO, request, b"")


READ_REQUEST = struct.pack("=QQIIQII", FH, 0, 4096, 0, 0, 0, 0)


def test_any_other_request_is_passed_on_as_it_came(mount: Mount):
    """Any other request is forwarded unchanged.

    Earlier requests are answered before the request is forwarded. Later requests are read afterwards.
    """
    mount.handlers.result = b"text"
    mount.kernel.asks(wire.READ, READ_REQUEST)
    number = mount.kernel.asks(READDIR, b"whatever it asks")
    mount.kernel.asks(wire.READ, READ_REQUEST)
    assert mount.serve() is None
    (passed_on,) = mount.passed_on
    assert passed_on[8:16] == struct.pack("=Q", number)
    assert passed_on.endswith(b"whatever it asks")
    assert b"text" == mount.kernel.answer()[2]
    assert not mount.kernel.is_answered()
    assert mount.serve() is None
    assert b"text" == mount.kernel.answer()[2]


async def test_a_request_that_waits_is_answered_when_its_handler_ends(mount: Mount):
    """While a handler waits, later requests are served; the waiting request is answered when its handler ends."""
    mount.handlers.wait, mount.handlers.result = True, b"at last"
    first = mount.kernel.asks(wire.READ, READ_REQUEST)
    waiting = mount.serve()
    assert not mount.kernel.is_answered()
    mount.handlers.wait, mount.handlers.result = False, b"at once"
    second = mount.kernel.asks(wire.READ, READ_REQUEST)
    assert mount.serve() is None
    assert mount.kernel.answer() == (0, second, b"at once")
    mount.handlers.result = b"at last"
    await mount.requests.go_on(waiting)
    assert mount.kernel.answer() == (0, first, b"at last")
    assert 2 == len(mount.handlers.asked)


@pytest.mark.parametrize(
    ("error", "number"), [(FileError(errno.ESTALE), errno.ESTALE), (KeyError(FH), errno.EIO)]
)
async def test_an_error_after_a_wait_is_answered_with_its_errno(mount: Mount, error: Exception, number: int):
    """An error that a handler raises after a wait is answered with its errno, and counted once."""
    mount.handlers.wait, mount.handlers.error = True, error
    request = mount.kernel.asks(wire.FLUSH, struct.pack("=QIIQ", FH, 0, 0, 0))
    await mount.requests.go_on(mount.serve())
    assert mount.kernel.answer() == (number, request, b"")
    assert {("flush", number): 1} == mount.counts.errors()
    assert {"flush": 1} == mount.counted()


@pytest.mark.parametrize(("following", "kind"), [(True, "follow"), (False, "read")])
async def test_a_read_that_waits_for_records_is_counted_apart(mount: Mount, following: bool, kind: str):
    """Reads that wait for records are counted as `follow`, so that the durations of other reads stay meaningful."""
    mount.handlers.wait, mount.handlers.result, mount.handlers.following = True, b"text", following
    mount.kernel.asks(wire.READ, READ_REQUEST)
    await mount.requests.go_on(mount.serve())
    assert {kind: 1} == mount.counted()
    assert 4 == mount.counts.bytes_read


async def test_a_request_that_cannot_be_passed_on_is_an_error(mount: Mount):
    """If a request cannot be forwarded, it is answered with EIO."""

    async def fail(request: bytes) -> None:
        raise OSError(errno.EMSGSIZE, "too long")

    requests = CommonRequests(mount.device.fileno(), mount.handlers, fail, OWNER, mount.counts)
    number = mount.kernel.asks(READDIR)
    assert requests.serve() is None
    assert mount.kernel.answer() == (errno.EIO, number, b"")


def test_the_event_loop_has_its_turn(mount: Mount):
    """`serve` handles at most 64 requests before it lets the event loop run."""
    mount.handlers.result = b"text"
    for _ in range(100):
        mount.kernel.asks(wire.READ, READ_REQUEST)
    assert mount.requests.serve() is None
    served = len(mount.handlers.asked)
    assert 1 <= served <= 64
    while len(mount.handlers.asked) < 100:
        mount.requests.serve()


def test_a_device_that_is_gone_is_an_error():
    """If the device is closed, `serve` raises the error of the kernel."""
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with kernels:
        requests = Mount(Kernel(kernels), ours).requests
        ours.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            requests.serve()


def test_what_is_answered_is_counted(mount: Mount):
    """Answered requests are counted by kind with durations, bytes and errors; forwarded requests are not counted."""
    answers(mount, wire.READ, READ_REQUEST, b"text")
    answers(mount, wire.WRITE, struct.pack("=QQIIQII", FH, 0, 2, 0, 0, 0, 0) + b"ab", 2)
    mount.kernel.asks(wire.FORGET, struct.pack("=Q", 3))
    mount.handlers.error = FileError(errno.ESTALE)
    mount.kernel.asks(wire.READ, READ_REQUEST)
    mount.serve()
    mount.kernel.asks(READDIR)
    mount.serve()
    counts = mount.counts
    assert {"read": 2, "write": 1, "forget": 1} == mount.counted()
    assert all(durations.total_ns > 0 for durations in counts.durations().values())
    assert {("read", errno.ESTALE): 1} == counts.errors()
    assert (4, 2) == (counts.bytes_read, counts.bytes_written)
