"""What of a log is on disk, and getting the rest there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from storage.disk.filesystem import FileSystem
from storage.log.chain import Chain
from storage.log.segment import Segment
from storage.model import Offset, Timestamp

Reach: TypeAlias = Callable[[], tuple[Chain, Offset]]
"""How far a flush is to go, and in which segments."""


class Durability:
    """Keeps the recovery point: everything below it was flushed. One flush at a time; those who wait share it.

    A roll gives the segment it closes its last index entries and trims it. Recovery makes indexes anew only from the
    segment that holds the recovery point on: so until those changes are on disk the recovery point stays inside that
    segment.
    """

    def __init__(self, files: FileSystem, recovery_point: Offset, now: Timestamp) -> None:
        self._files = files
        self._flushing = threading.Lock()
        self._guard = threading.Lock()
        self._flushed = recovery_point
        self._sealed: tuple[tuple[Segment, Offset], ...] = ()
        self.last_flush_ms = now

    @property
    def recovery_point(self) -> Offset:
        sealed = self._sealed
        return Offset(min(self._flushed, sealed[0][1] - 1)) if sealed else self._flushed

    def sealed(self, segment: Segment, end_offset: Offset) -> None:
        """Told by a roll, under the log's lock: `segment` was closed and ends at `end_offset`.

        Where all of it was flushed already the recovery point may be in a checkpoint by now, and cannot go back: then
        what the roll changed is flushed here (blocking; OSError).
        """
        with self._guard:
            flushed = self._flushed >= end_offset
            if not flushed:
                self._sealed = (*self._sealed, (segment, end_offset))
        if flushed:
            segment.sync()

    def flush(self, directory: Path, reach: Reach, needed: Offset, now: Timestamp) -> None:
        """All offsets below `needed` are on disk when this returns (blocking). OSError: what is lost is unknown.

        `reach` is asked when it is this one's turn: what came while another flush ran goes to disk with this one, and
        those who brought it find it there.
        """
        with self._flushing:
            start = self.recovery_point
            if needed <= start:
                return
            chain, up_to = reach()
            sealed = tuple(entry for entry in self._sealed if entry[1] <= up_to)
            segments = chain.overlapping(start, up_to)
            for segment in dict.fromkeys((*(entry[0] for entry in sealed), *segments)):
                _sync(segment)
            if not segments or segments[-1].base_offset >= start:
                # A segment newer than the last flush: its name must be on disk too.
                self._files.sync_directory(directory)
            with self._guard:
                self._sealed = tuple(entry for entry in self._sealed if entry not in sealed)
                self._flushed = max(self._flushed, up_to)
            self.last_flush_ms = now

    def flush_all(self, directory: Path, chain: Chain, end_offset: Offset, now: Timestamp) -> None:
        """Flush the active segment too though nothing in it is new, and every name: for a clean close."""
        self.flush(directory, lambda: (chain, end_offset), end_offset, now)
        _sync(chain.active)
        self._files.sync_directory(directory)

    def truncate_to(self, end_offset: Offset) -> None:
        """The log ends here now; waits for a running flush, which knew the old end."""
        with self._flushing:
            self._flushed = min(self._flushed, end_offset)

    def restart_at(self, offset: Offset) -> None:
        """The log was emptied and begins anew."""
        with self._flushing:
            self._flushed = offset


def _sync(segment: Segment) -> None:
    try:
        segment.sync()
    except FileNotFoundError:
        # Retention may have taken it meanwhile; then there is nothing left to keep.
        if not segment.removed:
            raise
