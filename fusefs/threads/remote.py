"""Requests to a remote engine: threads wait for its answers, never the event loop, and a request ends with its program.

    request ─► NotAtHandError ─► its question under way? ─► waits with the others
       ▲                                  │ no
       │                                  ▼
       └──── done again ◄── answer ◄── asked in a thread

A request with very many questions continues in a thread that waits by itself. A thread cannot be stopped: a call that
nobody waits for any more goes on, and its answer is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

import trio

from topicfs.fusefs.allowance import INLINE_BYTES, Allowance
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.threads.blocking_calls import Asker, BlockingCalls
from topicfs.storage.engine import Cancel
from topicfs.storage.remote import Answer, NotAtHandError, Question, ThreadNeededError, answered

if TYPE_CHECKING:
    from outcome import Outcome

T = TypeVar("T")

THREADS = 64
"""Number of calls that may wait for a remote engine at once; more of them queue."""

QUESTIONS = 8
"""Number of questions of one request, one after the other, before it continues in a thread of its own."""


class UnansweredError(FileError):
    """A call was given up before its answer came. The change that it asked for may be made, or not."""


class _UnderWay:
    """A call in a thread, and the requests that wait for its end."""

    __slots__ = ("_waiters", "answer", "call", "key")

    def __init__(self, key: Hashable | None, call: Callable[[], object]) -> None:
        self.key = key
        self.call = call
        self.answer: Answer | None = None
        self._waiters: dict[object, Callable[[], None]] = {}

    def listen(self, waiter: Callable[[], None]) -> Cancel:
        if self.answer is not None:
            waiter()
        mark = object()
        self._waiters[mark] = waiter
        return lambda: self._waiters.pop(mark, None) and None

    def end(self, answer: Answer) -> None:
        self.answer = answer
        for waiter in list(self._waiters.values()):
            waiter()

    async def wait(self, asker: Asker | None) -> Answer:
        """Wait for the end. Raises UnansweredError once the program, or the mount, ends before."""
        try:
            if asker is None:
                ended = trio.Event()
                self.listen(ended.set)
                await ended.wait()
            else:
                await asker.wait(self.listen)
        except FileError as error:
            raise UnansweredError(error.number, error.reason) from None
        assert self.answer is not None
        return self.answer


class RemoteCalls(BlockingCalls):
    """Calls in threads to a remote engine. Used from the event loop's thread."""

    def __init__(self, threads: int = THREADS) -> None:
        super().__init__(threads)
        self._threads = threads
        self._running = 0
        self._queued: deque[_UnderWay] = deque()
        self._questions: dict[Hashable, _UnderWay] = {}
        """Questions under way, by their keys."""

    async def run(self, call: Callable[[], T], *, abandon: bool = False, asker: Asker | None = None) -> T:
        """Run `call` in a thread, and wait for its end. Raises UnansweredError."""
        del abandon
        answer = await self._begin(None, call).wait(asker)
        self._questions.clear()  # Questions from here on must see what the call changed.
        if answer.error is not None:
            raise answer.error
        return cast("T", answer.value)

    async def again(self, call: Callable[[], T], reason: ThreadNeededError, asker: Asker | None = None) -> T:
        answers: dict[Hashable, Answer] = {}
        while isinstance(reason, NotAtHandError) and len(answers) < QUESTIONS:
            answers[reason.question.key] = await self._answer(reason.question, asker)
            try:
                with answered(answers):
                    return Allowance(INLINE_BYTES, inline=True).bound(call)
            except ThreadNeededError as error:
                reason = error
        return await self.in_thread(call, asker)

    async def _answer(self, question: Question, asker: Asker | None) -> Answer:
        under_way = self._questions.get(question.key)
        if under_way is None:
            under_way = self._begin(question.key, question.ask)
            if under_way.answer is None:
                self._questions[question.key] = under_way
        return await under_way.wait(asker)

    def _begin(self, key: Hashable | None, call: Callable[[], object]) -> _UnderWay:
        under_way = _UnderWay(key, call)
        self._queued.append(under_way)
        self._start_some()
        return under_way

    def _start_some(self) -> None:
        while self._queued and self._running < self._threads:
            self._running += 1
            self._start(self._queued.popleft())

    def _start(self, under_way: _UnderWay) -> None:
        """Start a call in a thread. Others may wait for the same answer: it is no part of the request that asked first.

        (`trio.to_thread` takes three turns of the event loop more.)
        """
        token = trio.lowlevel.current_trio_token()

        def deliver(outcome: Outcome[object]) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._ended, under_way, outcome)

        try:
            trio.lowlevel.start_thread_soon(under_way.call, deliver)
        except RuntimeError as error:  # The system has no thread left.
            self._end(under_way, Answer(None, error))

    def _ended(self, under_way: _UnderWay, outcome: Outcome[object]) -> None:
        try:
            answer = Answer(outcome.unwrap())
        except Exception as error:  # noqa: BLE001 - any error is the answer of those that wait
            answer = Answer(None, error)
        self._end(under_way, answer)
        self._start_some()

    def _end(self, under_way: _UnderWay, answer: Answer) -> None:
        self._running -= 1
        if self._questions.get(under_way.key) is under_way:
            del self._questions[under_way.key]
        under_way.end(answer)
