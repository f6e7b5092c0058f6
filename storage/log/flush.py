"""A log's flush and its recovery point (kafka-storage.md#flushing).

One thread per data directory flushes the segments that were closed by rolls. Closing the thread drops pending
flushes: each log flushes the remaining data when the log is closed.
"""

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
"""Returns the segments to flush, and the end offset below which everything is on disk after the flush."""

Flush: TypeAlias = Callable[[], None]
"""Flushes what is not on disk yet, and handles errors. Blocks."""

_LOGGER = logging.getLogger(__name__)


class _Sealed(NamedTuple):
    """A segment that a roll closed, and whose last changes are not on disk yet."""

    segment: Segment
    end_offset: Offset
    holds: bool
    """True if the recovery point stays in this segment until the next flush."""


class FlushProgress:
    """Keeps the recovery point, below which everything is flushed. Threads that need a flush share it.

    Only one flush runs at a time. A roll changes the segment that it closes: it adds index entries and trims the files.
    Until the next flush the recovery point stays in that segment, because recovery rebuilds indexes only from the
    recovery point on. If the segment was completely flushed before, a checkpoint may have a later recovery point;
    loading then recognizes untrimmed indexes by their ends.
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
        if not sealed_ones:  # The usual case; the engine asks each log often.
            return flushed
        held_from = (sealed.end_offset - 1 for sealed in sealed_ones if sealed.holds)
        return Offset(min(flushed, next(held_from, flushed)))

    def sealed(self, segment: Segment, end_offset: Offset) -> None:
        """Note that a roll closed `segment`, which ends at `end_offset`; called under the log's lock. Blocks.

        Raises OSError. A preallocated segment is always flushed again: a crash could bring back the trimmed bytes.
        """
        with self._guard:
            holds = self._flushed < end_offset
            self._sealed = (*self._sealed, _Sealed(segment, end_offset, holds))
        if not holds and segment.settings.preallocated_bytes:
            segment.sync()

    def flush(self, directory: Path, target: FlushTarget, needed: Offset, now: Timestamp) -> None:
        """Flush everything below `needed`; call `target` once no other flush runs. Raises OSError: data may be lost."""
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
                    # The segment was made after the last flush, so its name must be flushed too.
                    self._files.sync_directory(directory)
            with self._guard:
                self._sealed = tuple(sealed for sealed in self._sealed if sealed not in done)
                self._flushed = max(self._flushed, up_to)
            self.last_flush_ms = now

    def flush_all(self, directory: Path, chain: Chain, end_offset: Offset, now: Timestamp) -> None:
        """Flush the active segment, even if it is unchanged, and all file names, for a clean close."""
        self.flush(directory, lambda: (chain, end_offset), end_offset, now)
        _sync(chain.active)
        self._files.sync_directory(directory)

    def truncate_to(self, end_offset: Offset) -> None:
        """Lower the recovery point to the log's new end, after waiting for a running flush, which uses the old end."""
        with self._flushing, self._guard:
            self._flushed = min(self._flushed, end_offset)
            self._sealed = tuple(sealed for sealed in self._sealed if sealed.end_offset <= end_offset)

    def restart_at(self, offset: Offset) -> None:
        """Set the recovery point of a log that was emptied and now begins at `offset`."""
        with self._flushing, self._guard:
            self._flushed = offset
            self._sealed = ()


def _sync(segment: Segment) -> None:
    if segment.removed:
        return
    try:
        segment.sync()
    except FileNotFoundError:
        # If retention has removed the segment, nothing is left to flush.
        if not segment.removed:
            raise


class Flusher(Protocol):
    """Runs flushes later, like an executor."""

    def submit(self, flush: Flush) -> None:
        """Run `flush` later; equal pending flushes run once. Does not block: callers hold a log's lock."""

    def close(self) -> None:
        """Wait for the running flush, and start no other flush. Idempotent."""


class NoFlusher:
    """Leaves closed segments to the log's next flush. For logs that have no engine."""

    def submit(self, flush: Flush) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class BackgroundFlusher:
    """Runs flushes one by one in a thread, from the first flush until `close`; at most one flush per log is pending."""

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
        # A daemon thread: a process that ends without a close counts as crashed, and does not wait for
        # flushes.
        thread = threading.Thread(target=self._run, name="flush-log", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # The system can start no more threads: the next `submit` tries again.
            _LOGGER.warning("cannot start flushing in the background: %s", error)
        else:
            self._thread = thread

    def _run(self) -> None:
        while (flush := self._next()) is not None:
            try:
                flush()
            except Exception:  # Continue, because the other logs must still be flushed.
                _LOGGER.exception("a flush in the background failed")

    def _next(self) -> Flush | None:
        """Return the flush that has waited longest; wait for one if there is none. None ends the thread."""
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
