"""Files that grow: a partition's whole log in each form, and open-ended ranges of it.

A view whose front was removed gets a new node, for a byte position must never shift under an open file; stat keeps
showing one number, so that `tail -F` takes it for the file it knows. Opening an outdated node is ESTALE, upon
which the kernel looks the name up again by itself.
"""

from __future__ import annotations

import errno

from fusefs.appending.flags import Access, check_append
from fusefs.appending.handle import AppendHandle
from fusefs.errors import FileError
from fusefs.forms import Form
from fusefs.tree.handles import Handle, LastPage, LogHandle
from fusefs.tree.nodes import FOR_LONG, LOG_MODE, READ_MODE, Attributes, Directory, File, accept_truncation
from fusefs.tree.partition_files import PartitionFiles
from fusefs.views.view import View


class ViewFile(File):
    """A view as a file."""

    __slots__ = ("_files", "_last_page", "_opened", "_view")

    def __init__(self, parent: Directory, name: str, files: PartitionFiles, view: View) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._view = view
        self._last_page = LastPage()
        self._opened = 0

    mode = READ_MODE

    def attributes(self) -> Attributes:
        self._files.check_exists()
        ino = self._shown_ino()
        if not self.settled:
            return Attributes(self.mode, 0, self._files.mtime_ns(), 0, ino)
        self._files.attributes_given(self.node_id)
        return Attributes(self.mode, self._view.size, self._files.mtime_ns(), FOR_LONG, ino)

    def listed_attributes(self) -> Attributes:
        return Attributes(self.mode, 0, self._files.mtime_ns(), 0, self._shown_ino())

    def _shown_ino(self) -> int:
        return (
            self._files.shown_inos.setdefault(self.name, self.node_id) if self._view.growing else self.node_id
        )

    @property
    def settled(self) -> bool:
        if self.context.engine.foreign:
            return self._view.measured
        return self.context.settling.settled(self._view)

    async def settle(self) -> None:
        if self.context.engine.foreign:
            self.context.settling.settle_behind(
                self._view, lambda: self.context.kernel.forget_attributes(self.node_id)
            )
        else:
            await self.context.settling.settle(self._view, seconds=self.context.settings.settle_seconds)

    def _check_current(self) -> None:
        self._files.check_exists()
        if not self.is_current():
            raise FileError(errno.ESTALE)

    async def open(self, access: Access, pid: int) -> Handle:
        writer = self._writer(access, pid)
        if access.reads:
            self._check_current()
            if not self.settled:
                await self.settle()
        self._opened += 1
        cached = access.reads and not access.writes and self.settled
        reader = self._view.reader() if access.reads else None
        return LogHandle(self, reader, writer, last_page=self._last_page if cached else None)

    def check_exists(self) -> None:
        self._files.check_exists()

    def begin_write(self) -> None:
        self._files.written_node = self.node_id

    def end_write(self) -> None:
        self._files.written_node = None

    def closed(self) -> None:
        self._opened -= 1

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        del pid
        if access.writes:
            raise FileError(errno.EPERM, "not to be written")
        return None


class LogFile(ViewFile):
    """`log`, `log.kv`, `log.json` of a partition: every retained record; what is written is appended."""

    __slots__ = ("_form",)
    mode = LOG_MODE

    def __init__(self, parent: Directory, name: str, files: PartitionFiles, form: Form) -> None:
        super().__init__(parent, name, files, files.views.whole(form))
        self._form = form

    def is_current(self) -> bool:
        return self._view is self._files.views.whole(self._form)

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        if not access.writes:
            return None
        self._files.check_exists()
        check_writable(self._files, access, truncation_accepted=not self._form.suffix)
        return AppendHandle(
            self._files.target(self._form), self.context.appending, opener_pid=pid, durable=access.durable
        )

    def truncate(self, size: int) -> None:
        accept_truncation(size, self._view.size)


def check_writable(files: PartitionFiles, access: Access, *, truncation_accepted: bool) -> None:
    """Raise FileError unless the partition takes lines from a program that opens with `access`."""
    if files.context.engine.read_only:
        raise FileError(errno.EROFS)
    if files.context.engine.topic(files.partition.topic).internal:
        raise FileError(errno.EPERM, f"{files.partition.topic} is one of Kafka's own topics")
    check_append(access, truncation_accepted=truncation_accepted)
