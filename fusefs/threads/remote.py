"""Calls to a remote engine: threads, never the event loop, wait for the answers.

If a program ends, its request ends too. The thread of the request cannot be stopped: its call runs on, and the result
is dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.threads.blocking_calls import BlockingCalls, RequestingProcess
from topicfs.storage.engine import Cancel
from topicfs.storage.remote import RemoteEngine, ThreadNeededError

if TYPE_CHECKING:
    from outcome import Outcome

T = TypeVar("T")

REMOTE_THREADS = 64
"""Number of calls that may wait for a remote engine at a time; further calls queue."""


@contextmanager
def event_loop_never_waits(engine: RemoteEngine) -> Iterator[None]:
    """Let an engine raise ThreadNeededError before it waits in this thread, or in a call that must be short."""
    loop = threading.get_ident()

    def leave() -> None:
        leave_event_loop()
        if threading.get_ident() == loop:
            raise ThreadNeededError

    engine.call_before_waiting(leave)
    try:
        yield
    finally:
        engine.call_before_waiting(lambda: None)


class UnansweredError(FileError):
    """A call was abandoned before its answer arrived. Whether its change was made is unknown."""


class _UnderWay(Generic[T]):
    """A call that runs in a thread, and the request that waits for the call."""

    __slots__ = ("_ended", "call", "unwrap")

    def __init__(self, call: Callable[[], T]) -> None:
        self.call = call
        self.unwrap: Callable[[], T] | None = None
        """Returns the result of the call or raises its error; None until the call has ended."""
        self._ended: Callable[[], None] | None = None

    def listen(self, ended: Callable[[], None]) -> Cancel:
        self._ended = ended
        if self.unwrap is not None:
            ended()
        return self._forget

    def _forget(self) -> None:
        self._ended = None

    def end(self, unwrap: Callable[[], T]) -> None:
        self.unwrap = unwrap
        if self._ended is not None:
            self._ended()

    async def wait(self, caller: RequestingProcess | None) -> T:
        """Wait for the end of the call. Raises UnansweredError if the program or the mount ends earlier."""
        try:
            if caller is None:
                ended = trio.Event()
                self.listen(ended.set)
                await ended.wait()
            else:
                await caller.wait(self.listen)
        except FileError as error:
            raise UnansweredError(error.number, error.reason) from None
        assert self.unwrap is not None
        return self.unwrap()


class RemoteCalls(BlockingCalls):
    """Runs calls to a remote engine in threads. Only for the event loop's thread."""

    def __init__(self, threads: int = REMOTE_THREADS) -> None:
        super().__init__(threads)
        self._threads = threads
        self._running = 0
        self._queued: deque[_UnderWay[Any]] = deque()

    async def run(
        self, call: Callable[[], T], *, abandon: bool = False, caller: RequestingProcess | None = None
    ) -> T:
        """Run `call` in a thread, and wait for its end. Raises UnansweredError."""
        del abandon
        under_way = _UnderWay(call)
        self._queued.append(under_way)
        self._start_some()
        return await under_way.wait(caller)

    def _start_some(self) -> None:
        while self._queued and self._running < self._threads:
            self._running += 1
            self._start(self._queued.popleft())

    def _start(self, under_way: _UnderWay[Any]) -> None:
        """Start a call in a thread that may outlive its request.

        (trio.to_thread would take three more turns of the event loop.)
        """
        token = trio.lowlevel.current_trio_token()

        def deliver(outcome: Outcome[object]) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._ended, under_way, outcome.unwrap)

        def fail(error: Exception) -> None:
            raise error

        try:
            trio.lowlevel.start_thread_soon(under_way.call, deliver)
        except RuntimeError as error:  # No thread is available.
            reason = error
            self._running -= 1
            under_way.end(lambda: fail(reason))

    def _ended(self, under_way: _UnderWay[Any], unwrap: Callable[[], object]) -> None:
        self._running -= 1
        under_way.end(unwrap)
        self._start_some()
