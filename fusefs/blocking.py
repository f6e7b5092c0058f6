"""Blocking calls (fsync, long scans) in threads, all under one bounded limiter.

The event loop has one thread; whatever may wait for the disk for long, or take long, leaves it through here and nowhere
else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from fusefs.allowance import INLINE_BYTES, THREAD_BYTES, Allowance, ThreadNeededError

T = TypeVar("T")

THREADS = 8
"""Calls that wait for the disk at once; more of them queue."""


class Blocking:
    """The one way into a thread."""

    def __init__(self, threads: int = THREADS) -> None:
        self._limiter = trio.CapacityLimiter(threads)

    async def run(self, call: Callable[[], T], *, abandon: bool = False) -> T:
        """Run `call` in a thread and give what it returns or raises. Not cancelled half-way.

        With `abandon` who is cancelled does not wait for its end: for what is ended by other means.
        """
        return await trio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=abandon)

    async def patiently(self, call: Callable[[], T], *, ended: Callable[[], bool] = lambda: False) -> T:
        """Do here what takes little, as nearly every request does; begin again in a thread what turns out to take more.

        `call` may be ended half-way and called again; `ended` says whether nobody waits for it any more. Raises RequestTooLargeError where it takes more than one request may.
        """
        try:
            return Allowance(INLINE_BYTES, inline=True).bound(call)
        except ThreadNeededError:
            return await self.in_thread(call, ended=ended)

    async def in_thread(self, call: Callable[[], T], *, ended: Callable[[], bool] = lambda: False) -> T:
        """Do what takes long in a thread, with the allowance of one request."""
        allowance = Allowance(THREAD_BYTES, inline=False, ended=ended)
        return await self.run(lambda: allowance.bound(call))
