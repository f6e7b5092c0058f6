"""The writing side of an open file: splits its writes into lines, and reports each error to the call that caused it."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import trio

from topicfs.fusefs.appending.failed_write import FailedWrite, may_go_on
from topicfs.fusefs.appending.framing import LINES, NOTHING, Framed, Framing, FramingState
from topicfs.fusefs.appending.in_flight import WritesInFlight
from topicfs.fusefs.appending.linger_buffer import LingerBuffer, RemoteLingerBuffer
from topicfs.fusefs.appending.targets import LineTarget
from topicfs.fusefs.errors import FileError, Refusal, errno_of, file_error
from topicfs.fusefs.processes.open_descriptors import appends
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.threads.blocking_calls import BlockingCalls, RequestingProcess
from topicfs.fusefs.threads.remote import UnansweredError
from topicfs.fusefs.threads.turn import FifoLock
from topicfs.storage.errors import InvalidConfigError, NotEnoughReplicasAfterAppendError

LINES_AT_FAULT = (errno.EINVAL, errno.EMSGSIZE)
"""Errors that the lines themselves cause: writing the same lines again would fail again."""

RELEASE_SECONDS = 2.0
"""Longest time to wait for a remote engine when a file is closed or the mount ends.

When a file is closed, the engine may still have to append the incomplete last line.
"""


class Acks(Enum):
    """When a write is answered: the values of Kafka's `acks` for producers (-1 is `all`)."""

    NONE = "0"
    """Answered immediately; a later call reports a failure."""
    LEADER = "1"
    """Answered when the batch is in the log and visible to readers."""
    ALL = "all"
    """Answered when the batch is on disk."""

    @classmethod
    def parse(cls, text: str) -> Acks:
        """Parse 0, 1, all or -1. Raises InvalidConfigError."""
        try:
            return cls("all" if text == "-1" else text)
        except ValueError:
            raise InvalidConfigError(f"acks={text}: must be 0, 1, all or -1") from None


class Appending(NamedTuple):
    """The objects and settings with which all open files of a mount append."""

    acks: Acks
    linger_buffer: LingerBuffer
    blocking: BlockingCalls
    reports: Reports
    still_held: Callable[[int, str], bool]
    """`open_descriptors.holds`: returns whether a process (by ID) still has a file (by path) open."""
    caller: Callable[[int, str], RequestingProcess] | None = None
    """Remote engine only. Returns the program that waits for an answer, given its process ID and the path of its
    file.
    """
    remote_linger: RemoteLingerBuffer | None = None
    """Remote engine only: collects lines instead of `linger_buffer`."""
    max_in_flight: int = 1
    """Remote engine only: how many large writes of one open file may run at a time."""


class AppendHandle:
    """One open(2) for writing. The kernel serializes writes to the same file."""

    def __init__(
        self,
        target: LineTarget,
        appending: Appending,
        *,
        opener_pid: int,
        durable: bool,
        framing: Framing = LINES,
    ) -> None:
        """Open `target` for the process `opener_pid`."""
        self._target = target
        self._framing = framing
        self._appending = appending
        self._opener_pid = opener_pid
        self._durable = durable or appending.acks is Acks.ALL
        self._caller = None if appending.caller is None else appending.caller(opener_pid, "/" + target.name)
        self._remote = self._caller is not None
        self._threaded = self._durable or self._remote or framing.asks_elsewhere
        can_linger = not self._remote or appending.remote_linger is not None
        self._lingers = appending.acks is Acks.NONE and framing.lingers and not self._durable and can_linger
        ahead = self._remote and appending.max_in_flight > 1 and not (durable or self._lingers)
        self._in_flight: WritesInFlight | None = None
        """Appends that still run although their writes were answered."""
        if ahead and target.begin is not None:
            self._in_flight = WritesInFlight(target.begin, appending.max_in_flight, durable=self._durable)
        self._checked = b""
        """Remote engine only: lines that a thread has checked and that are not in the linger buffer yet."""
        self._waiting = NOTHING
        """The framing state for the next write; after a failed write, the state before that write."""
        self._failed: FailedWrite | None = None
        """The last write, if it failed and none of its lines was kept."""
        self._taken_bytes = 0
        """Size of the last request, if it was accepted."""
        self._failure: Exception | None = None
        self._released = False
        self._unanswered: UnansweredError | None = None
        """The error of an abandoned append, which may still run. After this error, the content of the file is
        unknown.
        """
        self.waits = self._threaded or framing.may_take_long
        """True if an append may wait in a thread: the caller must then call `write` instead of `take`."""
        self._turn = FifoLock()

    async def write(self, data: bytes) -> int:
        """Process one WRITE request: append its whole lines as one batch, and keep the incomplete last line."""
        if not self.waits:
            return self.take(data)
        async with self._turn:
            if self._remote:  # Framing asks the remote engine for the largest record size.
                await self._run(lambda: self.take(data))
                await self._linger_checked()
                return len(data)
            if self._failed is not None and (again := self._failed.kept_of(data)):
                await self._confirm(data[:again])
                return again
            lines, waiting = self._frame(data)
            if lines:
                try:
                    await self._append_waiting(lines)
                except Exception as error:
                    self._fail(data, error, waiting)
                    raise
            self._waiting, self._failed, self._taken_bytes = waiting, None, len(data)
        return len(data)

    async def _confirm(self, again: bytes) -> None:
        """Wait until enough disks have the records of `again`, the repeated bytes of a failed write; then accept them."""
        await self._run(self._target.sync)
        failed = self._failed
        assert failed is not None, "the write before this one failed"
        self._waiting = self._framing.frame(self._waiting, again, self._target.max_record_bytes).waiting
        rest = failed.data[len(again) :]
        self._failed = failed._replace(data=rest) if rest else None
        self._taken_bytes = len(again)

    def take(self, data: bytes) -> int:
        """Process a WRITE request like `write`, for appends that do not wait; return the size."""
        sound = self._failed is None and self._failure is None
        if sound and self._waiting is NOTHING and self._framing.is_whole(data):
            lines, waiting = data, NOTHING  # The common case.
        else:
            lines, waiting = self._frame(data)
        if lines:
            try:
                self._append(lines)
            except Exception as error:
                self._fail(data, error, waiting)
                raise
        self._waiting, self._failed, self._taken_bytes = waiting, None, len(data)
        return len(data)

    def _frame(self, data: bytes) -> Framed:
        if self._failure is not None or self._failed is not None:
            self._look_back(data)
        waiting = self._waiting
        try:
            framed = self._framing.frame(waiting, data, self._target.max_record_bytes)
        except Exception as error:
            self._fail(data, error)
            raise
        if waiting.refused is not None and framed.is_empty:
            self._waiting = framed.waiting
            raise waiting.refused.with_traceback(None)
        return framed

    def _fail(self, data: bytes, error: Exception, waiting: FramingState | None = None) -> None:
        """Record that no line of `data` was kept; `waiting` is the framing state after `data`, if known."""
        if waiting is None or errno_of(error) in LINES_AT_FAULT:
            after = self._framing.after_refusal(data, error)
        else:
            after = FramingState(refused=error) if waiting.tail else waiting
        self._failed = FailedWrite(data, error, after, unheard=may_go_on(self._taken_bytes))
        self._taken_bytes = 0

    def _look_back(self, data: bytes) -> None:
        """Find out whether `data` repeats the failed write.

        If `data` is new and the kernel may drop the failed write's error, raises that error.
        """
        if self._failure is not None:
            self._fail(data, self._failure)
            self._raise_earlier_failure(again=self._failed is not None and self._failed.unheard)
        failed = self._failed
        if failed is None or data.startswith(failed.data):
            return
        if failed.unheard:
            after = self._framing.after_refusal(data, failed.error)
            self._failed = failed._replace(unheard=False, after=after)
            raise failed.error.with_traceback(None)
        self._waiting = failed.followed_by(data, self._waiting)
        self._failed = None

    def _append(self, lines: bytes) -> None:
        if self._in_flight is not None:
            try:
                self._in_flight.append(lines)
            except Exception as error:
                if self._unanswered is not None:
                    self._report_lost(error)  # The program has ended, so nobody else can report the error.
                # If the kernel may drop the error, keep the error for a later call. The program may write
                # these bytes again, but that does not repair an earlier write.
                self._failure = error if may_go_on(self._taken_bytes) else None
                raise
        elif self._lingers:
            self._target.check(lines)
            if self._remote:
                self._checked = lines  # The linger buffer belongs to the event loop's thread.
            else:
                self._appending.linger_buffer.add(self._target, lines, self.failed)
        elif self._durable:
            self._target.append(lines, durable=True)
        else:
            self._target.append(lines)

    async def _append_waiting(self, lines: bytes) -> None:
        """Append `lines`. If the append waits for the disk or takes long to check, a thread appends them."""
        if not self._threaded and not self._framing.takes_long(lines):
            self._append(lines)
            return
        await self._append_lingering()  # Append earlier lines first.
        await self._run(lambda: self._target.append(lines, durable=self._durable))

    async def _linger_checked(self) -> None:
        """Add checked lines to the linger buffer.

        If the program ends while this call waits for room, the file becomes unusable.
        """
        lines, self._checked = self._checked, b""
        remote = self._appending.remote_linger
        if not lines or remote is None or self._caller is None:
            return
        try:
            await remote.add(self._target, lines, self.failed, self._caller)
        except FileError as error:
            self._unanswered = UnansweredError(error.number, "the lines were not stored; open the file again")
            raise self._unanswered from None

    async def _end_in_flight(self) -> None:
        """Wait until no append is running. Raises the first error that no earlier write has raised."""
        if self._in_flight:
            await self._run(self._in_flight.end)

    def _end_unheard(self) -> None:
        """Wait until no append is running (blocking). Add the first error to `@status`, as no later call can raise it."""
        if self._in_flight is not None:
            try:
                self._in_flight.end()
            except Exception as error:  # noqa: BLE001 - there is no call left to raise it in
                self._report_lost(error)

    async def _append_lingering(self) -> None:
        """Append all lines collected for this target. Raises FileError if the program stops waiting."""
        if self._appending.remote_linger is not None:
            await self._appending.remote_linger.drain(self._target, self._caller)
        else:
            self._appending.linger_buffer.append_now(self._target)

    async def _run(self, call: Callable[[], object]) -> None:
        """Run `call` in a thread.

        If an earlier call was abandoned, raises UnansweredError, because the earlier call may still run.
        """
        if self._unanswered is not None:
            raise self._unanswered.with_traceback(None)
        try:
            await self._appending.blocking.run(call, caller=self._caller)
        except UnansweredError:
            reason = "unknown whether the lines were stored; open the file again"
            self._unanswered = UnansweredError(Refusal.FAILED, reason)
            self._appending.reports.error(self._target.name, f"interrupted: {reason}")
            raise

    def failed(self, error: Exception) -> None:
        """Record the error of an append whose write was already answered."""
        if self._released:
            self._report_lost(error)
        else:
            self._failure = error

    def _raise_earlier_failure(self, *, again: bool = False) -> None:
        """Raise the error of an append whose write was already answered.

        If `again`, the next call raises the error too, because the kernel may drop the first one.
        """
        failure = self._failure
        if not again:
            self._failure = None
        if failure is not None:
            raise failure

    def _raise_unheard(self) -> None:
        """Raise the error of the last write if the kernel may have dropped it."""
        failed = self._failed
        if failed is not None and failed.unheard:
            self._failed = failed._replace(unheard=False)
            raise failed.error.with_traceback(None)

    async def flush(self) -> None:
        """Handle close(2) of a duplicate descriptor: append an incomplete line unless the opener has the file open."""
        if self._is_complete():
            return
        async with self._turn:
            try:
                await self._end_in_flight()
            except Exception as error:
                if self._is_held():
                    self._failure = error  # The program that closed a duplicate may ignore this error.
                elif self._waiting.tail:
                    self._waiting = FramingState(refused=error)
                raise
            self._raise_earlier_failure()
            self._raise_unheard()
            if self._failed is None and self._waiting.tail and not self._is_held():
                await self._commit_tail()

    def _is_complete(self) -> bool:
        """Return whether no append is running, none failed and no line is incomplete: the common case at a close."""
        if self._unanswered is not None:
            return True
        whole = self._failed is None and self._failure is None and not self._in_flight
        return whole and not self._turn.is_taken and not self._waiting.tail

    def refuse_begun(self, error: Exception) -> None:
        """Drop an incomplete line after an error, and refuse the remainder of the line up to its newline."""
        if self._waiting.tail:
            self._waiting = FramingState(refused=error)

    def opener_appends(self) -> bool:
        """Return whether the opener has the file open with O_APPEND now."""
        return appends(self._opener_pid, "/" + self._target.name)

    def _is_held(self) -> bool:
        return self._appending.still_held(self._opener_pid, "/" + self._target.name)

    async def fsync(self) -> None:
        """Flush all written lines to disk, including an incomplete line, which becomes a record."""
        async with self._turn:
            await self._end_in_flight()
            self._raise_earlier_failure()
            self._raise_unheard()
            if self._waiting.tail:
                await self._sync_tail()
        await self._append_lingering()
        self._raise_earlier_failure()
        await self._run(self._target.sync)

    async def _sync_tail(self) -> None:
        """Append the incomplete line as a record; if the disk is full, keep it so that the program can try again."""
        if self._failed is not None:
            raise self._failed.error.with_traceback(None)
        begun = self._waiting
        try:
            await self._commit_tail()
        except Exception as error:
            if errno_of(error) not in LINES_AT_FAULT and not isinstance(
                error, NotEnoughReplicasAfterAppendError
            ):
                self._waiting = begun
            raise

    async def release(self) -> None:
        """Append the remaining lines at the last close.

        No call can return an error any more, so errors are shown in `@status` and logged.
        """
        self._released = True
        if self._is_complete() and not self._in_flight:
            return
        self._caller, in_flight = None, False
        with trio.move_on_after(RELEASE_SECONDS if self._remote else math.inf) as patience:
            try:
                async with self._turn:
                    if self._in_flight:
                        in_flight = True  # The thread of an abandoned write may also still append.
                        await self._appending.blocking.run(self._end_unheard)
                        in_flight = False
                    if self._unanswered is not None:
                        return
                    self._raise_earlier_failure()
                    self._raise_unheard()
                    if self._failed is None and self._waiting.tail:
                        await self._commit_tail()
            except Exception as error:  # noqa: BLE001 - there is no call left to raise it in
                self._report_lost(error)
        if patience.cancelled_caught:
            what = "the last append is still running" if in_flight else "the last line was not confirmed"
            self._appending.reports.error(self._target.name, f"{what} and may be stored or lost")

    def _report_lost(self, error: Exception) -> None:
        self._appending.reports.error(
            self._target.name, f"lines lost when the file was closed: {file_error(error)}"
        )

    async def _commit_tail(self) -> None:
        """Append the incomplete line as a record. If that fails, refuse the remainder of the line."""
        tail, self._waiting = self._waiting.tail, NOTHING
        try:
            lines = self._framing.ended(tail)
            if self._threaded:
                await self._append_waiting(lines)
            else:
                self._append(lines)
        except Exception as error:
            self._waiting = FramingState(refused=error)
            raise
