"""A flusher that does what it was handed when the test says so."""

from __future__ import annotations

from topicfs.storage.log.flush import Flush


class ManualFlusher:
    """See `storage.log.flush.Flusher`."""

    def __init__(self) -> None:
        self.waiting: dict[Flush, None] = {}
        self.closed = False

    def submit(self, flush: Flush) -> None:
        if not self.closed:
            self.waiting[flush] = None

    def run(self) -> int:
        """Do all that waits; how many flushes that were."""
        waiting, self.waiting = self.waiting, {}
        for flush in waiting:
            flush()
        return len(waiting)

    def close(self) -> None:
        self.closed = True
        self.waiting.clear()
