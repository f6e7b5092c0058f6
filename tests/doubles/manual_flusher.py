"""A flusher that runs the submitted flushes only when a test calls `run`."""

from __future__ import annotations

from topicfs.storage.log.flush import Flush


class ManualFlusher:
    """A `storage.log.flush.Flusher` whose submitted flushes wait until `run` is called."""

    def __init__(self) -> None:
        self.waiting: dict[Flush, None] = {}
        self.closed = False

    def submit(self, flush: Flush) -> None:
        if not self.closed:
            self.waiting[flush] = None

    def run(self) -> int:
        """Run all waiting flushes; return their number."""
        waiting, self.waiting = self.waiting, {}
        for flush in waiting:
            flush()
        return len(waiting)

    def close(self) -> None:
        self.closed = True
        self.waiting.clear()
