"""The base of files of records, and their open handles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from topicfs.fusefs.allowance import INLINE_BYTES, Allowance
from topicfs.fusefs.appending.flags import Access, refuse_writing
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.handle import Handle
from topicfs.fusefs.nodes.context import MountContext
from topicfs.fusefs.nodes.nodes import Directory, FileNode
from topicfs.fusefs.threads.blocking_calls import BlockingCalls, RequestingProcess
from topicfs.storage.remote import ThreadNeededError

if TYPE_CHECKING:
    from topicfs.fusefs.appending.handle import AppendHandle
    from topicfs.fusefs.views.reader import ViewReader


class LogNode(FileNode):
    """A file of records; counts the handles that read it."""

    __slots__ = ("_opened_to_read",)

    def __init__(self, context: MountContext, parent: Directory, name: str) -> None:
        super().__init__(context, parent, name)
        self._opened_to_read = 0

    @abstractmethod
    def check_exists(self) -> None:
        """Raise FileError (ESTALE) if the file's topic was deleted."""

    def begin_write(self) -> None:
        """Begin a write, after which the kernel drops the file's cached attributes. Raises FileError (ESTALE)."""
        self.check_exists()

    def write_failed(self) -> None:
        """End a refused write. The kernel may then keep the file's cached attributes."""

    def closed(self, *, reads: bool) -> None:
        """Record that a handle was closed; `reads` says whether the handle was open for reading."""
        self._opened_to_read -= reads

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        """Return the appending half of a handle of process `pid`; None for a handle that only reads. Raises FileError."""
        refuse_writing(access)
        return None

    def _sync(self, pid: int) -> Callable[[], Awaitable[None]] | None:
        """Return a function that flushes records to disk, for handles that only read; None if the file is read-only."""
        return None


class LogHandleOptions(NamedTuple):
    """The options of an open log."""

    caller: RequestingProcess | None = None
    """The program that reads; its signals end blocking calls."""
    sync: Callable[[], Awaitable[None]] | None = None
    """Flushes the writes of other programs: sync(1) opens a file for reading and calls fsync(2)."""
    cached: bool = False
    """True if the kernel may cache the content."""
    emptied: bool = False
    """True if the file was opened with O_TRUNC but without O_APPEND, so the program expects an empty file."""


class LogHandle(Handle):
    """An open log of a partition or topic, for reading, writing, or both."""

    def __init__(
        self,
        node: LogNode,
        reader: ViewReader | None,
        writer: AppendHandle | None,
        blocking: BlockingCalls,
        options: LogHandleOptions,
    ) -> None:
        self._sync = options.sync
        self._node = node
        self._blocking = blocking
        self._caller = options.caller
        self._reader = reader
        self._reads = reader is not None
        self._writer = writer
        self.flushes = writer is not None
        self.direct_io = not options.cached
        self.keep_cache = options.cached
        self.end = 0 if options.emptied else None

    async def read(self, position: int, size: int) -> bytes | memoryview:
        if self._reader is None:
            raise FileError(Refusal.NOT_OPEN)
        self._node.check_exists()
        # The page cache would treat a short read at a damaged batch as the end of the file and pad it with
        # zeros. A read that bypasses the cache returns the bytes before the damage, and the next read returns
        # the error.
        read, short = self._reader.read, self.direct_io
        try:
            with Allowance(INLINE_BYTES, inline=True):
                return read(position, size, short_at_damage=short)
        except ThreadNeededError:
            return await self._blocking.in_thread(
                lambda: read(position, size, short_at_damage=short), self._caller
            )

    async def write(self, position: int, data: bytes) -> int:
        """Append `data`. After an open with O_TRUNC, `position` must be the number of bytes written so far.

        After any other open, `position` has no effect.
        """
        writer, node = self._writer, self._node
        if writer is None:
            raise FileError(Refusal.NOT_OPEN)
        if self.end is not None and position != self.end:
            self._check_appends(writer, position)
        node.begin_write()
        try:
            taken = await writer.write(data) if writer.waits else writer.take(data)
        except BaseException:
            node.write_failed()
            raise
        if self.end is not None:
            self.end += taken
        return taken

    def _check_appends(self, writer: AppendHandle, position: int) -> None:
        """Raise FileError (EPERM) unless the program has set O_APPEND since it opened the file, as make does.

        `position` is where the refused write would begin.
        """
        if not writer.opener_appends():
            reason = (
                f"written at byte {position} by a program that has written {self.end} bytes; a log accepts lines only at "
                "its end: copy a sparse file with cp --sparse=never"
            )
            error = FileError(Refusal.NOT_PERMITTED, reason, reported=True)
            writer.refuse_begun(error)
            raise error
        self.end = None

    async def flush(self) -> None:
        if self._writer is not None:
            await self._writer.flush()

    async def fsync(self) -> None:
        if self._writer is not None:
            await self._writer.fsync()
        elif self._sync is not None:
            await self._sync()

    async def release(self) -> None:
        self._node.closed(reads=self._reads)
        if self._writer is not None:
            await self._writer.release()


class UnsizedHandle(Handle):
    """An open log of unknown size.

    If the program stopped reading at the size that stat reported, close(2) fails, because the log may have more.
    """

    flushes = True

    def __init__(self, handle: Handle, told_size: Callable[[], int | None]) -> None:
        """Read through `handle`; `told_size` returns the size that stat reported last, or None if it is exact."""
        self._handle = handle
        self._told_size = told_size
        self._stopped_at: int | None = 0
        """Position after the last read; None if that read reached the end or failed."""

    async def read(self, position: int, size: int) -> bytes | memoryview:
        self._stopped_at = None
        data = await self._handle.read(position, size)
        if data:
            self._stopped_at = position + len(data)
        return data

    async def flush(self) -> None:
        if self._stopped_at is not None and self._stopped_at == self._told_size():
            remedy = "copy it with `cp`, or with `topicfs mirror`"
            raise FileError(
                Refusal.FAILED,
                f"the size of the file is unknown until it is read, so the program did not read all of it; {remedy}",
            )

    async def fsync(self) -> None:
        self._stopped_at = None  # sync(1) opens a file for reading, but reads nothing.
        await self._handle.fsync()

    async def release(self) -> None:
        await self._handle.release()
