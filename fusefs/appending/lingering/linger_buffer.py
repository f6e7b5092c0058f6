"""acks=0: writes are answered at once, and the lines of all writers go into large batches after a short wait."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import trio

from topicfs.fusefs.appending.targets import LineTarget

MAX_GATHERED_BYTES = 1024 * 1024
"""Text of one target that waits at most; more is appended at once."""


class Contributor(Protocol):
    """An open file whose lines wait here."""

    def failed(self, error: Exception) -> None:
        """Learn that lines of this file were not kept; told at its next write, fsync or close."""
        ...


class Gathered:
    """The lines that wait for one target."""

    __slots__ = ("chunks", "contributors", "size", "target")

    def __init__(self, target: LineTarget) -> None:
        self.target = target
        self.chunks: list[bytes] = []
        self.contributors: set[Contributor] = set()
        self.size = 0


class LingerBuffer:
    """The waiting lines of every target. Used from the event loop's thread alone."""

    def __init__(self, linger_ms: float) -> None:
        self._linger_seconds = linger_ms / 1000
        self._waiting: dict[LineTarget, Gathered] = {}

    @cached_property
    def _something(self) -> trio.Event:
        return trio.Event()

    def add(self, target: LineTarget, lines: bytes, contributor: Contributor) -> None:
        """Take lines that `target.check` has passed; a failure is told to the contributor later."""
        gathered = self._waiting.setdefault(target, Gathered(target))
        gathered.chunks.append(lines)
        gathered.contributors.add(contributor)
        gathered.size += len(lines)
        self._something.set()
        if gathered.size >= MAX_GATHERED_BYTES:
            self.append_now(target)

    def append_now(self, target: LineTarget) -> None:
        """Append what waits for one target; must run without an await in between."""
        gathered = self._waiting.pop(target, None)
        if gathered is None:
            return
        try:
            gathered.target.append(b"".join(gathered.chunks))
        except Exception as error:  # noqa: BLE001 - whatever it is, the writers are told
            for contributor in gathered.contributors:
                contributor.failed(error)

    def append_all(self) -> None:
        """Append whatever waits."""
        for gathered in list(self._waiting.values()):
            self.append_now(gathered.target)

    async def run(self) -> None:
        """Append what waits each time it has waited its while; until cancelled, then once more."""
        try:
            while True:
                await self._something.wait()
                self._something = trio.Event()
                await trio.sleep(self._linger_seconds)
                self.append_all()
        finally:
            self.append_all()
