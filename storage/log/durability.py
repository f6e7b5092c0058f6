"""What of a log is on disk, and getting the rest there."""

from __future__ import annotations

import threading
from pathlib import Path

from storage.disk.filesystem import FileSystem
from storage.log.chain import Chain
from storage.log.segment import Segment
from storage.model import Offset, Timestamp


class Durability:
    """Keeps the recovery point: everything below it was flushed. One flush at a time; those who wait share it."""

    def __init__(self, files: FileSystem, recovery_point: Offset, now: Timestamp) -> None:
        self._files = files
        self._flushing = threading.Lock()
        self.recovery_point = recovery_point
        self.last_flush_ms = now

    def flush(self, directory: Path, chain: Chain, up_to: Offset, now: Timestamp) -> None:
        """All offsets below `up_to` are on disk when this returns (blocking). OSError: what is lost is unknown."""
        with self._flushing:
            start = self.recovery_point
            if up_to <= start:
                return
            segments = chain.overlapping(start, up_to)
            for segment in segments:
                _sync(segment)
            if not segments or segments[-1].base_offset >= start:
                # A segment newer than the last flush: its name must be on disk too.
                self._files.sync_directory(directory)
            self.recovery_point = up_to
            self.last_flush_ms = now

    def flush_all(self, directory: Path, chain: Chain, end_offset: Offset, now: Timestamp) -> None:
        """Flush the active segment too though nothing in it is new, and every name: for a clean close."""
        self.flush(directory, chain, end_offset, now)
        _sync(chain.active)
        self._files.sync_directory(directory)

    def truncate_to(self, end_offset: Offset) -> None:
        """The log ends here now; waits for a running flush, which knew the old end."""
        with self._flushing:
            self.recovery_point = min(self.recovery_point, end_offset)

    def restart_at(self, offset: Offset) -> None:
        """The log was emptied and begins anew."""
        with self._flushing:
            self.recovery_point = offset


def _sync(segment: Segment) -> None:
    try:
        segment.sync()
    except FileNotFoundError:
        # Retention may have taken it meanwhile; then there is nothing left to keep.
        if not segment.removed:
            raise
