"""An append handle, and its target, which keeps the appended lines in memory."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from topicfs.fusefs.appending.framing import LINES, Framing
from topicfs.fusefs.appending.handle import Acks, AppendHandle, Appending
from topicfs.fusefs.appending.linger_buffer import LingerBuffer
from topicfs.fusefs.errors import FileError, errno_of
from topicfs.fusefs.forms import FormError
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    StorageError,
)
from topicfs.storage.model import Timestamp


class MemoryTarget:
    """Keeps appended lines in a list. It refuses the line `bad`; a test can also make every append fail."""

    name = "orders/0/log"

    def __init__(self, max_record_bytes: int = 20) -> None:
        self.max_record_bytes = max_record_bytes
        self.kept: list[bytes] = []
        self.durable: list[bytes] = []
        self.error: OSError | None = None
        """The error that every append raises, if any."""
        self.door = threading.Event()
        """Each append waits until this event is set."""
        self.door.set()
        self.syncs: list[list[bytes]] = []
        """The lines that each sync flushed."""
        self.too_few = False
        """True while fewer replicas than needed are in sync. Appended lines are stored nevertheless."""

    @contextmanager
    def failing(self, number: int = errno.ENOSPC) -> Iterator[None]:
        """Let each append inside the block fail, by default because the disk is full."""
        self.error = OSError(number, "not now")
        yield
        self.error = None

    def check(self, lines: bytes) -> None:
        if b"bad\n" in lines:
            raise FormError(lines.split(b"\n").index(b"bad") + 1, "this line is bad")
        if max(map(len, lines.split(b"\n"))) > self.max_record_bytes:
            raise RecordTooLargeError("this line is too long")

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        self.check(lines)
        self.door.wait()
        if self.error is not None:
            raise self.error
        self.kept.append(lines)
        if durable:
            self.durable.append(lines)
            if self.too_few:
                raise NotEnoughReplicasAfterAppendError("1 of 2 replicas in sync")

    def sync(self) -> None:
        self.syncs.append(list(self.kept))
        if self.too_few:
            raise NotEnoughReplicasError("1 of 2 replicas in sync")


class OpenFile:
    """An append handle on a target in memory. A test says whether the process that opened the file still holds it."""

    def __init__(
        self,
        acks: Acks = Acks.LEADER,
        *,
        durable: bool = False,
        framing: Framing = LINES,
        max_record_bytes: int = 20,
    ) -> None:
        self.target = MemoryTarget(max_record_bytes)
        self.held = False
        self.reports = Reports(lambda: Timestamp(0))
        self.appending = Appending(
            acks=acks,
            linger_buffer=LingerBuffer(linger_ms=0),
            blocking=BlockingCalls(),
            reports=self.reports,
            still_held=lambda pid, path: self.held and (pid, path) == (7, "/orders/0/log"),
        )
        self.handle = self.open(self.target, durable=durable, framing=framing)

    def open(self, target: MemoryTarget, *, durable: bool = False, framing: Framing = LINES) -> AppendHandle:
        """Open another handle in the same mount."""
        return AppendHandle(target, self.appending, opener_pid=7, durable=durable, framing=framing)


async def fails(awaited: object, number: int) -> None:
    """Check that `awaited` raises an OSError with errno `number`, or an error that is mapped to this errno."""
    with pytest.raises((FileError, FormError, OSError, StorageError)) as caught:
        await awaited  # type: ignore[misc]
    assert errno.errorcode[number] == errno.errorcode[errno_of(caught.value)]
