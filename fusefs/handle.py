"""An open file: what read, write, flush, fsync and release do between open and close."""

from __future__ import annotations

import select
from typing import Protocol

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.threads.blocking_calls import Listen
from topicfs.storage.engine import Cancel

ALWAYS_READY = select.POLLIN | select.POLLOUT | select.POLLRDNORM | select.POLLWRNORM
"""Events that poll(2) reports of an ordinary file."""


class Notify(Protocol):
    """A poll of the kernel, which is notified once that the file has become ready."""

    def notify(self) -> None: ...


class WaitingPoll:
    """The last poll of an open file, until the kernel is notified. Used from the event loop's thread.

    All programs that poll one open file wait in one queue of the kernel, and a notification of the last poll wakes them
    all. Every poll waits, whatever it is answered: an edge-triggered epoll(7) polls again only after a notification.
    """

    def __init__(self, news: Listen) -> None:
        self._news = news
        self._notify: Notify | None = None
        self._cancel: Cancel | None = None

    def begin(self, notify: Notify | None) -> None:
        """Notify the kernel at the next news. Called before the caller looks: no record comes between the look and this.

        The call that is owed to an earlier poll is kept: this poll may see a record before the news of it is delivered,
        and then no other news comes. Without `notify` nobody waits for this poll.
        """
        if notify is not None:
            self._notify = notify
            if self._cancel is None:
                self._cancel = self._news(self.tell)

    def tell(self) -> None:
        """Notify the kernel, if it waits."""
        notify = self._notify
        self.forget()
        if notify is not None:
            notify.notify()

    def forget(self) -> None:
        """Wait no longer: the kernel is notified, or the file is closed."""
        if self._cancel is not None:
            self._cancel()
        self._notify = self._cancel = None


class Handle:
    """One open(2), until release. What a kind of file does not do is EBADF, as for a descriptor opened otherwise."""

    direct_io: bool = True
    """Reads and writes come as the program made them; without it through the kernel's page cache."""
    keep_cache: bool = False
    """True if the page cache of an earlier open still holds."""
    flushes: bool = False
    """True if `flush` does anything: if not, close(2) need not ask."""
    end: int | None = None
    """Size that a program sees after it opened the file with O_TRUNC and without O_APPEND; None for any other program."""
    follows: bool = False
    """True if a read at the end waits for more: how long it takes says nothing of the mount."""

    async def read(self, position: int, size: int) -> bytes | memoryview:
        """Return at most `size` bytes from `position`; fewer only at the end. Raises FileError and the engine's errors."""
        raise FileError(Refusal.NOT_OPEN)

    async def write(self, position: int, data: bytes) -> int:
        """Take `data`, which the program writes at `position`."""
        raise FileError(Refusal.NOT_OPEN)

    async def flush(self) -> None:
        """Do what close(2) of one of its descriptors asks for."""

    async def fsync(self) -> None:
        """Put what was written on disk."""

    async def release(self) -> None:
        """The last descriptor was closed."""

    def poll(self, notify: Notify | None) -> int:
        """The events that are ready now; `notify` is called once when that may have changed."""
        return ALWAYS_READY


class BytesHandle(Handle):
    """A file whose bytes never change."""

    direct_io = False
    keep_cache = True

    def __init__(self, content: bytes | memoryview) -> None:
        self._content = content

    async def read(self, position: int, size: int) -> bytes | memoryview:
        return self._content[position : position + size]
