"""A clock that stands still unless a test sets it."""

from __future__ import annotations

from topicfs.storage.model import Timestamp


class ManualClock:
    """A `storage.disk.filesystem.Clock` that a test sets: a call returns the time in milliseconds since 1970."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> Timestamp:
        return Timestamp(self.now)

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds
