"""The writing side of an open file: lines out of its writes, and every error to the call that caused it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import trio

from fusefs.appending.framing import LINES, NOTHING, Framing, Waiting
from fusefs.appending.gathering import Gatherer
from fusefs.appending.targets import LineTarget
from fusefs.blocking import Blocking
from fusefs.errors import errno_of, file_error
from fusefs.reports import Reports
from storage.errors import InvalidConfigError

REFUSALS = frozenset({errno.EINVAL, errno.EMSGSIZE})
"""The lines themselves are at fault: writing them again would fail again."""


class Acks(Enum):
    """When a write is answered, as Kafka's producers spell it (-1 is `all`)."""

    NONE = "0"
    """At once; a failure surfaces later."""
    LEADER = "1"
    """When the batch is in the log and visible to readers."""
    ALL = "all"
    """When it is on disk."""

    @classmethod
    def parse(cls, text: str) -> Acks:
        """Read 0, 1, all or -1. Raises InvalidConfigError."""
        try:
            return cls("all" if text == "-1" else text)
        except ValueError:
            raise InvalidConfigError(f"acks={text}: must be 0, 1, all or -1") from None


@dataclass(frozen=True, slots=True)
class Appending:
    """What all open files of a mount append with."""

    acks: Acks
    gatherer: Gatherer
    blocking: Blocking
    reports: Reports
    still_held: Callable[[int, str], bool]
    """`holding.holds`: whether a process still has the file of that name open."""


class AppendHandle:
    """One open(2) for writing. Writes of the same file come one after the other: the kernel sees to it."""

    def __init__(
        self,
        target: LineTarget,
        appending: Appending,
        *,
        opener_pid: int,
        durable: bool,
        framing: Framing = LINES,
    ) -> None:
        self._target = target
        self._framing = framing
        self._appending = appending
        self._opener_pid = opener_pid
        self._durable = durable or appending.acks is Acks.ALL
        self._gathers = appending.acks is Acks.NONE and framing.gathers and not self._durable
        self._waiting = NOTHING
        self._failure: Exception | None = None
        # Only where an append waits in a thread may another request of the same file come in between.
        self._turn = trio.Lock() if self._durable else None

    async def write(self, data: bytes) -> int:
        """Take one WRITE request: its whole lines are one batch, its last begun line waits."""
        if self._turn is None:
            self._take(data)
            return len(data)
        async with self._turn:
            self._raise_earlier_failure()
            try:
                framed = self._framing.frame(self._waiting, data, self._target.max_record_bytes)
                if framed.lines:
                    await self._append_durably(framed.lines)
            except Exception as error:
                self._refuse(data, error)
                raise
            self._waiting = framed.waiting
        return len(data)

    def _take(self, data: bytes) -> None:
        """Do what nearly every write does: few steps, none of which waits."""
        if self._failure is not None:
            self._raise_earlier_failure()
        try:
            lines, waiting = self._framing.frame(self._waiting, data, self._target.max_record_bytes)
            if lines:
                self._append(lines)
        except Exception as error:
            self._refuse(data, error)
            raise
        self._waiting = waiting

    def _refuse(self, data: bytes, error: Exception) -> None:
        """An append of `data` failed: when the lines are at fault skip on, else stay as it was, for a retry."""
        if errno_of(error) in REFUSALS:
            self._waiting = self._framing.after_refusal(data)

    def _append(self, lines: bytes) -> None:
        if self._gathers:
            self._target.check(lines)
            self._appending.gatherer.add(self._target, lines, self)
        else:
            self._target.append(lines)

    async def _append_durably(self, lines: bytes) -> None:
        self._appending.gatherer.append_now(self._target)  # What was written before stands before.
        await self._appending.blocking.run(lambda: self._target.append(lines, durable=True))

    def failed(self, error: Exception) -> None:
        """Remember what befell lines that were answered before they were kept."""
        self._failure = error

    def _raise_earlier_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def flush(self) -> None:
        """Answer one close(2) of some duplicate: the begun line becomes a record unless the opener holds on."""
        self._raise_earlier_failure()
        if self._waiting.tail and not self._appending.still_held(self._opener_pid, "/" + self._target.name):
            await self._commit_tail()

    async def fsync(self) -> None:
        """Put everything written so far on disk: the begun line too, which thereby becomes a record."""
        self._raise_earlier_failure()
        await self._commit_tail()
        self._appending.gatherer.append_now(self._target)
        self._raise_earlier_failure()
        await self._appending.blocking.run(self._target.sync)

    async def release(self) -> None:
        """Commit what is left. Nobody waits for the outcome any more, so that a failure goes to the reports."""
        try:
            self._raise_earlier_failure()
            await self._commit_tail()
        except Exception as error:  # noqa: BLE001 - there is no call left to raise it in
            failure = file_error(error)
            self._appending.reports.error(self._target.name, f"lost when the file was closed: {failure}")

    async def _commit_tail(self) -> None:
        """Make a record of the begun line. It is forgotten in either case: its outcome is told once."""
        tail, self._waiting = self._waiting.tail, Waiting(skipping=self._waiting.skipping)
        if not tail:
            return
        try:
            lines = self._framing.ended(tail)
        except Exception as error:
            self._refuse(tail, error)
            raise
        if self._durable:
            await self._append_durably(lines)
        else:
            self._append(lines)
