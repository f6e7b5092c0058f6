"""An open file: read, write, flush, fsync and release between open and close."""

from __future__ import annotations

import select
from typing import Protocol

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.threads.blocking_calls import Listen
from topicfs.storage.engine import Cancel

ALWAYS_READY = select.POLLIN | select.POLLOUT | select.POLLRDNORM | select.POLLWRNORM
"""Events that poll(2) always reports for an ordinary file."""


class Notify(Protocol):
    """One poll(2) request. It can notify the kernel once, when the file becomes ready."""

    def notify(self) -> None: ...


class WaitingPoll:
    """The last poll of an open file, until the kernel is notified. Only for the event loop's thread.

    All programs that poll an open file wait in one queue of the kernel, and a notification of the last poll wakes all
    of them. Every poll is registered, even if events are ready, because an edge-triggered epoll(7) polls again only
    after a notification.
    """

    def __init__(self, news: Listen) -> None:
        self._news = news
        self._notify: Notify | None = None
        self._cancel: Cancel | None = None

    def begin(self, notify: Notify | None) -> None:
        """Notify the kernel at the next news. Call this before looking for events, so that no event is missed.

        If an earlier poll waits for a notification, that notification is kept: this poll may see a record before the
        news of that record is delivered, and no other news may follow. If `notify` is None, this poll does not wait.
        """
        if notify is not None:
            self._notify = notify
            if self._cancel is None:
                self._cancel = self._news(self.tell)

    def tell(self) -> None:
        """Notify the kernel if a poll waits."""
        notify = self._notify
        self.forget()
        if notify is not None:
            notify.notify()

    def forget(self) -> None:
        """Drop the poll: the kernel was notified, or the file is closed."""
        if self._cancel is not None:
            self._cancel()
        self._notify = self._cancel = None


class Handle:
    """One open(2), until release. Operations that a kind of file does not support raise EBADF."""

    direct_io: bool = True
    """True: reads and writes arrive as the program made them. False: they arrive through the kernel's page cache."""
    keep_cache: bool = False
    """True if the page cache of an earlier open is still valid."""
    flushes: bool = False
    """True if `flush` has work to do; otherwise the kernel need not call it at close(2)."""
    end: int | None = None
    """The size that a program expects after opening with O_TRUNC and without O_APPEND; None for other programs."""
    follows: bool = False
    """True if a read at the end waits for more records. Such a wait does not count as latency of the mount."""

    async def read(self, position: int, size: int) -> bytes | memoryview:
        """Return `size` bytes from `position`, fewer only at the end. Raises FileError and the engine's errors."""
        raise FileError(Refusal.NOT_OPEN)

    async def write(self, position: int, data: bytes) -> int:
        """Write `data` at `position`."""
        raise FileError(Refusal.NOT_OPEN)

    async def flush(self) -> None:
        """Handle the close(2) of one of the handle's descriptors."""

    async def fsync(self) -> None:
        """Flush written data to disk."""

    async def release(self) -> None:
        """Handle the close of the last descriptor."""

    def poll(self, notify: Notify | None) -> int:
        """Return the events that are ready; `notify` is called once when they may have changed."""
        return ALWAYS_READY


class BytesHandle(Handle):
    """A file whose bytes never change."""

    direct_io = False
    keep_cache = True

    def __init__(self, content: bytes | memoryview) -> None:
        self._content = content

    async def read(self, position: int, size: int) -> bytes | memoryview:
        return self._content[position : position + size]
