"""A clock that stands still until it is moved."""

from __future__ import annotations

from topicfs.storage.model import Timestamp


class ManualClock:
    """Call it for the time in milliseconds since the epoch, as `storage.disk.filesystem.Clock`."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> Timestamp:
        return Timestamp(self.now)

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds
