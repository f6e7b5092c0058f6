"""Runs blocking calls (fsync, long scans) in threads, up to a common limit.

The event loop has one thread. Calls that may compute for long or wait for the disk leave it through this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

import trio

from topicfs.fusefs.allowance import INLINE_BYTES, THREAD_BYTES, Allowance
from topicfs.storage.remote import ThreadNeededError

T = TypeVar("T")

DISK_THREADS = 8
"""Number of calls that may wait for the disk at a time; further calls queue."""


Listen: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes a function to be called once, and returns a function that cancels the call."""


class RequestingProcess(Protocol):
    """The program whose request waits for an answer."""

    def wants_to_end(self) -> bool:
        """Return whether the program no longer waits."""
        ...

    async def wait(self, listen: Listen) -> None:
        """Return when the function given to `listen` is called. Raises FileError if the program or the mount ends."""
        ...


class BlockingCalls:
    """Runs calls in threads, with a limit."""

    def __init__(self, threads: int = DISK_THREADS) -> None:
        self._limiter = trio.CapacityLimiter(threads)

    async def run(
        self, call: Callable[[], T], *, abandon: bool = False, caller: RequestingProcess | None = None
    ) -> T:
        """Run `call` in a thread, and return its result or raise its error. A running call is not canceled.

        With `abandon`, a canceled caller does not wait for the call. Use `abandon` only for calls that something else
        ends.
        """
        del caller
        return await trio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=abandon)

    async def run_inline_or_in_thread(
        self, call: Callable[[], T], caller: RequestingProcess | None = None
    ) -> T:
        """Run `call` here if it is short, as nearly every request is; otherwise run it again in a thread.

        `call` may be aborted and called a second time. Raises RequestTooLargeError if it exceeds a request's limits.
        """
        try:
            return Allowance(INLINE_BYTES, inline=True).bound(call)
        except ThreadNeededError:
            return await self.in_thread(call, caller)

    async def in_thread(self, call: Callable[[], T], caller: RequestingProcess | None = None) -> T:
        """Run a call that takes long, or waits for an answer, in a thread. The call gets the allowance THREAD_BYTES."""
        ended = (lambda: False) if caller is None else caller.wants_to_end
        allowance = Allowance(THREAD_BYTES, inline=False, ended=ended)
        return await self.run(lambda: allowance.bound(call), caller=caller)
