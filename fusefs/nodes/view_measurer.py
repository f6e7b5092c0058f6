"""Measures views whose exact size is requested: in threads, and once for all callers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import trio

from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.errors import SegmentDeletedError, StorageError

SLICE_BYTES = 16 * 1024 * 1024
"""Number of bytes of batches, or of decoded records, that one call in a thread measures."""


class Measurable(Protocol):
    """The part of a view that measuring needs."""

    @property
    def measured(self) -> bool: ...

    def measure(self, *, max_bytes: int | None = None) -> bool: ...


class ViewMeasurer:
    """Measures views in threads, one slice at a time. Only for the event loop's thread."""

    def __init__(self, blocking: BlockingCalls) -> None:
        self._blocking = blocking
        self._under_way: dict[Measurable, trio.Event] = {}
        self._wanted: list[tuple[Measurable, Callable[[], None], bool]] = []
        self._some_wanted = trio.Event()

    async def measure(
        self, view: Measurable, *, seconds: float, ended: Callable[[], bool] = lambda: False
    ) -> bool:
        """Measure `view` for about `seconds`, or until `ended` returns True; return whether its size is exact."""
        if self.measured(view):
            return True
        with trio.move_on_after(seconds):
            while not self.measured(view) and not ended() and await self._slice(view):
                pass
        return view.measured

    def measured(self, view: Measurable) -> bool:
        """Return whether the size of `view` is exact; recent appends are measured immediately."""
        return view.measured

    async def _slice(self, view: Measurable) -> bool:
        """Measure a slice, or wait for the slice that is being measured; return False if records were removed."""
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
        """Measure one slice of `view`, and wait for it at most `seconds`."""
        with trio.move_on_after(seconds), suppress(StorageError):
            while (
                view in self._under_way
            ):  # The running slice may have read the end of the log before the last records arrived.
                await self._under_way[view].wait()
            await self._slice(view)

    def measure_later(self, view: Measurable, then: Callable[[], None], *, little: bool = False) -> None:
        """Queue `view` to be measured in the background; `then` is called after that. `little`: measure one slice."""
        if all(view is not wanted for wanted, *_ in self._wanted):
            self._wanted.append((view, then, little))
            self._some_wanted.set()

    async def run(self) -> None:
        """Measure queued views one after the other, until canceled."""
        while True:
            await self._some_wanted.wait()
            self._some_wanted = trio.Event()
            while self._wanted:
                view, then, little = self._wanted[0]
                with suppress(StorageError):  # The next request for the size tries again.
                    while not view.measured and await self._slice(view) and not little:
                        await trio.lowlevel.checkpoint()
                del self._wanted[0]
                then()
