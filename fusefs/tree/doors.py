"""A topic's own doors: `orders/log` takes lines for the partitioner to spread; it is never read."""

from __future__ import annotations

import errno

from fusefs.appending.flags import Access, check_append
from fusefs.appending.handle import AppendHandle
from fusefs.appending.targets import DoorTarget
from fusefs.errors import FileError
from fusefs.tree.handles import Handle, LogHandle
from fusefs.tree.nodes import (
    DOOR_MODE,
    FOR_LONG,
    NANOSECONDS_A_MILLISECOND,
    Attributes,
    Directory,
    File,
    accept_truncation,
)
from fusefs.tree.topic_files import TopicFiles


class DoorFile(File):
    """`log`, `log.kv` or `log.json` of a topic."""

    __slots__ = ("_files", "_target")

    def __init__(self, parent: Directory, name: str, files: TopicFiles, target: DoorTarget) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._target = target

    def attributes(self) -> Attributes:
        return Attributes(
            DOOR_MODE, 0, self.context.started * NANOSECONDS_A_MILLISECOND, FOR_LONG, self.node_id
        )

    async def open(self, access: Access, pid: int) -> Handle:
        if access.reads:
            # The kernel lets root pass the mode.
            raise FileError(
                errno.EACCES, f"{self.path} is only written; read {self.parent_path}/0/{self.name}"
            )
        self._files.check_writable()
        check_append(access, truncation_accepted=self.name == "log")
        writer = AppendHandle(self._target, self.context.appending, opener_pid=pid, durable=access.durable)
        return LogHandle(self, None, writer, emptied=access.truncates)

    @property
    def parent_path(self) -> str:
        return self.path.rpartition("/")[0]

    def truncate(self, size: int, *, emptied: bool) -> None:
        accept_truncation(size, None, emptied=emptied)

    def check_exists(self) -> None:
        self._files.check_exists()

    def begin_write(self) -> None:
        """A door has nothing that the kernel could remember."""

    def end_write(self) -> None:
        pass

    def closed(self) -> None:
        pass
