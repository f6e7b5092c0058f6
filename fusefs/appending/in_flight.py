"""Writes of one open file that are answered while they are under way, over a remote engine.

What the lines themselves are refused for is known before their write is answered. What becomes of them is told by a
later write, fsync or close of the file.
"""

from __future__ import annotations

import threading
from collections import deque

from topicfs.fusefs.appending.targets import Begin
from topicfs.storage.remote import PendingAppend

LARGE_BYTES = 192 * 1024
"""Bytes of lines that may be answered while they are under way: more comes after those of a program that writes blocks.

A write of 256 KiB has them, but for the line that it begins. A smaller one waits for all before it: it may be the last one
of a program, which need not look at what close(2) answers.
"""


class WritesInFlight:
    """The appends of one open file that are under way. Threads take turns: one may go on for a program that has ended."""

    def __init__(self, begin: Begin, limit: int, *, durable: bool) -> None:
        self._begin, self._limit, self._durable = begin, limit, durable
        self._lock = threading.Lock()
        self._begun: deque[PendingAppend] = deque()

    def __bool__(self) -> bool:
        return bool(self._begun)

    def append(self, lines: bytes) -> None:
        """Begin an append, and wait until its write may be answered (blocking).

        Raises what the lines themselves are refused for, or the first error of what was begun before.
        """
        with self._lock:
            for one in self._begin(lines, self._has_failed, durable=self._durable):
                # Where the next one cannot be begun, this one is told later all the same.
                self._begun.append(one)
                self._end(self._limit - 1)
            if len(lines) < LARGE_BYTES:
                self._end(0)

    def end(self) -> None:
        """Wait until nothing is under way (blocking). Raises the first error."""
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
