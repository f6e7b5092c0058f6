"""`follow`, `follow.kv`, `follow.json`: not listed, because a tool that opens every listed file would hang here."""

from __future__ import annotations

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.flags import Access, refuse_writing
from topicfs.fusefs.following.follow import INLINE_PARTITIONS, Followed, FollowHandle
from topicfs.fusefs.handle import Handle
from topicfs.fusefs.nodes.nodes import LONG_CACHE_SECONDS, READ_MODE, Attributes, Directory, FileNode


class FollowNode(FileNode):
    """The `follow` file of a partition or of a topic."""

    __slots__ = ("_followed",)
    endless = True

    def __init__(self, parent: Directory, name: str, followed: Followed) -> None:
        super().__init__(parent.context, parent, name)
        self._followed = followed

    def attributes(self) -> Attributes:
        return Attributes(READ_MODE, 0, self.mtime_ns(), LONG_CACHE_SECONDS, self.node_id)

    async def open(self, access: Access, pid: int) -> Handle:
        refuse_writing(access)
        blocking, program = self.context.blocking, self.program(pid)

        def begin() -> FollowHandle:
            if len(self._followed.partitions()) > INLINE_PARTITIONS:
                leave_event_loop()
            form = self.context.decoding.following(self._followed.form)
            followed = self._followed._replace(form=form)
            return FollowHandle(followed, program, blocking, nonblocking=access.nonblocking)

        return await blocking.run_inline_or_in_thread(begin, program)
