"""Who is told that a log has grown, or that its start has moved."""

from __future__ import annotations

import threading
from collections.abc import Callable

from storage.engine import Cancel


class Listeners:
    """A set of callables as an immutable tuple: calling them needs no lock, and one may cancel itself meanwhile."""

    __slots__ = ("_listeners", "_lock")

    def __init__(self) -> None:
        self._listeners: tuple[tuple[object, Callable[[], None]], ...] = ()
        self._lock = threading.Lock()

    def add(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener` from now on; what is returned ends it. The same callable may be added twice."""
        mark = object()
        with self._lock:
            self._listeners = (*self._listeners, (mark, listener))

        def cancel() -> None:
            with self._lock:
                self._listeners = tuple(entry for entry in self._listeners if entry[0] is not mark)

        return cancel

    def notify(self) -> None:
        for _, listener in self._listeners:
            listener()
