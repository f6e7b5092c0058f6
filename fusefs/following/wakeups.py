"""Wakeups: news from any thread, delivered in the event loop's thread; several pieces of news are combined.

    append ─► signal ─► listeners            the mount's own, which are few: all of them immediately
                     └► waiters ─► waker     WAKEUPS_PER_TURN of them now, and as many in each later turn of the event loop

Only a few waiting reads and polls are woken per turn, so that thousands of waiters delay no other requests.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import trio

from topicfs.storage.engine import Cancel

WAKEUPS_PER_TURN = 8
"""Waiters woken in one turn of the event loop, including the turn of the append. Each waiter takes about 50 µs."""

Waiters: TypeAlias = dict[object, Callable[[], None]]


class Waker:
    """The queue of a mount's waiters, in the order of their news. Only for the event loop's thread."""

    def __init__(self) -> None:
        self._due: deque[Waiters] = deque()
        self.is_busy = False
        """True while waiters are queued. A caller with similar work then calls `turn` to wait until they were woken."""

    def run_soon(self) -> Callable[[Callable[[], None]], None]:
        """Return a thread-safe function that runs a callback in the event loop.

        After the end of the event loop, the function raises RunFinishedError.
        """
        return trio.lowlevel.current_trio_token().run_sync_soon

    async def turn(self) -> None:
        """Wait until the queued waiters were woken."""
        event = trio.Event()
        self.wake({event: event.set})
        await event.wait()

    def wake(self, waiters: Waiters) -> None:
        """Call and remove each of `waiters`: some now, the others in later turns, unless they are canceled."""
        self._due.append(waiters)
        if not self.is_busy:
            self._wake_some()

    def _wake_some(self) -> None:
        for _ in range(WAKEUPS_PER_TURN):
            while self._due and not self._due[0]:
                self._due.popleft()
            if not self._due:
                break
            self._due[0].popitem()[1]()
        self.is_busy = any(self._due)
        if self.is_busy:
            self.run_soon()(self._wake_some)


class Wakeups:
    """News from any thread, delivered to listeners and waiters in the event loop."""

    def __init__(self, waker: Waker) -> None:
        self._listeners: list[Callable[[], None]] = []
        self.news_count = 0
        """Number of deliveries."""
        self._waiters: Waiters = {}
        self._waker = waker
        self._thread = threading.get_ident()
        self._run_soon = waker.run_soon()
        self._lock = threading.Lock()
        self._scheduled = False

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` immediately at each delivery, for the lifetime of this object."""
        self._listeners.append(listener)

    @property
    def is_awaited(self) -> bool:
        """True if anything waits for the next news."""
        return bool(self._waiters)

    def wait(self, waiter: Callable[[], None]) -> Cancel:
        """Call `waiter` once, soon after the next news; the returned function cancels the call."""
        waiters, mark = self._waiters, object()
        waiters[mark] = waiter
        return lambda: waiters.pop(mark, None) and None

    def signal(self) -> None:
        """Deliver news: immediately in the event loop's thread, soon from any other thread."""
        if threading.get_ident() == self._thread:
            self.deliver()
            return
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        with contextlib.suppress(trio.RunFinishedError):
            self._run_soon(self._deliver_scheduled)

    def _deliver_scheduled(self) -> None:
        with self._lock:
            self._scheduled = False
        self.deliver()

    def deliver(self) -> None:
        """Do the same as `signal`, for callers in the event loop's thread."""
        self.news_count += 1
        for listener in self._listeners:
            listener()
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            self._waker.wake(waiters)
