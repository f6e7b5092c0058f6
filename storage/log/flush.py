"""The flush of a log, and its recovery point (kafka-storage.md#flushing).

A thread per data directory flushes what rolls closed; what has not begun when it is closed is dropped: logs flush it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from topicfs.storage.counts.engine_counts import Durations
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.model import Offset, Timestamp
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.segment import Segment

FlushTarget: TypeAlias = Callable[[], tuple[Chain, Offset]]
"""Returns segments, and the end offset up to which a flush is to put them on disk."""

Flush: TypeAlias = Callable[[], None]
"""Puts on disk what is not there yet (blocking), and handles what fails."""

_LOGGER = logging.getLogger(__name__)


class _Sealed(NamedTuple):
    """A segment that a roll closed, and whose last changes are not on disk yet."""

    segment: Segment
    end_offset: Offset
    holds: bool
    """True if the recovery point stays inside it."""


class FlushProgress:
    """Keeps the recovery point: everything below it was flushed. One flush at a time; threads that wait share it.

    A roll changes the segment it closes, by index entries and trimming. Until the next flush the recovery point stays
    inside that segment, for recovery rebuilds indexes only from there on. If all of it was flushed before, a
    checkpoint may have a later point: then loading sees by the indexes' ends that they were not trimmed.
    """

    def __init__(
        self, files: FileSystem, recovery_point: Offset, now: Timestamp, durations: Durations
    ) -> None:
        self._files = files
        self._durations = durations
        self._flushing = threading.Lock()
        self._guard = threading.Lock()
        self._flushed = recovery_point
        self._sealed: tuple[_Sealed, ...] = ()
        self.last_flush_ms = now

    @property
    def recovery_point(self) -> Offset:
        sealed_ones, flushed = self._sealed, self._flushed
        if not sealed_ones:  # As nearly always, and it is asked of each log again and again.
            return flushed
        holding = (sealed.end_offset - 1 for sealed in sealed_ones if sealed.holds)
        return Offset(min(flushed, next(holding, flushed)))

    def sealed(self, segment: Segment, end_offset: Offset) -> None:
        """Take note, under the log's lock, that a roll closed `segment`, which ends at `end_offset`.

        A preallocated, flushed one is flushed again, or what was cut could come back (OSError; blocking).
        """
        with self._guard:
            holds = self._flushed < end_offset
            self._sealed = (*self._sealed, _Sealed(segment, end_offset, holds))
        if not holds and segment.settings.preallocated_bytes:
            segment.sync()

    def flush(self, directory: Path, target: FlushTarget, needed: Offset, now: Timestamp) -> None:
        """Put all below `needed` on disk, asking `target` once no other flush runs (blocking). OSError: data may be lost."""
        with self._flushing:
            start = self.recovery_point
            if needed <= start and not any(sealed.end_offset <= needed for sealed in self._sealed):
                return
            chain, up_to = target()
            done = tuple(sealed for sealed in self._sealed if sealed.end_offset <= up_to)
            segments = chain.overlapping(start, up_to)
            with self._durations.timed():
                for segment in dict.fromkeys((*(sealed.segment for sealed in done), *segments)):
                    _sync(segment)
                if not segments or segments[-1].base_offset >= start:
                    # A segment newer than the last flush: its name must be on disk too.
                    self._files.sync_directory(directory)
            with self._guard:
                self._sealed = tuple(sealed for sealed in self._sealed if sealed not in done)
                self._flushed = max(self._flushed, up_to)
            self.last_flush_ms = now

    def flush_all(self, directory: Path, chain: Chain, end_offset: Offset, now: Timestamp) -> None:
        """Flush the active segment too though nothing in it is new, and every name: for a clean close."""
        self.flush(directory, lambda: (chain, end_offset), end_offset, now)
        _sync(chain.active)
        self._files.sync_directory(directory)

    def truncate_to(self, end_offset: Offset) -> None:
        """Lower the recovery point to a log's new end; waits for a running flush, which knew the old end."""
        with self._flushing, self._guard:
            self._flushed = min(self._flushed, end_offset)
            self._sealed = tuple(sealed for sealed in self._sealed if sealed.end_offset <= end_offset)

    def restart_at(self, offset: Offset) -> None:
        """Set the recovery point of a log that was emptied and begins again, at `offset`."""
        with self._flushing, self._guard:
            self._flushed = offset
            self._sealed = ()


def _sync(segment: Segment) -> None:
    if segment.removed:
        return
    try:
        segment.sync()
    except FileNotFoundError:
        # Retention may have taken it in this moment; then there is nothing left to keep.
        if not segment.removed:
            raise


class Flusher(Protocol):
    """Runs flushes later, like an executor."""

    def submit(self, flush: Flush) -> None:
        """Run `flush` later; equal ones that wait are one. Called under a log's lock: it does not block."""

    def close(self) -> None:
        """Wait for the flush that is being done; begin no other. Idempotent."""


class NoFlusher:
    """Leaves what rolls close to the log's next flush: for logs without an engine."""

    def submit(self, flush: Flush) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class BackgroundFlusher:
    """A thread, from the first flush to the close, that does one flush after the other; at most one per log waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[Flush, None] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, flush: Flush) -> None:
        with self._changed:
            if self._closed:
                return
            self._waiting[flush] = None
            if self._thread is None:
                self._start()
            self._changed.notify()

    def _start(self) -> None:
        # Nobody waits for it at the end of a process that closes nothing: that is a crash.
        thread = threading.Thread(target=self._run, name="flush-log", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # The system has no thread left: what waits is for the next attempt.
            _LOGGER.warning("flushing in the background cannot begin: %s", error)
        else:
            self._thread = thread

    def _run(self) -> None:
        while (flush := self._next()) is not None:
            try:
                flush()
            except Exception:  # the other logs are to be flushed all the same
                _LOGGER.exception("a flush in the background failed")

    def _next(self) -> Flush | None:
        """Return the flush that has waited longest, waiting for one; None ends the thread."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            flush = next(iter(self._waiting))
            del self._waiting[flush]
            return flush

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
