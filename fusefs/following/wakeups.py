"""News from any thread, delivered in the event loop's thread, many pieces of news as one."""

from __future__ import annotations

import contextlib
import threading

import trio

from storage.engine import Listeners


class Wakeups:
    """Calls its listeners in the event loop after `signal` was called from anywhere."""

    def __init__(self) -> None:
        self.listeners = Listeners()
        self._thread = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._scheduled = False

    def signal(self) -> None:
        """Tell the listeners: at once in the event loop's own thread, soon from any other."""
        if threading.get_ident() == self._thread:
            self.listeners.notify()
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
        self.listeners.notify()
