"""The allowance of one request: how many bytes of records it may still decode.

A few compressed bytes may inflate to a thousand times as many, so the size of a batch says little about the time it
takes. A request begins in the event loop's thread with a small allowance. If it needs more it begins again in a thread
of its own (`fusefs.threads.blocking_calls`) with a larger one. If it needs even more it ends with an error, or with the
records it has. A walk over batches by their headers is not bounded there, but ends with the program that asked for it.
An allowance holds for one call. Without one, as in the command, nothing is bounded here.

However much is left, a thread's allowance admits one more batch, whose cost the codec bounds
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

from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.errors import StorageError
from topicfs.storage.remote import ThreadNeededError

T = TypeVar("T")

INLINE_BYTES = 16 * 2**20
"""Bytes in the event loop's thread: some ten milliseconds' worth, and more than a window of most logs takes."""

INLINE_SECONDS = 0.02
"""Seconds of the processor in the event loop's thread: bytes that inflate slowly, as very many small blocks do, are bounded by this alone."""

THREAD_BYTES = 3 * MAX_CONTENT_BYTES
"""Bytes in a thread: some tenths of a second's worth, and more than lies between two entries of a view's index."""


class RequestTooLargeError(StorageError):
    """One request would have to decode more records than it may."""


class Allowance:
    """A number of bytes, counted as `Columns.size_bytes`, that the calls in its `with` block may decode."""

    _started: float | None = None
    """Time at which the first records were about to be decoded: most requests decode none, and ask no clock."""
    read: object = None
    """The bytes that were read last, and their place; `last` is what they were decoded to."""
    last: object = None

    def __init__(self, remaining: int, *, inline: bool, ended: Callable[[], bool] = lambda: False) -> None:
        """Allow `remaining` bytes; `ended` returns whether the program that asks wants to end, so that nobody needs the rest."""
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
        """Return what `call` returns under this allowance: the `with` block as a call, which is quicker."""
        token = _CURRENT.set(self)
        try:
            return call()
        finally:
            _CURRENT.reset(token)

    @property
    def is_late(self) -> bool:
        """True if the request has kept the event loop's thread for too long."""
        if not self.inline:
            return False
        now = time.thread_time()
        self._started = now if self._started is None else self._started
        return now - self._started > INLINE_SECONDS

    def begin(self, size_bytes: int) -> int:
        """Return the bytes to which one batch may inflate, of `size_bytes` of batches that are about to be decoded.

        Raises ThreadNeededError, RequestTooLargeError.
        """
        if not self.inline:
            if self.remaining <= 0:
                raise RequestTooLargeError(
                    "more records lie on the way than one request decodes; begin at a record near by"
                )
            return MAX_CONTENT_BYTES
        if size_bytes >= self.remaining or self.is_late:
            raise ThreadNeededError
        return min(self.remaining, MAX_CONTENT_BYTES)

    def walk(self, size_bytes: int) -> None:
        """Count batches that were passed by their headers alone, on a walk that may be long.

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
"""The allowance of the present call; None if nothing is bounded."""


def leave_event_loop() -> None:
    """Continue in a thread, because what follows may take long and counts nothing itself. Raises ThreadNeededError."""
    present = current()
    if present is not None and present.inline:
        raise ThreadNeededError


def take_turn(lock: threading.Lock) -> None:
    """Acquire a lock that another thread may hold for long; the event loop's thread does not wait. Raises ThreadNeededError."""
    if lock.acquire(blocking=False):
        return
    leave_event_loop()
    lock.acquire()
