"""A topic as a whole: `orders/log` reads all partitions merged by time, and takes lines for the partitioner to spread.

Neither it nor the ranges of times beside it are listed: a tool that reads all it finds has every record from the
partitions. They are streams: stat says 0, and a read goes on to the end, which is where the partitions ended at open(2).
"""

# ruff: noqa: ARG002 - one signature for every kind of file

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from fusefs.allowance import THREAD_BYTES, Allowance
from fusefs.appending.flags import Access, check_append
from fusefs.appending.framing import SPREAD_LINES
from fusefs.appending.handle import AppendHandle
from fusefs.errors import FileError
from fusefs.files.log_file import framing_of
from fusefs.files.selector_files import REMEMBERED_SECONDS, current_until
from fusefs.files.topic_files import TopicFiles
from fusefs.following.waiting_reads import Program
from fusefs.forms import Form
from fusefs.nodes.handles import Handle, LogHandle, LogHandleOptions
from fusefs.nodes.nodes import (
    FOR_LONG,
    LOG_MODE,
    READ_BLOCK,
    READ_MODE,
    Attributes,
    Directory,
    FileNode,
    accept_truncation,
    nanoseconds,
    refuse_writing,
)
from fusefs.selectors import RangePlace, TimeRange, resolve
from fusefs.views.merged_stream import MergedRange, MergedReader
from storage.engine import Partition

MANY_PARTITIONS = 100
"""To more than so many the lines of one request may take long to spread."""

SLICE_SECONDS = 0.1
"""For which partitions are looked into before the opener is looked at."""


class MergedHandle(LogHandle):
    """An open log of a topic; merging happens in a thread, a while at a time."""

    def __init__(
        self,
        node: MergedFile,
        merged: MergedReader | None,
        writer: AppendHandle | None,
        *,
        opener_pid: int,
        sync: Callable[[], Awaitable[None]] | None = None,
        emptied: bool = False,
    ) -> None:
        self._program = Program(node.context.waiting, opener_pid, f"/{node.path}")
        options = LogHandleOptions(asker=self._program, sync=sync, emptied=emptied)
        super().__init__(node, None, writer, node.context.appending.blocking, options)
        self._merged = merged
        self._turn = trio.Lock()

    async def read(self, position: int, size: int) -> bytes | memoryview:
        if self._merged is None:
            return await super().read(position, size)
        async with self._turn:
            self._node.check_exists()
            reach = partial(self._merged.reach, position, size)
            while not await self._blocking.in_thread(reach, self._program):
                self._node.check_exists()
                if self._program.wants_to_end():
                    raise FileError(errno.EINTR)
            return self._merged.read(position, size)


class MergedFile(FileNode):
    """Records of all partitions of a topic, merged by time."""

    __slots__ = ("_files", "_form")
    mode = READ_MODE

    def __init__(self, parent: Directory, name: str, files: TopicFiles, form: Form) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._form = form

    def attributes(self) -> Attributes:
        mtime_ns = nanoseconds(self.context.started)
        return Attributes(self.mode, 0, mtime_ns, FOR_LONG, self.node_id, READ_BLOCK)

    async def open(self, access: Access, pid: int) -> Handle:
        self._files.check_exists()
        writer = self._writer(access, pid)
        merged = None
        if access.reads:
            shares = await self._shares(pid)
            form = self.context.decoding.renewed(self._form)
            merged = MergedReader(shares, form, self.context.settings.isolation)
        sync = self._sync(pid)
        emptied = access.truncates and not access.appends
        return MergedHandle(self, merged, writer, opener_pid=pid, sync=sync, emptied=emptied)

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        refuse_writing(access)
        return None

    def _sync(self, pid: int) -> Callable[[], Awaitable[None]] | None:
        """Return what puts the topic's logs on disk, for who opens the file to read; None where nothing was written through it."""
        del pid
        return None

    async def _shares(self, pid: int) -> list[MergedRange]:
        """The records of each partition as of now, as long as process `pid` waits. Raises FileError (EINTR)."""
        context, shares = self.context, list[MergedRange]()
        program = Program(context.waiting, pid, f"/{self.path}")
        left = deque(self._files.topic.partitions().values())
        while left:
            await context.appending.blocking.in_thread(partial(self._take_shares, left, shares), program)
            self.check_exists()
            if program.wants_to_end():
                raise FileError(errno.EINTR)
        return shares

    def _take_shares(self, left: deque[Partition], shares: list[MergedRange]) -> None:
        """Go over partitions for a while, one at least (blocking)."""
        until = time.monotonic() + SLICE_SECONDS
        while left:
            partition = left.popleft()
            partition.find_bounds()
            shares.append(self._share(partition))
            if time.monotonic() > until:
                break

    def _share(self, partition: Partition) -> MergedRange:
        """The records of a partition as of now (blocking)."""
        offsets = partition.offsets()
        end_offset = offsets.visible_end(self.context.settings.isolation)
        return MergedRange(partition, offsets.log_start_offset, end_offset)

    def check_exists(self) -> None:
        self._files.check_exists()

    def begin_write(self) -> None:
        self._files.check_exists()

    def write_failed(self) -> None:
        """The kernel remembers nothing of it that a write changes."""

    def closed(self, *, reads: bool) -> None:
        pass


class TopicLogFile(MergedFile):
    """`log`, `log.kv`, `log.json` of a topic."""

    __slots__ = ()
    mode = LOG_MODE

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        if not access.writes:
            return None
        self._files.check_writable()
        check_append(access, truncation_accepted=not self._form.suffix)
        return self._handle(pid, durable=access.durable)

    def _sync(self, pid: int) -> Callable[[], Awaitable[None]] | None:
        if self.context.engine.read_only or self._files.topic.internal:
            return None
        return lambda: self._handle(pid, durable=False).fsync()

    def _handle(self, pid: int, *, durable: bool) -> AppendHandle:
        framing = framing_of(self._form)
        if not framing.asks_elsewhere and len(self._files.topic.partitions()) > MANY_PARTITIONS:
            framing = SPREAD_LINES
        target = self._files.target(self._form)
        return AppendHandle(
            target,
            self.context.appending,
            opener_pid=pid,
            durable=durable,
            framing=framing,
            begin=target.begin,
        )

    def truncate(self, size: int, end: int | None) -> None:
        accept_truncation(size, None, end)


class TopicTimesFile(MergedFile):
    """`@T1-@T2`, `@T1-`: of each partition what it shows under that name, as of the opening."""

    __slots__ = ("_current_until", "_selector")
    entry_timeout = REMEMBERED_SECONDS

    def __init__(
        self, parent: Directory, name: str, files: TopicFiles, form: Form, selector: TimeRange
    ) -> None:
        super().__init__(parent, name, files, form)
        self._selector = selector
        self._current_until = current_until(selector)

    def is_current(self) -> bool:
        return time.monotonic() < self._current_until

    def _share(self, partition: Partition) -> MergedRange:
        isolation = self.context.settings.isolation
        with Allowance(THREAD_BYTES, inline=False):  # Each partition is looked into as one request does.
            place = resolve(self._selector, partition, isolation=isolation)
        assert isinstance(place, RangePlace)
        end = partition.visible_end(isolation) if place.end_offset is None else place.end_offset
        return MergedRange(partition, place.start_offset, end)
