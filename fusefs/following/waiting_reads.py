"""Waiting reads: their limit, their wake-up, and their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import trio

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.following.wakeups import Waker
from topicfs.fusefs.processes.signals import DescriptorHolder, Look, descriptor_holders, look
from topicfs.fusefs.threads.blocking_calls import BlockingCalls, Listen

MAX_WAITING = 1000
"""Default limit on waiting reads. A read that would exceed the limit fails with EMFILE."""

USERS_SHARE = 4
"""A user may have at most this fraction (1/N) of the waiting reads. The mount's owner and root are not limited."""

PROGRAM_CHECK_SECONDS = 0.05
"""Time between two checks of the waiting programs. Ctrl-C takes effect after about this time."""

PROGRAM_CHECK_SHARE = 10
"""Checks take at most this fraction (1/N) of the time, so with a thousand programs the checks are less frequent."""

HOLDER_SEARCH_SECONDS = 1.0
"""Time between two searches for programs that read through a descriptor inherited from another program."""

_NO_USER = -1
"""User ID for all processes that are not visible."""

UNSEEN_READER_SECONDS = 10.0
"""If a process is invisible (in another pid namespace), its read waits at most this long and then gets EINTR."""


class WaitingRead:
    """A read that waits for records, until it is woken or ended with an error."""

    def __init__(self, pid: int, path: str) -> None:
        """Begin the read of process `pid` (0 if not visible), which has the mount's file `path` open."""
        self.pid, self.path = pid, path
        self.started, self.woken = trio.current_time(), trio.Event()
        self.ended: Refusal | None = None
        """The error that ended the read; None while it waits."""
        self.user: int | None = None
        """User ID of the process, or _NO_USER; None until it is needed."""
        self.searching = False
        """True while the process is gone, and a search for the process that reads now is running."""

    def end(self, refusal: Refusal) -> None:
        """Answer the read with an error."""
        self.ended = refusal
        self.woken.set()


class Program(NamedTuple):
    """A process that waits in a call. Implements `fusefs.threads.blocking_calls.RequestingProcess`."""

    waiting: WaitingReads
    pid: int
    """Process ID; 0 if it is not visible."""
    path: str
    """Path in the mount of the open file that the call uses; "" if the call uses no open file."""

    def wants_to_end(self) -> bool:
        return self.waiting.wants_to_end(self.pid)

    async def wait(self, listen: Listen) -> None:
        await self.waiting.wait(listen, pid=self.pid, path=self.path)


class WaitingReads:
    """The waiting reads of a mount. Only for the event loop's thread."""

    def __init__(
        self,
        blocking: BlockingCalls,
        *,
        bound: int = MAX_WAITING,
        owner: int | None = None,
        look: Callable[[int], Look | None] = look,
        holders: Callable[[str, bool], list[DescriptorHolder]] = lambda path, stuck: descriptor_holders(
            path, stuck=stuck
        ),
    ) -> None:
        """`bound` limits the number of waiting reads.

        `owner` is the ID of the user who mounted. If it is given, each other user has a lower limit.
        """
        self.bound = bound
        self._owner = owner
        self.waker = Waker()
        """Wakes the reads."""
        self._blocking = blocking
        self._look_at = look
        self._holders = holders
        self._reads: set[WaitingRead] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._reads)

    @cached_property
    def _some(self) -> trio.Event:
        return trio.Event()

    async def wait(self, listen: Listen, *, pid: int, path: str) -> None:
        """Return when the function given to `listen` is called. Raises FileError (EMFILE, EINTR, ENOTCONN)."""
        if self._closed:
            raise FileError(Refusal.UNMOUNTED)
        if len(self._reads) >= self.bound:
            raise FileError(
                Refusal.TOO_MANY_READS, f"the maximum of {self.bound} waiting reads is reached", reported=True
            )
        self._check_user(pid)
        read = WaitingRead(pid, path)
        cancel = listen(read.woken.set)
        self._reads.add(read)
        self._some.set()
        try:
            await read.woken.wait()
        finally:
            self._reads.discard(read)
            cancel()
        if read.ended is not None:
            raise FileError(read.ended)

    def _check_user(self, pid: int) -> None:
        """Raise FileError (EMFILE) if the user of process `pid` has as many waiting reads as a user may have."""
        most = max(1, self.bound // USERS_SHARE)
        if self._owner is None or len(self._reads) < most:
            return
        user = self._user_of(pid)
        if user in (0, self._owner):
            return
        for read in self._reads:
            if read.user is None:
                read.user = self._user_of(read.pid)
        if sum(read.user == user for read in self._reads) >= most:
            whose = "processes that are not visible" if user == _NO_USER else f"user {user}"
            raise FileError(
                Refusal.TOO_MANY_READS,
                f"the maximum of {most} waiting reads of {whose} is reached",
                reported=True,
            )

    def _user_of(self, pid: int) -> int:
        seen = self._look_at(pid) if pid else None
        return _NO_USER if seen is None else seen.user

    def wants_to_end(self, pid: int) -> bool:
        """Return whether the process that waits in a call wants to end or is gone; False for 0 (not visible)."""
        if not pid:
            return False
        seen = self._look_at(pid)
        return seen is None or seen.pending != 0

    def close(self) -> None:
        """End every waiting read, now and later, because the mount ends."""
        self._closed = True
        for read in self._reads:
            read.end(Refusal.UNMOUNTED)

    async def watch(self) -> None:
        """Check waiting programs until canceled. Searches in /proc may take seconds, so they run in other tasks."""
        async with trio.open_nursery() as searches:
            searches.start_soon(self._watch_holders)
            pause = PROGRAM_CHECK_SECONDS
            while True:
                await self._until_some_wait()
                # Sleep first: most answers of a remote engine arrive sooner than a check takes.
                await trio.sleep(pause)
                started = time.monotonic()
                await self._look(searches)
                pause = max(PROGRAM_CHECK_SECONDS, PROGRAM_CHECK_SHARE * (time.monotonic() - started))

    async def _watch_holders(self) -> None:
        while True:
            await trio.sleep(HOLDER_SEARCH_SECONDS)
            await self._until_some_wait()
            await self._search_holders()

    async def _until_some_wait(self) -> None:
        while not self._reads:
            if self._some.is_set():
                self._some = trio.Event()
            await self._some.wait()

    async def _look(self, searches: trio.Nursery) -> None:
        answers: dict[int, Look | None] = {}
        for read in list(self._reads):
            if read.pid == 0:
                if trio.current_time() - read.started > UNSEEN_READER_SECONDS:
                    read.end(Refusal.INTERRUPTED)
                continue
            if read.pid not in answers:
                if len(answers) % 64 == 63:
                    await trio.lowlevel.checkpoint()  # Let other tasks run after at most 64 checks.
                answers[read.pid] = self._look_at(read.pid)
            seen = answers[read.pid]
            if seen is None:
                if not read.searching:
                    read.searching = True
                    searches.start_soon(self._find_descriptor_holder, read)
            elif seen.pending:
                read.end(Refusal.INTERRUPTED)

    async def _find_descriptor_holder(self, read: WaitingRead) -> None:
        """Find the process that holds the file after the opener is gone; from then on, check that process."""
        holders = await self._search(read.path, stuck=False) if read.path else []
        read.searching = False
        if holders:
            read.pid, read.user = holders[0].pid, None
        else:
            read.end(Refusal.INTERRUPTED)

    async def _search_holders(self) -> None:
        """End the reads of processes that inherited their descriptor from the opener, and that are about to end."""
        began = trio.current_time() - HOLDER_SEARCH_SECONDS
        # Search only for reads that have waited for a while. Calls that are soon answered, such as calls to a
        # remote engine, have not waited for so long, even if there are many.
        for path in {read.path for read in self._reads if read.path and read.started <= began}:
            for holder in await self._search(path, stuck=True):
                for read in list(self._reads):
                    if read.path == path and read.pid in holder.line:
                        read.end(Refusal.INTERRUPTED)

    async def _search(self, path: str, *, stuck: bool) -> list[DescriptorHolder]:
        return await self._blocking.run(lambda: self._holders(path, stuck))
