"""Writes to a remote engine that are answered while their appends still run.

Lines are checked before their write is answered. A later write, fsync or close reports an error of the append.
"""

from __future__ import annotations

import threading
from collections import deque

from topicfs.fusefs.appending.targets import Begin
from topicfs.storage.remote import PendingAppend

LARGE_BYTES = 192 * 1024
"""A write of at least this size may be answered early, because a program that writes large blocks will write more.

A write of 256 KiB contains at least this many bytes of whole lines. A smaller write waits for all earlier appends,
because it may be the program's last write, and programs may ignore the result of close(2).
"""


class WritesInFlight:
    """The running appends of an open file. Thread-safe, because the thread of an abandoned write may still run."""

    def __init__(self, begin: Begin, limit: int, *, durable: bool) -> None:
        self._begin, self._limit, self._durable = begin, limit, durable
        self._lock = threading.Lock()
        self._begun: deque[PendingAppend] = deque()

    def __bool__(self) -> bool:
        return bool(self._begun)

    def append(self, lines: bytes) -> None:
        """Begin an append; wait until its write may be answered (blocking). Raises the first error of the appends."""
        with self._lock:
            for one in self._begin(lines, self._has_failed, durable=self._durable):
                # Even if the next append cannot begin, the result of this append is reported later.
                self._begun.append(one)
                self._end(self._limit - 1)
            if len(lines) < LARGE_BYTES:
                self._end(0)

    def end(self) -> None:
        """Wait until no append is running (blocking). Raises the first error."""
        with self._lock:
            self._end(0)

    def _end(self, most: int) -> None:
        failed: Exception | None = None
        while len(self._begun) > (0 if failed else most):
            try:
                self._begun[0].end()
            except Exception as error:  # noqa: BLE001 - raised below, once those behind it have ended
                failed = failed or error
            finally:
                self._begun.popleft()
        if failed is not None:
            raise failed

    def _has_failed(self) -> bool:
        return any(one.failed for one in self._begun)
