"""What the request in hand may still cost: so many bytes of records taken apart.

A few compressed bytes may inflate to a thousand times as many, so that the bytes of batches say little about the time
they take. A request begins with a small allowance, in the event loop's thread; what needs more is begun again in a
thread of its own (`fusefs.threads.blocking`), with a larger one; what needs more than that ends with an error, or with what it
has. What only walks over batches is not bounded there, but ends with the program that asked. Either is kept for the
call in hand alone. Without an allowance, as in the command, nothing is bounded here.

However much is left, a thread's allowance lets one more batch through: what that costs is bounded by the codec
(`storage.codec.compression.bounds`).
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Self, TypeVar

from storage.codec.compression.bounds import MAX_CONTENT_BYTES
from storage.errors import StorageError
from storage.remote import ThreadNeededError

T = TypeVar("T")

INLINE_BYTES = 16 * 2**20
"""Bytes in the event loop's thread: some ten milliseconds' worth, and more than a window of most logs takes."""

INLINE_SECONDS = 0.02
"""Seconds of the processor in the event loop's thread: bytes that inflate slowly, as very many small blocks do, are bounded by this alone."""

THREAD_BYTES = 3 * MAX_CONTENT_BYTES
"""Bytes in a thread: some tenths of a second's worth, and more than lies between two entries of a view's index."""


class RequestTooLargeError(StorageError):
    """One request needs more records taken apart than it may."""


class Allowance:
    """What is left, in bytes of `Columns.size_bytes`; it holds for what is called in its `with` block."""

    _started: float | None = None
    """When the first records were about to be taken apart: most requests take none, and ask no clock."""
    read: object = None
    """What was read last, and where from; and `last`, what it was decoded to."""
    last: object = None

    def __init__(self, remaining: int, *, inline: bool, ended: Callable[[], bool] = lambda: False) -> None:
        """Allow so much; `ended`: whether the program that asks wants to end, so that nobody needs the rest."""
        self._ended = ended
        self.remaining = remaining
        self.inline = inline
        """True if this is the event loop's thread, or one that must not take long either."""

    def __enter__(self) -> Self:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)

    def bound(self, call: Callable[[], T]) -> T:
        """Return what `call` returns under this allowance: a `with` block, for the way of each request."""
        token = _CURRENT.set(self)
        try:
            return call()
        finally:
            _CURRENT.reset(token)

    @property
    def is_late(self) -> bool:
        """True if the event loop's thread has been at it for too long."""
        if not self.inline:
            return False
        now = time.thread_time()
        self._started = now if self._started is None else self._started
        return now - self._started > INLINE_SECONDS

    def begin(self, size_bytes: int) -> int:
        """To what one batch may inflate, among so many bytes of batches that are about to be taken apart.

        Raises ThreadNeededError, RequestTooLargeError.
        """
        if not self.inline:
            if self.remaining <= 0:
                raise RequestTooLargeError(
                    "more records lie on the way than one request takes apart; begin at a record near by"
                )
            return MAX_CONTENT_BYTES
        if size_bytes >= self.remaining or self.is_late:
            raise ThreadNeededError
        return min(self.remaining, MAX_CONTENT_BYTES)

    def walk(self, size_bytes: int) -> None:
        """Count batches that were walked over by their headers alone, on a way that may be long.

        Raises ThreadNeededError, and InterruptedError once nobody waits for it any more.
        """
        if not self.inline:
            if self._ended():
                raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
            return
        self.remaining -= size_bytes
        if self.remaining < 0:
            raise ThreadNeededError


_CURRENT: ContextVar[Allowance | None] = ContextVar("allowance", default=None)
current = _CURRENT.get
"""The allowance of the call in hand; None: nothing is bounded."""


def leave_event_loop() -> None:
    """Go on in a thread: what follows may take long, and counts nothing itself. Raises ThreadNeededError."""
    present = current()
    if present is not None and present.inline:
        raise ThreadNeededError


def take_turn(lock: threading.Lock) -> None:
    """Acquire a lock that another thread may hold for long: the event loop's does not wait for it. Raises ThreadNeededError."""
    if lock.acquire(blocking=False):
        return
    leave_event_loop()
    lock.acquire()
