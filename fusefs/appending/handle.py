"""The writing side of an open file: lines out of its writes, and every error to the call that caused it."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import trio

from topicfs.fusefs.appending.failed_write import FailedWrite, may_go_on
from topicfs.fusefs.appending.framing import LINES, NOTHING, Framed, Framing, Waiting
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
"""The lines themselves are at fault: writing them again would fail again."""

RELEASE_SECONDS = 2.0
"""Time that a remote engine has for the begun line of a file that was closed: the end of a mount waits for no longer."""


class Acks(Enum):
    """The moment at which a write is answered, as Kafka's producers spell it (-1 is `all`)."""

    NONE = "0"
    """At once; a failure surfaces later."""
    LEADER = "1"
    """Once the batch is in the log and visible to readers."""
    ALL = "all"
    """Once it is on disk."""

    @classmethod
    def parse(cls, text: str) -> Acks:
        """Read 0, 1, all or -1. Raises InvalidConfigError."""
        try:
            return cls("all" if text == "-1" else text)
        except ValueError:
            raise InvalidConfigError(f"acks={text}: must be 0, 1, all or -1") from None


class Appending(NamedTuple):
    """The objects with which all open files of a mount append."""

    acks: Acks
    linger_buffer: LingerBuffer
    blocking: BlockingCalls
    reports: Reports
    still_held: Callable[[int, str], bool]
    """`open_descriptors.holds`: returns whether a process still has the file of that name open."""
    caller: Callable[[int, str], RequestingProcess] | None = None
    """With a remote engine: returns the process with that id, as it waits for an answer about that file."""
    remote_linger: RemoteLingerBuffer | None = None
    """With a remote engine: where lines wait in place of `linger_buffer`."""
    max_in_flight: int = 1
    """With a remote engine: large writes of one open file that may be under way at a time."""


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
        """Open a file."""
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
        """Appends that are under way though their writes were answered."""
        if ahead and target.begin is not None:
            self._in_flight = WritesInFlight(target.begin, appending.max_in_flight, durable=self._durable)
        self._checked = b""
        """Over a remote engine: lines that were looked at in a thread, and are to linger."""
        self._waiting = NOTHING
        """The state that the next write follows; while the last write failed, the state that it followed."""
        self._failed: FailedWrite | None = None
        """The last write, if nothing of it was kept."""
        self._taken_bytes = 0
        """Size of the last request, if it was taken."""
        self._failure: Exception | None = None
        self._released = False
        self._unanswered: UnansweredError | None = None
        """The end of a call that may still go on: from then on nothing is known of this file."""
        self.waits = self._threaded or framing.may_take_long
        """True if an append may wait in a thread: then `write` takes its bytes, and not `take`."""
        self._turn = FifoLock()

    async def write(self, data: bytes) -> int:
        """Take one WRITE request: its whole lines are one batch, its last begun line waits."""
        if not self.waits:
            return self.take(data)
        async with self._turn:
            if self._remote:  # To frame lines, too, it has to be asked: how large a record may be.
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
        """Take bytes that a failed write has put into the log already, once they are on enough disks."""
        await self._run(self._target.sync)
        failed = self._failed
        assert failed is not None, "the write before this one failed"
        self._waiting = self._framing.frame(self._waiting, again, self._target.max_record_bytes).waiting
        rest = failed.data[len(again) :]
        self._failed = failed._replace(data=rest) if rest else None
        self._taken_bytes = len(again)

    def take(self, data: bytes) -> int:
        """Do what `write` does where no append waits, in few steps."""
        sound = self._failed is None and self._failure is None
        if sound and self._waiting is NOTHING and self._framing.is_whole(data):
            lines, waiting = data, NOTHING  # As nearly every write does.
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

    def _fail(self, data: bytes, error: Exception, waiting: Waiting | None = None) -> None:
        """Note that nothing of `data` was kept; `waiting` is what would have waited after it, where that is known."""
        if waiting is None or errno_of(error) in LINES_AT_FAULT:
            after = self._framing.after_refusal(data, error)
        else:
            after = Waiting(refused=error) if waiting.tail else waiting
        self._failed = FailedWrite(data, error, after, unheard=may_go_on(self._taken_bytes))
        self._taken_bytes = 0

    def _look_back(self, data: bytes) -> None:
        """Find out what `data` follows when the write before it failed. Raises that error where it may be unheard."""
        if self._failure is not None:
            self._fail(data, self._failure)
            self._raise_earlier_failure(again=self._failed is not None and self._failed.unheard)
        failed = self._failed
        if failed is None or failed.repeated_by(data):
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
                    self._report_lost(error)  # Its program has ended: this thread alone still waits.
                # An earlier write may have failed: where the kernel may drop this, the same bytes again do not mend it.
                self._failure = error if may_go_on(self._taken_bytes) else None
                raise
        elif self._lingers:
            self._target.check(lines)
            if self._remote:
                self._checked = lines  # This is not the event loop's thread.
            else:
                self._appending.linger_buffer.add(self._target, lines, self)
        elif self._durable:
            self._target.append(lines, durable=True)
        else:
            self._target.append(lines)

    async def _append_waiting(self, lines: bytes) -> None:
        """Append in a thread where the disk is waited for, or where it takes long to look into what is appended."""
        if not self._threaded and not self._framing.takes_long(lines):
            self._append(lines)
            return
        await self._append_lingering()  # What was written before stands before.
        await self._run(lambda: self._target.append(lines, durable=self._durable))

    async def _linger_checked(self) -> None:
        """Have lines that were looked at linger. Nothing more is known of this file where its program ends before there is room."""
        lines, self._checked = self._checked, b""
        remote = self._appending.remote_linger
        if not lines or remote is None or self._caller is None:
            return
        try:
            await remote.add(self._target, lines, self, self._caller)
        except FileError as error:
            self._unanswered = UnansweredError(error.number, "the lines were not kept; open the file again")
            raise self._unanswered from None

    async def _end_in_flight(self) -> None:
        """Wait until no append is under way. Raises the first error, which its write did not."""
        if self._in_flight:
            await self._run(self._in_flight.end)

    def _end_unheard(self) -> None:
        """Wait until no append is under way (blocking). Reports the first error, for there is no call left to raise it in."""
        if self._in_flight is not None:
            try:
                self._in_flight.end()
            except Exception as error:  # noqa: BLE001 - there is no call left to raise it in
                self._report_lost(error)

    async def _append_lingering(self) -> None:
        """Have everything appended that was gathered of this file. Raises FileError where a program does not wait for it."""
        if self._appending.remote_linger is not None:
            await self._appending.remote_linger.drain(self._target, self._caller)
        else:
            self._appending.linger_buffer.append_now(self._target)

    async def _run(self, call: Callable[[], object]) -> None:
        """Do what waits in a thread; nothing more where it was left unanswered once, for it may still go on."""
        if self._unanswered is not None:
            raise self._unanswered.with_traceback(None)
        try:
            await self._appending.blocking.run(call, caller=self._caller)
        except UnansweredError:
            reason = "it is not known whether the lines were kept; open the file again"
            self._unanswered = UnansweredError(Refusal.FAILED, reason)
            self._appending.reports.error(self._target.name, f"interrupted: {reason}")
            raise

    def failed(self, error: Exception) -> None:
        """Remember the failure of lines that were answered before they were kept."""
        if self._released:
            self._report_lost(error)
        else:
            self._failure = error

    def _raise_earlier_failure(self, *, again: bool = False) -> None:
        """Raise the error of lines answered before; once, or `again` where the kernel may drop it."""
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
        """Answer one close(2) of some duplicate: the begun line becomes a record unless the opener holds on."""
        if self._is_complete():
            return
        async with self._turn:
            try:
                await self._end_in_flight()
            except Exception as error:
                if self._is_held():
                    self._failure = error  # Who closed a duplicate of it need not look at the answer.
                elif self._waiting.tail:
                    self._waiting = Waiting(refused=error)
                raise
            self._raise_earlier_failure()
            self._raise_unheard()
            if self._failed is None and self._waiting.tail and not self._is_held():
                await self._commit_tail()

    def _is_complete(self) -> bool:
        """Return whether no append is under way, none failed and no line is begun, as at nearly every close."""
        if self._unanswered is not None:
            return True
        whole = self._failed is None and self._failure is None and not self._in_flight
        return whole and not self._turn.is_taken and not self._waiting.tail

    def refuse_begun(self, error: Exception) -> None:
        """Drop a line whose beginning was lost, and refuse the rest of it up to its newline."""
        if self._waiting.tail:
            self._waiting = Waiting(refused=error)

    def opener_appends(self) -> bool:
        """Return whether the opener has the file open with O_APPEND now."""
        return appends(self._opener_pid, "/" + self._target.name)

    def _is_held(self) -> bool:
        return self._appending.still_held(self._opener_pid, "/" + self._target.name)

    async def fsync(self) -> None:
        """Put everything written so far on disk: the begun line, too, which becomes a record."""
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
        """Make a record of the begun line; one whose rest, or which itself, the disk has no room for can come again."""
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
        """Commit what is left. Nobody waits for the outcome any more, so that a failure goes to the reports."""
        self._released = True
        if self._is_complete() and not self._in_flight:
            return
        self._caller, in_flight = None, False
        with trio.move_on_after(RELEASE_SECONDS if self._remote else math.inf) as patience:
            try:
                async with self._turn:
                    if self._in_flight:
                        in_flight = True  # What was answered, too, where the last write was left unanswered.
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
            what = (
                "what was written last is still under way" if in_flight else "the last line was not answered"
            )
            self._appending.reports.error(self._target.name, f"{what}: kept or lost")

    def _report_lost(self, error: Exception) -> None:
        self._appending.reports.error(
            self._target.name, f"lost when the file was closed: {file_error(error)}"
        )

    async def _commit_tail(self) -> None:
        """Make a record of the begun line. If that fails, what may still come of the line is refused."""
        tail, self._waiting = self._waiting.tail, NOTHING
        try:
            lines = self._framing.ended(tail)
            if self._threaded:
                await self._append_waiting(lines)
            else:
                self._append(lines)
        except Exception as error:
            self._waiting = Waiting(refused=error)
            raise
