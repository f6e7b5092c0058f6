"""The open `take` of a queue: each read(2) is given one record, which this open file holds until a word is said about it.

    read ─► a record, held ─► accept  release  reject  renew        written to the same file
                            └─► close, or death: it is there for others at once

A record longer than what is asked for is given in pieces. The words mean the record that was read last; a name as
`orders-0-42`, under which `in-flight` shows it, means any other that is held.
"""

from __future__ import annotations

import contextlib
import select

import trio

from topicfs.coordination.share_groups import Leased, RecordName, ShareSession
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
    """One session of a share group. Used from the event loop's thread."""

    follows = True

    def __init__(
        self,
        session: ShareSession,
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
        """Held by a read or a word that is being answered, not by a read that waits."""
        self._news = Wakeups(program.waiting.waker)
        self._stop_listening = session.listen(self._news.signal)
        self._ahead: Leased | Exception | None = None
        """What poll(2) took for the next read: a record, or the error of taking one."""
        self._last: RecordName | None = None
        """The record that is read, or was read last."""
        self._text = b""
        self._base = self._given = 0
        """Position of that record in the stream, and the bytes of it that were given."""
        self._begun_line = b""
        self._taking = False
        self._poll = WaitingPoll(self._news.wait)

    async def read(self, position: int, size: int) -> bytes:
        """Give the next record, or the rest of one; waits where there is none.

        Raises FileError: EAGAIN when opened with O_NONBLOCK and there is none, EINTR, EMFILE; ESPIPE further back than the
        record read last. Raises what `ShareSession.take` does.
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
            raise FileError(Refusal.READ_ONCE, "what was read before is gone")
        self._given = position - self._base

    async def _take(self) -> None:
        leased, self._ahead = self._ahead, None
        if isinstance(leased, Exception):
            raise leased.with_traceback(None)
        if leased is None:
            leased = await self._blocking.run(self._session.take, caller=self._program)
        if leased is not None:
            self._begin(leased)

    def _begin(self, leased: Leased) -> None:
        place = leased.place
        self._base += len(self._text)
        partition = TopicPartition(place.topic, place.partition)
        self._text = self._form.render(leased.columns, partition, place.offset, place.offset + 1)
        self._given, self._last = 0, place

    async def write(self, position: int, data: bytes) -> int:
        """Do what written lines say; when it returns, that is kept. Raises InvalidConfigError, RecordNotHeldError."""
        async with self._turn:
            self._given = max(min(position - self._base, self._given), 0)
            begun, self._begun_line = self._begun_line, b""
            lines, rest = whole_lines(begun, data)
            for line in lines:
                await self._say(parse_word(line))
            # What failed moves the program's position nowhere.
            self._begun_line = rest
            self._base += len(data)
        return len(data)

    async def _say(self, word: QueueWord) -> None:
        place = self._last if word.place is None else word.place
        if place is None:
            raise RecordNotHeldError("nothing was read yet, so that there is nothing to say a word about")
        session = self._session
        await self._blocking.run(
            lambda: session.acknowledge({place: word.acknowledgement}), caller=self._program
        )

    def poll(self, notify: Notify | None) -> int:
        """Return the events that are ready. A program sees a record only by holding it: what is readable is held from then on.

        So a record is taken when a program polls, and not when it comes: the program may no longer wait for it.
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
        return self._given < len(self._text) or self._ahead is not None

    async def _take_for_poll(self) -> None:
        """Take a record for the next read, and notify the kernel. Looks again after news that came while a thread looked."""
        heard = -1
        try:
            while heard != self._news.news_count:
                heard = self._news.news_count
                async with self._turn:
                    if self._is_readable:
                        break
                    self._ahead = await self._blocking.run(self._session.take)
        except Exception as error:  # noqa: BLE001 - the next read raises it
            self._ahead = error
        finally:
            self._taking = False
        if self._is_readable:
            self._poll.tell()

    async def release(self) -> None:
        """The last descriptor is closed: what is held is there for others."""
        self._poll.forget()
        self._stop_listening()
        with contextlib.suppress(FileError):
            await self._blocking.run(self._session.close)
