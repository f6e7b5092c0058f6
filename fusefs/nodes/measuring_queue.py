"""The queue of views whose exact size is wanted: measured in threads, each once however many ask."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import trio

from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.errors import SegmentDeletedError, StorageError

SLICE_BYTES = 16 * 1024 * 1024
"""Measured at a time in a thread, of batches or of the records they inflate to."""


class Measurable(Protocol):
    """The part of a view that is of interest here."""

    @property
    def measured(self) -> bool: ...

    def measure(self, *, max_bytes: int | None = None) -> bool: ...


class MeasuringQueue:
    """The measuring that goes on. Used from the event loop's thread."""

    def __init__(self, blocking: BlockingCalls) -> None:
        self._blocking = blocking
        self._under_way: dict[Measurable, trio.Event] = {}
        self._wanted: list[tuple[Measurable, Callable[[], None], bool]] = []
        self._some_wanted = trio.Event()

    async def measure(
        self, view: Measurable, *, seconds: float, ended: Callable[[], bool] = lambda: False
    ) -> bool:
        """Measure `view`, for at most about that long, or until nobody waits any more; return whether its size is exact now."""
        if self.measured(view):
            return True
        with trio.move_on_after(seconds):
            while not self.measured(view) and not ended() and await self._slice(view):
                pass
        return view.measured

    def measured(self, view: Measurable) -> bool:
        """Return whether the size is exact; what was appended lately is measured on the spot."""
        return view.measured

    async def _slice(self, view: Measurable) -> bool:
        """Measure on, or wait for who does; False where what comes next is gone.

        Who looks the name up again gets a new view then.
        """
        if view in self._under_way:
            await self._under_way[view].wait()
            return True
        done = self._under_way[view] = trio.Event()
        try:
            await self._blocking.run(lambda: view.measure(max_bytes=SLICE_BYTES))
        except SegmentDeletedError:
            return False
        finally:
            del self._under_way[view]
            done.set()
        return True

    async def measure_little(self, view: Measurable, *, seconds: float) -> None:
        """Measure one slice of `view`, and wait for it for so long."""
        with trio.move_on_after(seconds), suppress(StorageError):
            while view in self._under_way:  # That may have looked for the end before the last records came.
                await self._under_way[view].wait()
            await self._slice(view)

    def measure_later(self, view: Measurable, then: Callable[[], None], *, little: bool = False) -> None:
        """Measure `view` behind the scenes, or a slice of it if that is to be little, and call `then`. Nothing waits for it."""
        if all(view is not wanted for wanted, *_ in self._wanted):
            self._wanted.append((view, then, little))
            self._some_wanted.set()

    async def run(self) -> None:
        """Do what is wanted behind the scenes, one view after the other; until cancelled."""
        while True:
            await self._some_wanted.wait()
            self._some_wanted = trio.Event()
            while self._wanted:
                view, then, little = self._wanted[0]
                with suppress(StorageError):  # Who asks for the size again has it tried again.
                    while not view.measured and await self._slice(view) and not little:
                        await trio.lowlevel.checkpoint()
                del self._wanted[0]
                then()
