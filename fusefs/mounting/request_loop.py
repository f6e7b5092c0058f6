"""The shorter request loops, the direct one and the short one.

The direct one (`fusefs.requests`) answers most requests before pyfuse3 sees them. For all others, and where it cannot be
had, there is the short one, which reads the kernel's next request before asking the event loop whether there is one:

    pyfuse3, for each request                       with the stand-in
    acquire a trio.Lock        scheduler, epoll     free: taken at once; the loop goes on with the task that has it
    trio's wait_readable       scheduler, epoll     poll(2) without waiting; only when nothing is there the same
    read, handle, answer                            read, handle, answer

Nearly half of what a request costs is trio's scheduler. pyfuse3 reaches trio through one name of its module, which
its own asyncio mode replaces too; so here a stand-in for trio takes that name. All of it is trio, but for the two
things above. In either loop everything else (timers, signals, what threads bring back, reads that wait) gets its
turn after `REQUESTS_IN_A_ROW` requests or `NANOSECONDS_IN_A_ROW`, and whenever no request is there.

Both rest on how pyfuse3's loop is written, so they are used with versions alone that were read for this (`fits`).
"""

from __future__ import annotations

import select
import time
from enum import Enum
from types import ModuleType
from typing import Any

import trio

from topicfs.fusefs.requests.common_requests import may_stand_in_front
from topicfs.storage.errors import InvalidConfigError

REQUESTS_IN_A_ROW = 64
"""Served before others get their turn, which costs about as much as half a request."""

NANOSECONDS_IN_A_ROW = 1_000_000
"""Served before others get their turn: of large reads and writes that is a few."""

READ_VERSIONS = ("3.5.",)
"""Beginnings of the versions of pyfuse3 whose request loop does what the stand-in counts on: one lock around the
wait for the descriptor, a look at the end of the session between the two, and no await between the wait and the read."""


class RequestLoop(Enum):
    """The ways in which requests are fetched from the kernel, the shortest first."""

    DIRECT = "direct"
    """With the stand-in, and the common requests are answered before pyfuse3 gets them (`fusefs.requests`)."""
    SHORT = "short"
    """With the stand-in."""
    PLAIN = "plain"
    """As pyfuse3 does by itself."""


def fits(library: ModuleType) -> bool:
    """Return whether the stand-in can take trio's place in this pyfuse3."""
    return library.__version__.startswith(READ_VERSIONS) and library.trio in (trio, _STAND_IN)


def choose(asked: RequestLoop | None, library: ModuleType) -> RequestLoop:
    """The request loop asked for, or else the first of them that fits. Raises InvalidConfigError for one asked for that does not fit."""
    if asked is RequestLoop.PLAIN:
        return asked
    if fits(library):
        if asked is RequestLoop.SHORT or (asked is None and not may_stand_in_front()):
            return RequestLoop.SHORT
        if may_stand_in_front():
            return RequestLoop.DIRECT
        raise InvalidConfigError(
            "the direct request loop needs its compiled modules (scripts/prepare.sh), loaded before libfuse; leave it out, "
            "or ask for the short one"
        )
    if asked is None:
        return RequestLoop.PLAIN
    raise InvalidConfigError(
        f"the {asked.value} request loop does not fit pyfuse3 {library.__version__}, only "
        f"{', '.join(version + 'x' for version in READ_VERSIONS)}; leave it out, or ask for the plain one"
    )


def slow_loop_warning(asked: RequestLoop | None, chosen: RequestLoop, library: ModuleType) -> str | None:
    """Return why the slow request loop is used; None if a fast one is used, or the slow one was asked for."""
    if asked is not None or chosen is not RequestLoop.PLAIN:
        return None
    known = ", ".join(version + "x" for version in READ_VERSIONS)
    return f"slow request loop: pyfuse3 {library.__version__} is not known here; install version {known}"


def use(loop: RequestLoop, library: ModuleType) -> None:
    """Have pyfuse3 fetch requests by `loop`, which `choose` returned; before its main loop starts."""
    library.trio = trio if loop is RequestLoop.PLAIN else _STAND_IN  # type: ignore[attr-defined] # its own import, untold by its types


class Turns:
    """The number of requests that were served in a row."""

    __slots__ = ("_requests", "_until")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin to count: everybody else has just had a turn."""
        self._requests = 0
        self._until = time.monotonic_ns() + NANOSECONDS_IN_A_ROW

    def is_over(self, now: int) -> bool:
        """Count one request, which ended at `now` by the monotonic clock; return whether it is the others' turn."""
        self._requests += 1
        return self._requests >= REQUESTS_IN_A_ROW or now >= self._until


class RequestLock:
    """The stand-in for trio.Lock around the wait for a request: a free one is taken without a turn of the scheduler.

    It is not handed on: who releases it may take it again before the one who was woken for it runs. That one waits
    on then; it runs as soon as the other waits for anything, and so requests are always fetched by somebody.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._held = False
        self._woken = False
        self._waiting = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        if self._turns.is_over(time.monotonic_ns()):
            # Here and not behind the lock: pyfuse3 looks for the end of the session between lock and wait, and an
            # end told in between would be waited for in vain.
            await trio.lowlevel.checkpoint()
            self._turns.begin()
        while self._held:
            await self._waiting.park()
            self._woken = False
        self._held = True

    async def __aexit__(self, *_exception: object) -> None:
        self._held = False
        if self._waiting and not self._woken:
            self._woken = True
            self._waiting.unpark()


class _LowLevel:
    """The stand-in for `trio.lowlevel`."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._descriptor = -1
        self._poll = select.poll()

    async def wait_readable(self, descriptor: int) -> None:
        """Return at once when there is something to read."""
        if descriptor != self._descriptor:
            self._descriptor, self._poll = descriptor, select.poll()
            self._poll.register(descriptor, select.POLLIN)
        if not self._poll.poll(0):
            await trio.lowlevel.wait_readable(descriptor)
            self._turns.begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(trio.lowlevel, name)


class _StandIn:
    """The stand-in for the module `trio`, for pyfuse3 alone."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.lowlevel = _LowLevel(self.turns)

    def Lock(self) -> RequestLock:  # noqa: N802 - trio's name
        return RequestLock(self.turns)

    def __getattr__(self, name: str) -> Any:
        return getattr(trio, name)


_STAND_IN = _StandIn()


def turns() -> Turns:
    """Return what counts the requests that were served in a row, wherever they are answered."""
    return _STAND_IN.turns
