"""A topic as a whole: `orders/log` shows all partitions merged by time, and spreads written lines over the partitions.

Neither `log` nor ranges of times in the same directory are listed, because a tool that reads every listed file
already gets each record from its partition. The size of `log` is the sum of its partitions' sizes. A read ends where
the partitions ended at open(2), or at the size that stat reported last. So a program that reads up to the reported
size gets all of it, `tail -f` shows what is appended, and a program that reads to the end stops. The size of a range
of times is unknown until the range is read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from topicfs.fusefs.allowance import THREAD_BYTES, Allowance
from topicfs.fusefs.appending.flags import Access, check_append
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.log_file import DECODED_SECONDS, framing_of
from topicfs.fusefs.files.log_handle import LogHandle, LogHandleOptions, LogNode, UnsizedHandle
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.files.selector_files import SELECTOR_CACHE_SECONDS, current_until
from topicfs.fusefs.files.topic_files import TopicFiles
from topicfs.fusefs.following.waiting_reads import Program
from topicfs.fusefs.forms import DECODED_SUFFIXES, Form
from topicfs.fusefs.handle import Handle
from topicfs.fusefs.nodes import nodes
from topicfs.fusefs.selectors import SelectedRange, TimeRange, resolve
from topicfs.fusefs.threads.turn import FifoLock
from topicfs.fusefs.views.view import View
from topicfs.storage.engine import Partition
from topicfs.storage.errors import StorageError
from topicfs.storage.model import NO_TIMESTAMP

if TYPE_CHECKING:
    from topicfs.fusefs.appending.handle import AppendHandle
    from topicfs.fusefs.views.merged_stream import MergedRange, MergedReader

SLOW_DISTRIBUTION_PARTITIONS = 100
"""With more partitions than this, distributing the lines of one request may take long."""

SLICE_SECONDS = 0.1
"""How long partitions are queried before the mount checks again whether the program wants to end."""


class MergedHandle(LogHandle):
    """An open log of a topic; a thread merges the partitions, for a limited time in each call."""

    def __init__(
        self,
        node: MergedFile,
        merged: MergedReader | None,
        writer: AppendHandle | None,
        program: Program,
        options: LogHandleOptions,
    ) -> None:
        super().__init__(node, None, writer, node.context.blocking, options)
        self._program = program
        self._merged = merged
        self._reads = merged is not None
        self._merged_node = node
        self._turn = FifoLock()

    async def read(self, position: int, size: int) -> bytes | memoryview:
        if self._merged is None:
            return await super().read(position, size)
        async with self._turn:
            self._node.check_exists()
            await self._reach(self._merged, position, size)
            if self._merged.end <= position < self._merged_node.told_size:
                self._merged.extend(await self._merged_node.shares(self._program))
                await self._reach(self._merged, position, size)
            return self._merged.read(position, size)

    async def _reach(self, merged: MergedReader, position: int, size: int) -> None:
        reach = partial(merged.reach, position, size)
        while not await self._blocking.in_thread(reach, self._program):
            self._node.check_exists()
            if self._program.wants_to_end():
                raise FileError(Refusal.INTERRUPTED)


class MergedFile(LogNode):
    """Records of all partitions of a topic, merged by time."""

    __slots__ = ("_files", "_form", "told_size")
    mode = nodes.READ_MODE

    def __init__(self, parent: nodes.Directory, name: str, files: TopicFiles, form: Form) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._form = form
        self.told_size = 0
        """The size that stat reported last. If a read reaches the end before this size, it also returns newer
        records.
        """

    def attributes(self) -> nodes.Attributes:
        self.told_size = int(not self._opened_to_read)  # tar does not open empty files.
        return nodes.Attributes(self.mode, self.told_size, self.mtime_ns(), 0, self.node_id, nodes.READ_BLOCK)

    async def open(self, access: Access, pid: int) -> Handle:
        self._files.check_exists()
        writer = self._writer(access, pid)
        program = self.program(pid)
        merged, shares = None, []
        if access.reads:
            from topicfs.fusefs.views.merged_stream import MergedReader

            form, shares = await self._prepare(pid), await self.shares(program)
            merged = MergedReader(shares, form, self.context.settings.isolation)
            self._opened_to_read += 1
        emptied = access.truncates and not access.appends
        options = LogHandleOptions(caller=program, sync=self._sync(pid), emptied=emptied)
        handle = MergedHandle(self, merged, writer, program, options)
        if writer is not None or self._sized or all(one.start_offset >= one.end_offset for one in shares):
            return handle
        return UnsizedHandle(handle, lambda: None if self._sized else self.told_size)

    @property
    def _sized(self) -> bool:
        """True if `told_size` is exact."""
        return False

    async def _prepare(self, pid: int) -> Form:
        """Prepare the file for a read by process `pid`, and return the form to read. Raises FileError."""
        return self.context.decoding.renewed(self._form)

    async def shares(self, program: Program) -> list[MergedRange]:
        """Return the current range of each partition. Raises FileError (EINTR) if the program is about to end."""
        shares: list[MergedRange] = []
        left = deque(self._files.topic.partitions().values())
        while left:
            await self.context.blocking.in_thread(partial(self._take_shares, left, shares), program)
            self.check_exists()
            if program.wants_to_end():
                raise FileError(Refusal.INTERRUPTED)
        return shares

    def _take_shares(self, left: deque[Partition], shares: list[MergedRange]) -> None:
        """Move partitions from `left` to `shares` for SLICE_SECONDS; move at least one (blocking)."""
        until = time.monotonic() + SLICE_SECONDS
        while left:
            partition = left.popleft()
            partition.find_bounds()
            shares.append(self._share(partition))
            if time.monotonic() > until:
                break

    def _share(self, partition: Partition) -> MergedRange:
        """Return the current range of a partition (blocking)."""
        from topicfs.fusefs.views.merged_stream import MergedRange

        offsets = partition.offsets()
        end_offset = offsets.visible_end(self.context.settings.isolation)
        return MergedRange(partition, offsets.log_start_offset, end_offset)

    def check_exists(self) -> None:
        self._files.check_exists()


class TopicSize:
    """The total size of a topic's partitions in one form. Measures only partitions that changed."""

    def __init__(self, files: TopicFiles, form: Form) -> None:
        self.newest = NO_TIMESTAMP
        """The time of the newest record."""
        self.views: dict[int, View] = {}
        """The view of each partition. Views are never replaced; a new partition gets its view at the next `measured`."""
        self._files = files
        self._form = form
        self._sizes: dict[int, int] = {}
        self._news: dict[int, tuple[PartitionFiles, int]] = {}
        self._outdated = False

    @property
    def size(self) -> int:
        """Total size as of the last `measured`."""
        return sum(self._sizes.values())

    @property
    def outdated(self) -> bool:
        """True after records were removed from a partition. `size` still counts them, so the log needs a new node."""
        _ = self.measured
        return self._outdated

    @property
    def measured(self) -> bool:
        """True if `size` is exact. Only for the event loop's thread."""
        exact = True
        for number, partition in self._files.topic.partitions().items():
            files = self._files.partition(number)
            news = files, files.news.news_count
            if self._news.get(number) != news:
                present = files.views.whole(self._form)
                view = self.views.setdefault(number, present)
                self._outdated |= view is not present
                known = view.measured
                self._sizes[number] = view.size if partition.unknown is None else 1
                if known:
                    self._news[number] = news
                    self.newest = max(self.newest, partition.newest_timestamp)
                exact = exact and known
        return exact

    def measure(self, *, max_bytes: int | None = None) -> bool:
        """Measure for SLICE_SECONDS (blocking); return whether every view is measured."""
        until = time.monotonic() + SLICE_SECONDS
        for view in list(self.views.values()):
            while not view.measured:
                if time.monotonic() > until:
                    return False
                view.measure(max_bytes=max_bytes)
        return True


class TopicLogFile(MergedFile):
    """`log`, `log.kv`, `log.json` of a topic."""

    __slots__ = ("_size",)
    mode = nodes.LOG_MODE
    entry_timeout = DECODED_SECONDS

    def __init__(self, parent: nodes.Directory, name: str, files: TopicFiles, form: Form) -> None:
        super().__init__(parent, name, files, form)
        self._size: TopicSize | None = None

    def is_current(self) -> bool:
        return not self._form.outdated and (self._size is None or not self._size.outdated)

    @property
    def measured(self) -> bool:
        engine = self.context.engine
        if engine.remote or engine.foreign:  # Do not scan a cluster or a foreign directory only for the size.
            return True
        return self._size is not None and self.context.measuring.measured(self._size)

    def attributes(self) -> nodes.Attributes:
        sized, size = self._sized, self._size
        ino = self._files.shown_inos.setdefault(self.name, self.node_id)
        shown = super().attributes()._replace(ino=ino)
        if size is None or not (sized or size.size):
            return shown
        self.told_size = size.size
        mtime_ns = shown.mtime_ns if size.newest == NO_TIMESTAMP else nodes.nanoseconds(size.newest)
        return shown._replace(size=self.told_size, mtime_ns=mtime_ns)

    @property
    def _sized(self) -> bool:
        return self._size is not None and self.measured

    async def measure(self, pid: int, seconds: float | None = None) -> None:
        """Wait at most `seconds` for the exact size. Raises FileError (EINTR) if process `pid` is about to end."""
        seconds = self.context.settings.stat_seconds if seconds is None else seconds
        if self._size is None:
            for number in self._files.topic.partitions():
                self._files.partition(number)
                if number % SLOW_DISTRIBUTION_PARTITIONS == SLOW_DISTRIBUTION_PARTITIONS - 1:
                    await trio.lowlevel.checkpoint()
            self._size = TopicSize(self._files, self._form)
        measuring, waiting = self.context.measuring, self.context.waiting
        with suppress(StorageError):  # Reading the file reports the error.
            await measuring.measure(self._size, seconds=seconds, ended=lambda: waiting.wants_to_end(pid))
        if not self.measured:
            measuring.measure_later(self._size, lambda: None)
        if waiting.wants_to_end(pid):
            raise FileError(Refusal.INTERRUPTED)

    async def _prepare(self, pid: int) -> Form:
        settings, decoding = self.context.settings, self.context.decoding
        if not self.is_current() and not (self._form.outdated and decoding.refused(pid, self.path)):
            raise FileError(Refusal.GONE)  # The kernel then looks the name up again, once.
        if not self.measured:
            decodes = self._form.suffix in DECODED_SUFFIXES
            await self.measure(pid, settings.stat_seconds if decodes else settings.open_seconds)
        return self._form

    def _share(self, partition: Partition) -> MergedRange:
        share = super()._share(partition)
        view = None if self._size is None else self._size.views.get(partition.number)
        return share if view is None else share._replace(start_offset=view.start_offset)

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
        from topicfs.fusefs.appending.framing import PARTITIONED_LINES
        from topicfs.fusefs.appending.handle import AppendHandle

        framing = framing_of(self._form)
        if not framing.asks_elsewhere and len(self._files.topic.partitions()) > SLOW_DISTRIBUTION_PARTITIONS:
            framing = PARTITIONED_LINES
        target = self._files.target(self._form)
        return AppendHandle(
            target, self.context.appending(), opener_pid=pid, durable=durable, framing=framing
        )

    def truncate(self, size: int, end: int | None) -> None:
        nodes.accept_truncation(size, None, end)


class TopicTimesFile(MergedFile):
    """`@T1-@T2`, `@T1-`: for each partition, the records that the name selected at open(2), merged by time."""

    __slots__ = ("_current_until", "_selector")
    entry_timeout = SELECTOR_CACHE_SECONDS

    def __init__(
        self, parent: nodes.Directory, name: str, files: TopicFiles, form: Form, selector: TimeRange
    ) -> None:
        super().__init__(parent, name, files, form)
        self._selector = selector
        self._current_until = current_until(selector)

    def is_current(self) -> bool:
        return time.monotonic() < self._current_until

    def _share(self, partition: Partition) -> MergedRange:
        from topicfs.fusefs.views.merged_stream import MergedRange

        isolation = self.context.settings.isolation
        with Allowance(THREAD_BYTES, inline=False):  # Each partition gets the full allowance of a request.
            place = resolve(self._selector, partition, isolation=isolation)
        assert isinstance(place, SelectedRange)
        end = partition.visible_end(isolation) if place.end_offset is None else place.end_offset
        return MergedRange(partition, place.start_offset, end)
