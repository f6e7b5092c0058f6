"""Named timers: each runs an action at a given time, unless it is set again or cancelled before."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from itertools import count

from topicfs.coordination.groups.requests import Write
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.model import Timestamp

Action = Callable[[], Write | None]


class Timers:
    """The timers of one coordinator. Setting a timer whose name exists replaces that timer."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._set: dict[Hashable, tuple[int, int, Action]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._numbers = count()

    def set(self, name: Hashable, delay_ms: int, action: Action) -> None:
        """Set a timer that runs `action` after `delay_ms`."""
        due, number = self.clock() + delay_ms, next(self._numbers)
        self._set[name] = due, number, action
        heapq.heappush(self._heap, (due, number, name))
        if len(self._heap) > 4 * len(self._set) + 64:
            # Drop replaced entries, so that timers that are set many times do not fill the memory.
            self._heap = [(at, n, key) for key, (at, n, _) in self._set.items()]
            heapq.heapify(self._heap)

    def cancel(self, name: Hashable) -> None:
        self._set.pop(name, None)

    def cancel_all(self) -> None:
        self._set.clear()
        self._heap.clear()

    def __contains__(self, name: Hashable) -> bool:
        return name in self._set

    def next_due(self) -> Timestamp | None:
        """Return when the next timer is due; None if no timer is set."""
        while self._heap:
            due, number, name = self._heap[0]
            if self._set.get(name, (0, -1))[1] == number:
                return Timestamp(due)
            heapq.heappop(self._heap)
        return None

    def take_due(self, now: Timestamp) -> Action | None:
        """Remove the earliest timer if it is due, and return its action."""
        due = self.next_due()
        if due is None or due > now:
            return None
        name = heapq.heappop(self._heap)[2]
        return self._set.pop(name)[2]
