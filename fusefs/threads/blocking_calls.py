"""Blocking calls (fsync, long scans) in threads, all under one bounded limiter.

The event loop has one thread. Every call that may take long, or wait long for the disk, leaves that thread through
this module alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

import trio

from topicfs.fusefs.allowance import INLINE_BYTES, THREAD_BYTES, Allowance
from topicfs.storage.remote import ThreadNeededError

T = TypeVar("T")

THREADS = 8
"""Number of calls that may wait for the disk at once; more of them queue."""


Listen: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes a function that is to be called once, and returns one that prevents the call."""


class RequestingProcess(Protocol):
    """The program that waits for its request to be answered."""

    def wants_to_end(self) -> bool:
        """Return whether nobody waits any more."""
        ...

    async def wait(self, listen: Listen) -> None:
        """Return when the function given to `listen` is called. Raises FileError if the program, or the mount, ends before."""
        ...


class BlockingCalls:
    """Calls in threads, under one limit."""

    def __init__(self, threads: int = THREADS) -> None:
        self._limiter = trio.CapacityLimiter(threads)

    async def run(
        self, call: Callable[[], T], *, abandon: bool = False, caller: RequestingProcess | None = None
    ) -> T:
        """Run `call` in a thread, and return or raise what it does. It is not cancelled half-way.

        With `abandon` a cancelled caller does not wait for its end: for calls that are ended by other means.
        """
        del caller
        return await trio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=abandon)

    async def run_inline_or_in_thread(
        self, call: Callable[[], T], caller: RequestingProcess | None = None
    ) -> T:
        """Run `call` here if it takes little, as nearly every request does, and else as a whole in a thread.

        `call` may be broken off and called again, once. Raises RequestTooLargeError if it takes more than one request may.
        """
        try:
            return Allowance(INLINE_BYTES, inline=True).bound(call)
        except ThreadNeededError:
            return await self.in_thread(call, caller)

    async def in_thread(self, call: Callable[[], T], caller: RequestingProcess | None = None) -> T:
        """Run a call that takes long, or waits for an answer, in a thread, with the allowance of one request."""
        ended = _nobody_ends if caller is None else caller.wants_to_end
        allowance = Allowance(THREAD_BYTES, inline=False, ended=ended)
        return await self.run(lambda: allowance.bound(call), caller=caller)


def _nobody_ends() -> bool:
    return False
