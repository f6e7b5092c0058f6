"""Who puts on disk what a roll closed, while the log goes on: a broker's task `flush-log`.

A log hands over its own flush; the keeper of many logs gives them one flusher a disk. What is handed over and did not
begin when the flusher is closed is not done any more, for a log flushes everything when it is closed itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

Flush: TypeAlias = Callable[[], None]
"""Puts on disk what is not there yet (blocking), and takes care of what fails."""

_LOGGER = logging.getLogger(__name__)


class Flusher(Protocol):
    """Does flushes in its own time."""

    def hand(self, flush: Flush) -> None:
        """Do `flush` later; equal ones that wait are one. Called under a log's lock: it takes no time."""
        ...

    def close(self) -> None:
        """Wait for the flush that is being done; begin no other. Idempotent."""
        ...


class NoFlusher:
    """Leaves what rolls close to the log's next flush: for logs that nobody keeps."""

    def hand(self, flush: Flush) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class BackgroundFlusher:
    """Does flushes one after the other in a thread, which is there only while there is something to do.

    Bounded: of each log at most one flush waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Flush, None] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def hand(self, flush: Flush) -> None:
        with self._lock:
            if self._closed:
                return
            self._waiting[flush] = None
            if self._thread is None:
                # Nobody waits for it at the end of a process that closes nothing: that is a crash.
                self._thread = threading.Thread(target=self._run, name="flush-log", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (flush := self._next()) is not None:
            try:
                flush()
            except Exception:  # the other logs are to be flushed all the same
                _LOGGER.exception("a flush in the background failed")

    def _next(self) -> Flush | None:
        """The flush that waits longest; None ends the thread."""
        with self._lock:
            if not self._waiting:
                self._thread = None
                return None
            flush = next(iter(self._waiting))
            del self._waiting[flush]
            return flush

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join()
