"""The files of a queue: `take`, `config`, `status`, and the records in `in-flight` and `rejected`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from topicfs.coordination.share_groups import RecordName
from topicfs.coordination.shares.group import QueueSession
from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.flags import Access, refuse_writing
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.files.group_files import GroupConfigFile, GroupFile
from topicfs.fusefs.files.group_log import check_command_access, program_of
from topicfs.fusefs.forms import VALUES, Form
from topicfs.fusefs.groups.queue import TakeHandle
from topicfs.fusefs.handle import BytesHandle, Handle
from topicfs.fusefs.nodes.nodes import CONSUMING_MODE, READ_MODE, Attributes, Directory, FileNode
from topicfs.fusefs.times import spelled_time
from topicfs.fusefs.views.records import content_of, find_record
from topicfs.storage.config.listing import ShownSetting
from topicfs.storage.errors import ReadOnlyError, StorageError, UnknownGroupError
from topicfs.storage.messages import printable


class TakeNode(FileNode):
    """`take`: opening it joins the share group. Not listed, because reading takes records away from other readers."""

    __slots__ = ("_form", "_group", "_topics")

    def __init__(self, parent: Directory, name: str, group: str, topics: tuple[str, ...], form: Form) -> None:
        super().__init__(parent.context, parent, name)
        self._group = group
        self._topics = topics
        self._form = form

    def attributes(self) -> Attributes:
        return Attributes(CONSUMING_MODE, 0, self.mtime_ns(), 0, self.node_id)

    def truncate(self, size: int, end: int | None) -> None:
        """Do nothing: a stream has no size."""

    async def open(self, access: Access, pid: int) -> Handle:
        """Begin a session. Raises FileError and the errors of `QueueGroup.open`."""
        check_command_access(access, self.path)
        context = self.context
        if context.engine.read_only:
            raise ReadOnlyError("taking records changes the queue, and this mount is read-only")
        blocking, program = context.blocking, self.program(pid)
        form = context.decoding.following(self._form)
        holder = f"{program_of(pid)} {pid}"
        groups, name, topics = context.engine.share_groups, self._group, self._topics

        def begin() -> QueueSession:
            if not groups.exists(name):  # The program's working directory is a deleted queue.
                raise UnknownGroupError(f"{name}: no such queue")
            return groups.group(name).open(list(topics), holder=holder)

        session = await blocking.run(begin, caller=program)
        return TakeHandle(session, form, program, blocking, nonblocking=access.nonblocking)


class QueueConfigFile(GroupConfigFile):
    """`config` of a queue."""

    __slots__ = ()

    def settings(self) -> Sequence[ShownSetting]:
        leave_event_loop()
        return self.context.engine.share_groups.group(self._group).listed_settings()

    def alter(self, changes: Mapping[str, str | None]) -> None:
        self.context.engine.share_groups.group(self._group).alter(changes)


class QueueStatusFile(GroupFile):
    """`status` of a queue: the queue's members, its position in each partition, and its leased records."""

    __slots__ = ()

    def render(self) -> str:
        leave_event_loop()
        group = self.context.engine.share_groups.group(self._group)
        positions = [one for topic in group.topics() for one in group.positions(topic)]
        members = group.members()
        lines = [
            f"state {group.state}",
            "type share",
            f"epoch {group.epoch}",
            f"members {len(members)}",
            f"lag {sum(one.lag for one in positions)}",
            f"in_flight {sum(one.in_flight for one in positions)}",
            *(
                f"member {one.member_id} reader {one.holder} topics {','.join(one.topics)} held {one.held}"
                for one in members
            ),
            *(
                f"partition {one.partition} start {one.start_offset} end {one.end_offset} "
                f"in_flight {one.in_flight} waiting {one.waiting} lag {one.lag}"
                for one in positions
            ),
            *(
                f"held {one.record_name} by {one.holder or one.member_id} deliveries {one.delivery_count} "
                f"until {spelled_time(one.lease_end)}"
                for topic in group.topics()
                for one in group.in_flight(topic)
            ),
        ]
        return "".join(f"{printable(line)}\n" for line in lines)


class QueuedRecord(FileNode):
    """A record in `in-flight` or `rejected`. The file's content is the record's value, byte for byte."""

    __slots__ = ("_places", "_record_name")

    entry_timeout = 0.0
    """0: the file may disappear at any time."""

    def __init__(
        self,
        parent: Directory,
        name: str,
        record_name: RecordName,
        places: Callable[[], Sequence[RecordName]],
    ) -> None:
        """Create the file. `places` returns the records that are in the file's directory now."""
        super().__init__(parent.context, parent, name)
        self._record_name = record_name
        self._places = places

    def _content(self) -> bytes:
        record_name, isolation = self._record_name, self.context.settings.isolation
        try:
            partition = self.context.engine.partition(record_name.topic, record_name.partition)
            found = find_record(partition, record_name.offset, isolation=isolation)
        except (StorageError, FileError):
            return b""  # The record was removed from its log, but the user can still remove this file.
        return b"" if found is None else content_of(found, VALUES, partition)

    def is_current(self) -> bool:
        return self._record_name in self._places()

    def attributes(self) -> Attributes:
        return Attributes(READ_MODE, len(self._content()), self.mtime_ns(), 0, self.node_id)

    async def open(self, access: Access, pid: int) -> Handle:
        refuse_writing(access)
        content = await self.context.blocking.run_inline_or_in_thread(self._content, self.program(pid))
        return BytesHandle(content)
