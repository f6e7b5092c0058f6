"""Open files of a group, over partitions in memory and a membership that a test controls."""

from __future__ import annotations

import errno
from collections.abc import Awaitable
from contextlib import suppress

import pytest
import trio
import trio.testing

from tests.doubles.memory_engine import MemoryEngine, MemoryTopic
from tests.doubles.scripted_group import ScriptedGroups, ScriptedMember
from topicfs.coordination.membership import Subscription
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.following.waiting_reads import WaitingReads
from topicfs.fusefs.forms import VALUES, Form
from topicfs.fusefs.groups.read_limit import ReadLimit
from topicfs.fusefs.groups.reader import GroupHandle, GroupRead, ends_of
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.model import Isolation, Timestamp

LOG, DRAIN = ReadLimit(), ReadLimit(drains=True)


class Stream:
    """An open file, and the position that the kernel keeps for it."""

    def __init__(self, handle: GroupHandle, member: ScriptedMember) -> None:
        self.handle = handle
        self.member = member
        self.position = 0
        self.poll = handle.poll
        self.close = handle.release

    async def read(self, size: int = 100) -> bytes:
        data = bytes(await self.handle.read(self.position, size))
        self.position += len(data)
        return data

    async def write(self, line: str) -> None:
        self.position += await self.handle.write(self.position, line.encode())

    async def fails(self, size: int = 100) -> int | Exception:
        """Read, and return the data, the errno of a FileError, or any other exception."""
        return await errno_of(self.read(size))


async def errno_of(awaited: Awaitable[object]) -> int | Exception:
    try:
        found = await awaited
    except FileError as error:
        return error.number
    except Exception as error:  # noqa: BLE001 - the test says which
        return error
    raise AssertionError(f"the call returned {found!r} instead of failing")


class World:
    """A topic in memory, and a group that reads it."""

    def __init__(self, partitions: int = 1) -> None:
        self.engine = MemoryEngine()
        self.topic = self.engine.all["orders"] = MemoryTopic("orders", partitions)
        self.groups = self.engine.groups = ScriptedGroups()
        self.waiting = WaitingReads(BlockingCalls())
        self.reports = Reports(lambda: Timestamp(0))
        self.now = Timestamp(10_000)

    def add(self, number: int, *values: bytes | None) -> None:
        self.topic.all[number].add(*values)

    def open(
        self,
        *numbers: int,
        form: Form = VALUES,
        limit: ReadLimit = LOG,
        nonblocking: bool = True,
        **positions: int,
    ) -> Stream:
        """Open the group's file; then assign the partitions `numbers` to its member.

        `positions` has the first offset of partitions: `p0=5` sets the position of partition 0 to 5.
        """
        what = GroupRead(
            path="/@groups/g/orders/log",
            engine=self.engine,
            group="g",
            subscription=Subscription(topics=frozenset({"orders"})),
            form=form,
            isolation=Isolation.READ_COMMITTED,
            limit=limit,
            waiting=self.waiting,
            blocking=BlockingCalls(),
            reports=self.reports,
            clock=lambda: self.now,
        )
        ends = ends_of(what) if limit.drains else {}
        handle = GroupHandle(what, opener_pid=7, program="cat", nonblocking=nonblocking, ends=ends)
        member = self.groups.members[-1]
        if numbers:
            member.assign(*numbers, **positions)
        return Stream(handle, member)


@pytest.fixture
def world() -> World:
    return World()


class Notification:
    """Counts the notifications that the kernel gets."""

    def __init__(self) -> None:
        self.told = 0

    def notify(self) -> None:
        self.told += 1


AGAIN = errno.EAGAIN
all_tasks_blocked = trio.testing.wait_all_tasks_blocked


async def read_behind(nursery: trio.Nursery, stream: Stream, seen: list[object]) -> None:
    """Start a task that reads once, and adds the result or exception to `seen`; return when all tasks are blocked."""

    async def read() -> None:
        try:
            seen.append(await stream.read())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            seen.append(error)

    nursery.start_soon(read)
    with suppress(trio.TooSlowError):
        await all_tasks_blocked()
