"""acks=0: writes are answered immediately, and the lines of all writers go into large batches after a short wait.

Over a remote engine, threads append the lines. Each target has only one running append, so lines keep the order in
which their writes were answered. Lines that are written while an append runs go together into the next append.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import trio

from topicfs.fusefs.appending.targets import LineTarget
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.threads.blocking_calls import BlockingCalls, RequestingProcess
from topicfs.storage.engine import Cancel

MAX_GATHERED_BYTES = 1024 * 1024
"""Above this size, the lines of a target are appended before the linger time is over."""


Failed: TypeAlias = Callable[[Exception], None]
"""Tells an open file that its lines were not stored. The file's next write, fsync or close reports the error."""


class LingeringLines:
    """The lines that wait for a target, and the functions to call if their append fails."""

    __slots__ = ("_chunks", "_failed", "size", "target")

    def __init__(self, target: LineTarget) -> None:
        self.target = target
        self._begin()

    def _begin(self) -> None:
        self._chunks: list[bytes] = []
        self._failed: set[Failed] = set()
        self.size = 0

    def add(self, lines: bytes, failed: Failed) -> None:
        """Add lines; if their append fails later, `failed` is called."""
        self._chunks.append(lines)
        self._failed.add(failed)
        self.size += len(lines)

    def take(self) -> tuple[bytes, set[Failed]]:
        """Return and remove all lines and their functions."""
        taken = b"".join(self._chunks), self._failed
        self._begin()
        return taken


class LingerBuffer:
    """The waiting lines of every target. Only for the event loop's thread."""

    def __init__(self, linger_ms: float) -> None:
        self._linger_seconds = linger_ms / 1000
        self._waiting: dict[LineTarget, LingeringLines] = {}

    @cached_property
    def _something(self) -> trio.Event:
        return trio.Event()

    def add(self, target: LineTarget, lines: bytes, failed: Failed) -> None:
        """Add lines that `target.check` has accepted; if their append fails later, `failed` is called."""
        gathered = self._waiting.setdefault(target, LingeringLines(target))
        gathered.add(lines, failed)
        self._something.set()
        if gathered.size >= MAX_GATHERED_BYTES:
            self.append_now(target)

    def append_now(self, target: LineTarget) -> None:
        """Append the lines that wait for a target. Other tasks do not run in between."""
        gathered = self._waiting.pop(target, None)
        if gathered is None:
            return
        lines, writers = gathered.take()
        try:
            target.append(lines)
        except Exception as error:  # noqa: BLE001 - whatever it is, the writers are told
            for failed in writers:
                failed(error)

    def append_all(self) -> None:
        for target in list(self._waiting):
            self.append_now(target)

    async def run(self) -> None:
        """Append waiting lines after each linger time until canceled; then append a last time."""
        try:
            while True:
                await self._something.wait()
                self._something = trio.Event()
                await trio.sleep(self._linger_seconds)
                self.append_all()
        finally:
            self.append_all()


DRAIN_TIMEOUT_SECONDS = 2.0
"""How long the end of a mount waits for answered lines that are not appended yet."""


class _RemoteLingeringLines(LingeringLines):
    """The lines for one target of a remote engine, and the callers that wait for them to be appended."""

    __slots__ = ("_waiters", "awaited")

    def __init__(self, target: LineTarget) -> None:
        super().__init__(target)
        self.awaited = trio.Event()
        """Set when a caller waits until the lines are appended. The lines are then appended before the linger time is
        over.
        """
        self._waiters: dict[object, Callable[[], None]] = {}

    def listen(self, waiter: Callable[[], None]) -> Cancel:
        """Call `waiter` after the next append."""
        mark = object()
        self._waiters[mark] = waiter
        return lambda: self._waiters.pop(mark, None) and None

    def tell(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            waiter()


class RemoteLingerBuffer:
    """The waiting lines of every target of a remote engine. Only for the event loop's thread."""

    def __init__(self, linger_ms: float, blocking: BlockingCalls, reports: Reports) -> None:
        self._linger_seconds = linger_ms / 1000
        self._blocking, self._reports = blocking, reports
        self._lingering: dict[LineTarget, _RemoteLingeringLines] = {}

    async def add(self, target: LineTarget, lines: bytes, failed: Failed, caller: RequestingProcess) -> None:
        """Add lines that `target.check` has accepted; if their append fails later, `failed` is called.

        Waits for room if too many lines are waiting. Raises FileError if the program or the mount ends first.
        """
        while (lingering := self._lingering.get(target)) is not None and lingering.size >= MAX_GATHERED_BYTES:
            await caller.wait(lingering.listen)
        if lingering is None:
            lingering = self._lingering[target] = _RemoteLingeringLines(target)
            # A system task, because the request is answered before the task ends.
            trio.lowlevel.spawn_system_task(self._append, lingering)
        lingering.add(lines, failed)

    async def drain(self, target: LineTarget, caller: RequestingProcess | None) -> None:
        """Wait until all lines of a target are appended or have failed. Raises FileError in the same cases as `add`."""
        while (lingering := self._lingering.get(target)) is not None:
            lingering.awaited.set()
            if caller is None:
                await _next(lingering)
            else:
                await caller.wait(lingering.listen)

    async def run(self) -> None:
        """Run until canceled; then wait briefly for the last appends, and report the files whose lines may be lost."""
        try:
            await trio.sleep_forever()
        finally:
            for lingering in self._lingering.values():
                lingering.awaited.set()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + DRAIN_TIMEOUT_SECONDS):
                while self._lingering:
                    await _next(next(iter(self._lingering.values())))
            for target in self._lingering:
                self._reports.error(
                    target.name, "the last lines were not confirmed and may be stored or lost"
                )

    async def _append(self, lingering: _RemoteLingeringLines) -> None:
        """Append waiting lines until none are left."""
        while lingering.size:
            if lingering.size < MAX_GATHERED_BYTES:
                with trio.move_on_after(self._linger_seconds):
                    await lingering.awaited.wait()
            lines, writers = lingering.take()
            try:
                await self._blocking.run(lambda lines=lines: lingering.target.append(lines))  # type: ignore[misc] # a default binds it
            except Exception as error:  # noqa: BLE001 - whatever it is, the writers are told
                for failed in writers:
                    failed(error)
            if not lingering.size:
                del self._lingering[lingering.target]
            lingering.tell()


async def _next(lingering: _RemoteLingeringLines) -> None:
    """Wait for the next append of `lingering`."""
    appended = trio.Event()
    lingering.listen(appended.set)
    await appended.wait()
