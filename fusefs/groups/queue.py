"""The open `take` of a queue: each read(2) gets one record, held until the program writes a command about the record.

    read ─► a record, held ─► accept  release  reject  renew        written to the same file
                            └─► close, or the program ends: others can take the record immediately

If a record is longer than a read, the next reads get the rest of the record. A command applies to the record read
last, or to any other held record by its name in `in-flight`, such as `orders-0-42`.
"""

from __future__ import annotations

import contextlib
import select

import trio

from topicfs.coordination.share_groups import Leased, RecordName
from topicfs.coordination.shares.group import QueueSession
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.following.waiting_reads import Program
from topicfs.fusefs.following.wakeups import Wakeups
from topicfs.fusefs.forms import Form
from topicfs.fusefs.groups.words import QueueWord, parse_word, whole_lines
from topicfs.fusefs.handle import Handle, Notify, WaitingPoll
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.errors import RecordNotHeldError
from topicfs.storage.model import TopicPartition


class TakeHandle(Handle):
    """One session of a share group. Only for the event loop's thread."""

    follows = True

    def __init__(
        self,
        session: QueueSession,
        form: Form,
        program: Program,
        blocking: BlockingCalls,
        *,
        nonblocking: bool,
    ) -> None:
        self._form = form
        self._session = session
        self._program = program
        self._blocking = blocking
        self._nonblocking = nonblocking
        self._turn = trio.Lock()
        """Held while a read or a command is processed, but not while a read waits."""
        self._news = Wakeups(program.waiting.waker)
        self._stop_listening = session.listen(self._news.signal)
        self._prefetched: Leased | Exception | None = None
        """The record or error that poll(2) took for the next read."""
        self._last: RecordName | None = None
        """The record being read, or read last."""
        self._text = b""
        self._base = self._given = 0
        """Stream position of the record in `_last`, and how many of its bytes were returned."""
        self._begun_line = b""
        self._taking = False
        self._poll = WaitingPoll(self._news.wait)

    async def read(self, position: int, size: int) -> bytes:
        """Return the next record, or the rest of a record; wait if there is none.

        Raises FileError: EAGAIN with O_NONBLOCK if there is no record, EINTR, EMFILE; ESPIPE for a position before
        the current record. Raises the errors of `QueueSession.take`.
        """
        while True:
            heard = self._news.news_count
            async with self._turn:
                self._seek(position)
                if self._given == len(self._text):
                    await self._take()
                if self._given < len(self._text):
                    data = self._text[self._given : self._given + size]
                    self._given += len(data)
                    return data
            if self._nonblocking:
                raise FileError(Refusal.NOTHING_NEW)
            if heard == self._news.news_count:
                await self._program.wait(self._news.wait)

    def _seek(self, position: int) -> None:
        self._base = max(self._base, position - self._given)
        if position < self._base:
            raise FileError(Refusal.READ_ONCE, "earlier records cannot be read again")
        self._given = position - self._base

    async def _take(self) -> None:
        leased, self._prefetched = self._prefetched, None
        if isinstance(leased, Exception):
            raise leased.with_traceback(None)
        if leased is None:
            leased = await self._blocking.run(self._session.take, caller=self._program)
        if leased is None:
            return
        record_name = leased.record_name
        self._base += len(self._text)
        partition = TopicPartition(record_name.topic, record_name.partition)
        self._text = self._form.render(leased.columns, partition, record_name.offset, record_name.offset + 1)
        self._given, self._last = 0, record_name

    async def write(self, position: int, data: bytes) -> int:
        """Execute the written commands; they are durable on return. Raises InvalidConfigError, RecordNotHeldError."""
        async with self._turn:
            self._given = max(min(position - self._base, self._given), 0)
            begun, self._begun_line = self._begun_line, b""
            lines, rest = whole_lines(begun, data)
            for line in lines:
                await self._say(parse_word(line))
            # A failed write does not move the program's file position.
            self._begun_line = rest
            self._base += len(data)
        return len(data)

    async def _say(self, word: QueueWord) -> None:
        record_name = self._last if word.record_name is None else word.record_name
        if record_name is None:
            raise RecordNotHeldError("no record was read yet")
        session = self._session
        await self._blocking.run(
            lambda: session.acknowledge({record_name: word.acknowledgement}), caller=self._program
        )

    def poll(self, notify: Notify | None) -> int:
        """Return the ready events. Readable means that this open file already holds the next record.

        Otherwise another reader might take the record before the program reads. A record is taken when a program polls,
        not when the record arrives, because the program may have stopped waiting.
        """
        self._poll.begin(notify)
        if self._is_readable:
            return select.POLLIN | select.POLLRDNORM | select.POLLOUT | select.POLLWRNORM
        if not self._taking:
            self._taking = True
            trio.lowlevel.spawn_system_task(self._take_for_poll)
        return select.POLLOUT | select.POLLWRNORM

    @property
    def _is_readable(self) -> bool:
        return self._given < len(self._text) or self._prefetched is not None

    async def _take_for_poll(self) -> None:
        """Take a record for the next read and notify the kernel; look again if the queue changed meanwhile."""
        heard = -1
        try:
            while heard != self._news.news_count:
                heard = self._news.news_count
                async with self._turn:
                    if self._is_readable:
                        break
                    self._prefetched = await self._blocking.run(self._session.take)
        except Exception as error:  # noqa: BLE001 - the next read raises it
            self._prefetched = error
        finally:
            self._taking = False
        if self._is_readable:
            self._poll.tell()

    async def release(self) -> None:
        """Release all held records when the last descriptor is closed."""
        self._poll.forget()
        self._stop_listening()
        with contextlib.suppress(FileError):
            await self._blocking.run(self._session.close)
