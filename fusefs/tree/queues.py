"""`@queues`: a directory for each queue (share group), which contains a directory for each topic."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence

from topicfs.coordination import share_groups
from topicfs.coordination.shares.group import QueueGroup
from topicfs.coordination.shares.groups import ShareGroups
from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.queue_files import QueueConfigFile, QueuedRecord, QueueStatusFile, TakeNode
from topicfs.fusefs.forms import FORMS
from topicfs.fusefs.nodes.nodes import Directory, Node
from topicfs.fusefs.tree.groups import GroupDirectory, KindDirectory
from topicfs.storage.errors import InvalidNameError

TAKES = {f"take{form.suffix}": form for form in FORMS}
"""The files for taking records, one for each form of lines."""


class QueuesDirectory(KindDirectory):
    """`@queues`: the share groups. Each record is given to one member at a time."""

    __slots__ = ()

    @property
    def service(self) -> ShareGroups:
        return self.context.engine.share_groups

    def listed(self) -> Collection[str]:
        return self.service.groups()

    def keeps_state(self, name: str) -> bool:
        return bool(self.service.group(name).topics())

    def make(self, name: str) -> Node:
        if name in self.listed():
            return QueueDirectory(self.context, self, name)
        raise FileError(Refusal.NOT_FOUND, f"no such queue; create it with `mkdir @queues/{name}`")


class QueueDirectory(GroupDirectory):
    """`@queues/jobs`: a directory for each topic; any other name is parsed as a list of topics."""

    __slots__ = ()
    files = {"config": QueueConfigFile, "status": QueueStatusFile}  # noqa: RUF012 - as in its base

    def topics(self) -> set[str]:
        group = self.context.engine.share_groups.group(self.name)
        return set(group.topics()).union(*(member.topics for member in group.members()))

    def make_subscription(self, name: str) -> Node:
        topics = tuple(name.split(","))
        present = self.context.engine.topics()
        if not all(topic in present for topic in topics):
            raise FileError(Refusal.NOT_FOUND, f"no such topic: {name}")
        return QueuedTopicDirectory(self, name, topics)


class QueuedTopicDirectory(Directory):
    """`@queues/jobs/orders`: a topic of a queue."""

    __slots__ = ("_topics",)

    entry_timeout = 0.0

    def __init__(self, parent: Directory, name: str, topics: tuple[str, ...]) -> None:
        super().__init__(parent.context, parent, name)
        self._topics = topics

    def names(self) -> Sequence[str]:
        return list(RECORDS) if len(self._topics) == 1 else []

    def make(self, name: str) -> Node:
        assert self.parent is not None
        form = TAKES.get(name)
        if form is not None:
            return TakeNode(self, name, self.parent.name, self._topics, form)
        if name not in self.names():
            raise FileError(Refusal.NOT_FOUND)
        return RECORDS[name](self, name, self.parent.name, self._topics[0])


class _Records(Directory):
    """A directory with records as files."""

    __slots__ = ("_group", "_topic")

    def __init__(self, parent: Directory, name: str, group: str, topic: str) -> None:
        super().__init__(parent.context, parent, name)
        self._group = group
        self._topic = topic

    @property
    def group(self) -> QueueGroup:
        return self.context.engine.share_groups.group(self._group)

    @abstractmethod
    def places(self) -> Sequence[share_groups.RecordName]:
        """Return the records that are in the directory now."""

    def names(self) -> Sequence[str]:
        leave_event_loop()
        return [str(record_name) for record_name in self.places()]

    def make(self, name: str) -> Node:
        return QueuedRecord(self, name, self._record_name(name), self.places)

    def _record_name(self, name: str) -> share_groups.RecordName:
        try:
            record_name = share_groups.parse_record_name(name)
        except InvalidNameError:
            raise FileError(Refusal.NOT_FOUND) from None
        if record_name not in self.places():
            raise FileError(Refusal.NOT_FOUND)
        return record_name


class InFlightDirectory(_Records):
    """`in-flight`: the leased records. `rm` accepts a record for its holder; `mv` to the parent releases it."""

    __slots__ = ()

    def places(self) -> Sequence[share_groups.RecordName]:
        return [one.record_name for one in self.group.in_flight(self._topic)]

    async def remove_file(self, name: str, pid: int) -> None:
        record_name = self._record_name(name)
        await self.change(
            lambda: self.group.acknowledge_for_holder(record_name, share_groups.Acknowledgement.ACCEPT), pid
        )

    async def move_out(self, name: str, target: Directory, pid: int) -> None:
        if target is not self.parent:
            raise FileError(Refusal.NOT_PERMITTED, f"to release a record: `mv {name} ..`", reported=True)
        record_name = self._record_name(name)
        await self.change(
            lambda: self.group.acknowledge_for_holder(record_name, share_groups.Acknowledgement.RELEASE), pid
        )


class RejectedDirectory(_Records):
    """`rejected`: the rejected records. `rm` removes a record from the list."""

    __slots__ = ()

    def places(self) -> Sequence[share_groups.RecordName]:
        leave_event_loop()
        return [one.record_name for one in self.group.rejected(self._topic)]

    async def remove_file(self, name: str, pid: int) -> None:
        def forget() -> None:
            self.group.forget_rejected(self._record_name(name))

        await self.change(forget, pid)


RECORDS: dict[str, Callable[[Directory, str, str, str], Node]] = {
    "in-flight": InFlightDirectory,
    "rejected": RejectedDirectory,
}
"""The directories of a queue's leased and rejected records; both are listed."""
