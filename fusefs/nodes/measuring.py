"""Waiting until the exact size of a view is known, in threads, each view once however many ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from fusefs.blocking import Blocking
from storage.errors import SegmentDeletedError

SLICE_BYTES = 16 * 1024 * 1024
"""Measured at a time in a thread, of batches or of the records they inflate to."""


class Measurable(Protocol):
    """The part of a view that is of interest here."""

    @property
    def measured(self) -> bool: ...

    def measure(self, *, max_bytes: int | None = None) -> bool: ...


class MeasuringQueue:
    """The measuring that goes on. Used from the event loop's thread."""

    def __init__(self, blocking: Blocking) -> None:
        self._blocking = blocking
        self._under_way: dict[Measurable, trio.Event] = {}
        self._wanted: list[tuple[Measurable, Callable[[], None]]] = []
        self._some_wanted = trio.Event()

    async def measure(
        self, view: Measurable, *, seconds: float, ended: Callable[[], bool] = lambda: False
    ) -> bool:
        """Measure `view`, for at most about that long, or until nobody waits any more; whether its size is exact now."""
        if self.measured(view):
            return True
        with trio.move_on_after(seconds):
            while not self.measured(view) and not ended():
                await self._slice(view)
        return view.measured

    def measured(self, view: Measurable) -> bool:
        """Return whether the size is exact; what was appended lately is measured on the spot."""
        return view.measured

    async def _slice(self, view: Measurable) -> None:
        if view in self._under_way:
            await self._under_way[view].wait()
            return
        done = self._under_way[view] = trio.Event()
        try:
            await self._blocking.run(lambda: view.measure(max_bytes=SLICE_BYTES))
        except SegmentDeletedError:
            pass  # What is known of it is all there will be: who looks the name up again gets a new view.
        finally:
            del self._under_way[view]
            done.set()

    def measure_later(self, view: Measurable, then: Callable[[], None]) -> None:
        """Measure `view` behind the scenes, and call `then`. Nothing waits for it."""
        if all(view is not wanted for wanted, _then in self._wanted):
            self._wanted.append((view, then))
            self._some_wanted.set()

    async def run(self) -> None:
        """Do what is wanted behind the scenes, one view after the other; until cancelled."""
        while True:
            await self._some_wanted.wait()
            self._some_wanted = trio.Event()
            while self._wanted:
                view, then = self._wanted[0]
                while not view.measured:
                    await self._slice(view)
                    await trio.lowlevel.checkpoint()
                del self._wanted[0]
                then()
