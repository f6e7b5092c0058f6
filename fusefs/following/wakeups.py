"""News from any thread, delivered in the event loop's thread, many pieces of news as one.

    append ─► signal ─► listeners            all of them, at once: a few, the mount's own
                     └► waiters ─► waker     WAKEUPS_PER_TURN of them now, as many in each turn of the event loop from then on

Reads and polls that wait are woken a few in a turn, so that an append and whatever else is asked of the mount takes no
longer with thousands of them.
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
"""Number of waiters woken in one turn of the event loop, that of the append included: each then takes some 50 µs."""

Waiters: TypeAlias = dict[object, Callable[[], None]]


class Waker:
    """The queue of the waiters of a mount, in the order of the news. Used from the event loop's thread."""

    def __init__(self) -> None:
        self._due: deque[Waiters] = deque()
        self.is_busy = False
        """True if others are due: a caller with work of the same kind queues behind them with `turn`."""

    def run_soon(self) -> Callable[[Callable[[], None]], None]:
        """Return a function with which any thread has the event loop run something soon. It raises RunFinishedError after the loop's end."""
        return trio.lowlevel.current_trio_token().run_sync_soon

    async def turn(self) -> None:
        """Wait behind those that are due."""
        event = trio.Event()
        self.wake({event: event.set})
        await event.wait()

    def wake(self, waiters: Waiters) -> None:
        """Call and remove each of `waiters`, some of them later; one that is removed meanwhile is not called."""
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
    """News that may come from any thread and is delivered to listeners and waiters in the event loop."""

    def __init__(self, waker: Waker) -> None:
        self._listeners: list[Callable[[], None]] = []
        self.news_count = 0
        """Number of times that news was delivered."""
        self._waiters: Waiters = {}
        self._waker = waker
        self._thread = threading.get_ident()
        self._run_soon = waker.run_soon()
        self._lock = threading.Lock()
        self._scheduled = False

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` at once with all news, as long as this lives."""
        self._listeners.append(listener)

    @property
    def is_awaited(self) -> bool:
        """True if anything waits for the next news."""
        return bool(self._waiters)

    def wait(self, waiter: Callable[[], None]) -> Cancel:
        """Call `waiter` once, soon after the next news; the function that is returned prevents the call."""
        waiters, mark = self._waiters, object()
        waiters[mark] = waiter
        return lambda: waiters.pop(mark, None) and None

    def signal(self) -> None:
        """Deliver news: at once in the event loop's own thread, soon from any other."""
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
        """Do what `signal` does, for a caller in the event loop's thread."""
        self.news_count += 1
        for listener in self._listeners:
            listener()
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            self._waker.wake(waiters)
