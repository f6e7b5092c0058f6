"""A lock for an open file: only one call runs at a time."""

from __future__ import annotations

import trio


class FifoLock:
    """A FIFO lock. Unlike a trio.Lock, a free FifoLock is acquired without a turn of the event loop."""

    __slots__ = ("_waiting", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        self._waiting: trio.lowlevel.ParkingLot | None = None

    async def __aenter__(self) -> None:
        if self.is_taken:
            self._waiting = self._waiting or trio.lowlevel.ParkingLot()
            await self._waiting.park()
        self.is_taken = True

    async def __aexit__(self, *_exception: object) -> None:
        if self._waiting:
            self._waiting.unpark()  # The lock stays held, now by the next task.
        else:
            self.is_taken = False
