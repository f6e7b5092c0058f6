"""Blocking calls (fsync, long scans) in threads, all under one bounded limiter.

The event loop has one thread; whatever may wait for the disk for long, or take long, leaves it through here and nowhere
else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

import trio

from fusefs.allowance import INLINE_BYTES, THREAD_BYTES, Allowance
from storage.remote import ThreadNeededError

T = TypeVar("T")

THREADS = 8
"""Calls that wait for the disk at once; more of them queue."""


Listen: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes what is to be called once; what is returned prevents that."""


class Asker(Protocol):
    """The program that waits for its request to be answered."""

    def wants_to_end(self) -> bool:
        """Return whether nobody waits any more."""
        ...

    async def wait(self, listen: Listen) -> None:
        """Return when what was given to `listen` is called. Raises FileError once the program, or the mount, ends."""
        ...


class Blocking:
    """The one way into a thread."""

    def __init__(self, threads: int = THREADS) -> None:
        self._limiter = trio.CapacityLimiter(threads)

    async def run(self, call: Callable[[], T], *, abandon: bool = False, asker: Asker | None = None) -> T:
        """Run `call` in a thread and give what it returns or raises. Not cancelled half-way, whoever asked for it.

        With `abandon` who is cancelled does not wait for its end: for what is ended by other means.
        """
        del asker
        return await trio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=abandon)

    async def patiently(self, call: Callable[[], T], asker: Asker | None = None) -> T:
        """Do here what takes little, as nearly every request does; begin again in a thread what turns out to take more.

        `call` may be ended half-way and called again. Raises RequestTooLargeError where it takes more than one request may.
        """
        try:
            return Allowance(INLINE_BYTES, inline=True).bound(call)
        except ThreadNeededError as reason:
            return await self.again(call, reason, asker)

    async def again(self, call: Callable[[], T], reason: ThreadNeededError, asker: Asker | None = None) -> T:
        """Do again what could not be done in the event loop's thread, for a reason."""
        del reason
        return await self.in_thread(call, asker)

    async def in_thread(self, call: Callable[[], T], asker: Asker | None = None) -> T:
        """Do what takes long in a thread, with the allowance of one request."""
        ended = _nobody_ends if asker is None else asker.wants_to_end
        allowance = Allowance(THREAD_BYTES, inline=False, ended=ended)
        return await self.run(lambda: allowance.bound(call), asker=asker)


def _nobody_ends() -> bool:
    return False
