"""A group's `log`, `drain` and `next-N`, in every form: opening one joins the group. They are not listed."""

from __future__ import annotations

from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import Subscription
from topicfs.fusefs.appending.flags import Access
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.forms import Form
from topicfs.fusefs.groups.read_limit import ReadLimit
from topicfs.fusefs.groups.reader import GroupHandle, GroupRead, ends_of
from topicfs.fusefs.handle import Handle
from topicfs.fusefs.nodes.nodes import CONSUMING_MODE, READ_BLOCK, Attributes, Directory, FileNode
from topicfs.fusefs.processes.visible import PROC, VisibleProcess
from topicfs.storage.errors import ReadOnlyError, UnknownGroupError
from topicfs.storage.model import Offset


class GroupLogNode(FileNode):
    """A file such as `log`, `drain`, `next-1000` or `next-10s`."""

    __slots__ = ("_form", "_group", "_limit", "_subscription")

    def __init__(
        self,
        parent: Directory,
        name: str,
        group: str,
        subscription: Subscription,
        form: Form,
        limit: ReadLimit,
    ) -> None:
        super().__init__(parent.context, parent, name)
        self._group = group
        self._subscription = subscription
        self._form = form
        self._limit = limit

    def attributes(self) -> Attributes:
        return Attributes(CONSUMING_MODE, 0, self.mtime_ns(), 0, self.node_id, READ_BLOCK)

    def truncate(self, size: int, end: int | None) -> None:
        """Do nothing: a stream has no size, so O_TRUNC has no effect."""

    async def open(self, access: Access, pid: int) -> Handle:
        """Join the group. Raises FileError and the errors of joining."""
        check_command_access(access, self.path)
        context = self.context
        if context.engine.read_only:
            raise ReadOnlyError(
                "reading as a member moves the group's positions, and this mount is read-only"
            )
        what = GroupRead(
            path=f"/{self.path}",
            engine=context.engine,
            group=self._group,
            subscription=self._subscription,
            form=context.decoding.following(self._form),
            isolation=context.settings.isolation,
            limit=self._limit,
            waiting=context.waiting,
            blocking=context.blocking,
            reports=context.reports,
            clock=context.clock,
        )

        def begin() -> dict[tuple[str, int], Offset]:
            check_group_exists(what.engine, what.group)
            return ends_of(what) if what.limit.drains else {}

        ends = await what.blocking.run_inline_or_in_thread(begin, self.program(pid))
        return GroupHandle(
            what, opener_pid=pid, program=program_of(pid), nonblocking=access.nonblocking, ends=ends
        )


def check_group_exists(engine: Engine, group: str) -> None:
    """Raise UnknownGroupError if the group was deleted. Otherwise an open file would create the deleted group again."""
    if group not in engine.groups.listed():
        raise UnknownGroupError(f"{group}: no such group")


def check_command_access(access: Access, path: str) -> None:
    """Raise FileError for opens with O_WRONLY or O_APPEND: written lines are commands about the handle's own reads."""
    if access.writes and (access.appends or not access.reads):
        raise FileError(
            Refusal.INVALID, f"{path}: open it for reading, or for reading and writing: exec 3<> {path}"
        )


def program_of(pid: int) -> str:
    """Return the name of the program that process `pid` runs; `unknown` if /proc does not show the process."""
    try:
        return VisibleProcess(PROC / str(pid)).program or "unknown"
    except OSError:
        return "unknown"
