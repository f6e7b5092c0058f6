"""Turns at an open file, one call after the other."""

from __future__ import annotations

import trio


class FifoLock:
    """A lock that is passed on in the order of arrival; free, it is taken without a turn of the event loop, unlike trio.Lock."""

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
            self._waiting.unpark()  # It stays taken, by the next.
        else:
            self.is_taken = False
