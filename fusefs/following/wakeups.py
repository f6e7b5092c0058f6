"""News from any thread, delivered in the event loop's thread, many pieces of news as one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import trio


class Wakeups:
    """Calls its listeners in the event loop after `signal` was called from anywhere."""

    def __init__(self) -> None:
        self._listeners: tuple[tuple[object, Callable[[], None]], ...] = ()
        self._thread = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._scheduled = False

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` from now on; returns what ends it."""
        mark = object()
        self._listeners = (*self._listeners, (mark, listener))

        def end() -> None:
            self._listeners = tuple(entry for entry in self._listeners if entry[0] is not mark)

        return end

    def signal(self) -> None:
        """Tell the listeners: at once in the event loop's own thread, soon from any other."""
        if threading.get_ident() == self._thread:
            for _, listener in self._listeners:
                listener()
            return
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._deliver_scheduled)

    def _deliver_scheduled(self) -> None:
        with self._lock:
            self._scheduled = False
        self._deliver()

    def _deliver(self) -> None:
        for _, listener in self._listeners:
            listener()
