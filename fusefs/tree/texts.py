"""Small texts, made when they are opened: what `status`, `config`, `start` and `@status` have in common."""

from __future__ import annotations

import errno
from abc import abstractmethod

from fusefs.appending.flags import Access
from fusefs.appending.handle import AppendHandle
from fusefs.appending.targets import LineTarget
from fusefs.errors import FileError
from fusefs.tree.context import MountContext
from fusefs.tree.handles import Handle, TextHandle
from fusefs.tree.nodes import LOG_MODE, READ_MODE, Attributes, Directory, File


class TextFile(File):
    """A text that is up to date when opened; its size holds for who has it open."""

    __slots__ = ("_opened", "_text")

    def __init__(self, context: MountContext, parent: Directory, name: str) -> None:
        super().__init__(context, parent, name)
        self._opened = 0
        self._text = b""

    @abstractmethod
    def render(self) -> str:
        """Give the text as of now."""

    def target(self) -> LineTarget | None:
        """Where written lines go; None: it is only read."""
        return None

    def mtime_ns(self) -> int:
        return self.context.clock() * 1_000_000

    def attributes(self) -> Attributes:
        if not self._opened:
            self._text = self.render().encode()
        mode = READ_MODE if self.target() is None else LOG_MODE
        return Attributes(mode, len(self._text), self.mtime_ns(), 0, self.node_id)

    async def open(self, access: Access, pid: int) -> Handle:
        writer = self._writer(access, pid)
        if not self._opened:
            self._text = self.render().encode()
        self._opened += 1
        return TextHandle(self._text, writer, self._closed)

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        if not access.writes:
            return None
        target = self.target()
        if self.context.engine.read_only:
            raise FileError(errno.EROFS)
        if target is None:
            raise FileError(errno.EPERM, f"{self.path} is only read")
        return AppendHandle(target, self.context.appending, opener_pid=pid, durable=access.durable)

    def _closed(self) -> None:
        self._opened -= 1

    def truncate(self, size: int, *, emptied: bool) -> None:
        """Every line stands for itself: what is not written stays as it is."""
        if self.target() is None:
            super().truncate(size, emptied=emptied)
