"""The allowance of one request: how many bytes of records it may still decode.

A small compressed batch may inflate a thousandfold, so the size of a batch says little about the time to decode it. A
request begins in the event loop's thread with a small allowance. If that does not suffice, the request begins again
in a thread (`fusefs.threads.blocking_calls`) with a larger allowance. If the larger allowance does not suffice
either, the request ends with an error, or returns the records that were decoded so far. In a thread, walking over
batch headers is not limited, but stops if the calling program wants to end. An allowance applies to one call. Calls
without an allowance, such as the calls of a command, are not limited.

A thread's allowance admits one more batch even when the allowance is nearly used up; the codec limits the cost of
that batch (`storage.codec.compression.bounds`).
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
"""Most bytes that one call may decode in the event loop's thread: about 10 ms of work."""

INLINE_SECONDS = 0.02
"""Limit on CPU time in the event loop's thread, for batches that inflate slowly, such as batches of many small
blocks.
"""

THREAD_BYTES = 3 * MAX_CONTENT_BYTES
"""Allowance in a thread: some tenths of a second, and more than the records between two entries of a view's index."""


class RequestTooLargeError(StorageError):
    """One request would have to decode more records than allowed."""


class Allowance:
    """The number of bytes, counted like `Columns.size_bytes`, that calls in its `with` block may decode."""

    _started: float | None = None
    """Time when the first records were decoded; most requests decode none and need no clock."""
    read: object = None
    """Identifies the last read, whose decoded result is in `last`."""
    last: object = None

    def __init__(self, remaining: int, *, inline: bool, ended: Callable[[], bool] = lambda: False) -> None:
        """Allow `remaining` bytes; `ended` returns whether the caller's program no longer needs the result."""
        self._ended = ended
        self.remaining = remaining
        self.inline = inline
        """True in the event loop's thread, and in other threads that must not take long."""

    def __enter__(self) -> Self:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)

    def bound(self, call: Callable[[], T]) -> T:
        """Call `call` under this allowance. For a single call, this is faster than a `with` block."""
        token = _CURRENT.set(self)
        try:
            return call()
        finally:
            _CURRENT.reset(token)

    @property
    def is_late(self) -> bool:
        """Return whether the request has held the event loop's thread for too long."""
        if not self.inline:
            return False
        now = time.thread_time()
        self._started = now if self._started is None else self._started
        return now - self._started > INLINE_SECONDS

    def begin(self, size_bytes: int) -> int:
        """Return how many bytes `size_bytes` of batches may inflate to. Raises ThreadNeededError, RequestTooLargeError."""
        if not self.inline:
            if self.remaining <= 0:
                raise RequestTooLargeError(
                    "one request would have to decode too many records; open a range that begins near the needed records"
                )
            return MAX_CONTENT_BYTES
        if size_bytes >= self.remaining or self.is_late:
            raise ThreadNeededError
        return min(self.remaining, MAX_CONTENT_BYTES)

    def walk(self, size_bytes: int) -> None:
        """Count `size_bytes` of batches that are skipped, not decoded. Raises ThreadNeededError, InterruptedError."""
        if not self.inline:
            if self._ended():
                raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
            return
        self.remaining -= size_bytes
        if self.remaining < 0:
            raise ThreadNeededError


_CURRENT: ContextVar[Allowance | None] = ContextVar("allowance", default=None)
current = _CURRENT.get
"""Returns the allowance of the current call; None if nothing is limited."""


def leave_event_loop() -> None:
    """Raise ThreadNeededError in the event loop. Call this before work that may take long but counts no bytes."""
    present = current()
    if present is not None and present.inline:
        raise ThreadNeededError


def take_turn(lock: threading.Lock) -> None:
    """Acquire a lock that may be held for long.

    If the lock is not free, raises ThreadNeededError in the event loop's thread; any other thread waits.
    """
    if lock.acquire(blocking=False):
        return
    leave_event_loop()
    lock.acquire()
