"""Small text files, rendered when opened: the base of `status`, `config`, `start` and `@status`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from topicfs.fusefs.appending.flags import Access
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.files.topic_files import TopicFiles
from topicfs.fusefs.handle import Handle
from topicfs.fusefs.nodes.nodes import LOG_MODE, READ_MODE, Attributes, Directory, FileNode, nanoseconds
from topicfs.storage.engine import LogEngine
from topicfs.storage.errors import PartitionGoneError

if TYPE_CHECKING:
    from topicfs.fusefs.appending.handle import AppendHandle
    from topicfs.fusefs.appending.targets import LineTarget


def same_topic(engine: LogEngine, name: str) -> Callable[[], None]:
    """Return a check that raises PartitionGoneError if the topic was deleted, even if a new topic has the same name."""

    def topic_id() -> str | None:
        topic = engine.topics().get(name)
        return None if topic is None else topic.topic_id

    opened = topic_id()

    def check() -> None:
        if opened is None or topic_id() != opened:
            raise PartitionGoneError(f"{name} was deleted")

    return check


class TextHandle(Handle):
    """The text as it was when the file was opened, and the target of written lines, if any."""

    def __init__(self, text: bytes, writer: AppendHandle | None, closed: Callable[[], None]) -> None:
        self._text = text
        self._writer = writer
        self.flushes = writer is not None
        self._closed = closed

    async def read(self, position: int, size: int) -> bytes:
        return self._text[position : position + size]

    async def write(self, position: int, data: bytes) -> int:
        if self._writer is None:
            raise FileError(Refusal.NOT_OPEN)
        return await self._writer.write(data)

    async def flush(self) -> None:
        if self._writer is not None:
            await self._writer.flush()

    async def release(self) -> None:
        self._closed()
        if self._writer is not None:
            await self._writer.release()


class TextFile(FileNode):
    """A text that is up to date when it is opened; its size does not change while it is open."""

    __slots__ = ("_changed", "_opened", "_text")

    def __init__(self, parent: Directory, name: str) -> None:
        super().__init__(parent.context, parent, name)
        self._opened = 0
        self._text = b""
        self._changed = self.context.started

    @abstractmethod
    def render(self) -> str:
        """Return the current text."""

    def target(self) -> LineTarget | None:
        """Return the target of written lines; None for a read-only file."""
        return None

    def mtime_ns(self) -> int:
        """The time when the present text was first seen. As long as the text stays the same, copying tools skip the file."""
        return nanoseconds(self._changed)

    def listed_mtime_ns(self) -> int:
        """The modification time for readdir; stat computes it again."""
        return self.mtime_ns()

    def _rendered(self) -> bytes:
        """Return the current text; while a handle is open, the text that the handle shows."""
        return self._text if self._opened else self.render().encode()

    def _renew(self, text: bytes) -> None:
        """Show a new text unless a program has opened the file meanwhile."""
        if self._opened:
            return
        if self._text and text != self._text:
            self._changed = self.context.clock()
        self._text = text

    def attributes(self) -> Attributes:
        # stat(2) shows the size at the last open, and sends no query to a remote engine.
        if not self.context.engine.remote:
            self._renew(self._rendered())
        return self._attributes(len(self._text), self.mtime_ns())

    def listed_attributes(self) -> Attributes:
        # A listing must not render texts, which may be expensive, and a stat follows anyway. But an open file
        # must never seem empty.
        return self._attributes(len(self._text) if self._opened else 0, self.listed_mtime_ns())

    def _attributes(self, size: int, mtime_ns: int) -> Attributes:
        mode = READ_MODE if self.target() is None else LOG_MODE
        return Attributes(mode, size, mtime_ns, 0, self.node_id)

    async def open(self, access: Access, pid: int) -> Handle:
        writer = self._writer(access, pid)
        if not access.reads:
            return TextHandle(b"", writer, closed=lambda: None)
        self._renew(await self.context.blocking.run_inline_or_in_thread(self._rendered, self.program(pid)))
        self._opened += 1
        return TextHandle(self._text, writer, self._closed)

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        if not access.writes:
            return None
        from topicfs.fusefs.appending.handle import AppendHandle

        self.check_writable()
        target = self.target()
        if target is None:
            raise FileError(Refusal.NOT_PERMITTED, f"{self.path} is read-only")
        # A command waits for the disk, and perhaps for other changes: `durable` makes it run in a thread.
        return AppendHandle(target, self.context.appending(), opener_pid=pid, durable=True)

    def check_writable(self) -> None:
        """Raise FileError if writing is not allowed."""
        if self.context.engine.read_only:
            raise FileError(Refusal.READ_ONLY)

    def _closed(self) -> None:
        self._opened -= 1

    def truncate(self, size: int, end: int | None) -> None:
        """Do nothing: a written line is a command, not the new content of the file.

        Settings that no line names keep their values.
        """
        if self.target() is None:
            super().truncate(size, end)


class FreshTextFile(TextFile):
    """A text file that is rendered for each open, even while another program has the file open."""

    __slots__ = ()

    def _rendered(self) -> bytes:
        return self.render().encode()

    def _renew(self, text: bytes) -> None:
        self._text = text


class TopicTextFile(TextFile):
    """A small text about one topic."""

    __slots__ = ("_files",)

    def __init__(self, parent: Directory, name: str, files: TopicFiles) -> None:
        super().__init__(parent, name)
        self._files = files

    def check_same(self) -> None:
        """Raise PartitionGoneError if the topic was deleted: a command must not change a new topic with its name."""
        if self._files.deleted:
            raise PartitionGoneError(f"{self._files.topic.name} was deleted")


class PartitionTextFile(TextFile):
    """A text file about a partition, with the time of the partition's newest record."""

    __slots__ = ("_files",)

    def __init__(self, parent: Directory, name: str, files: PartitionFiles) -> None:
        super().__init__(parent, name)
        self._files = files

    def mtime_ns(self) -> int:
        return self._files.mtime_ns()
