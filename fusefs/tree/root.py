"""The mount's root: a directory for each topic, and special names. They contain `@`, which no topic's name contains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.metrics_and_scrub import MetricsFile, ScrubFile
from topicfs.fusefs.files.status import DaemonStatusFile
from topicfs.fusefs.files.topic_files import AllTopics
from topicfs.fusefs.nodes.context import MountContext
from topicfs.fusefs.nodes.nodes import Directory, Node
from topicfs.fusefs.tree.topics import TopicDirectory
from topicfs.storage.disk.names import is_internal
from topicfs.storage.errors import GroupsUnsupportedError, TopicNotEmptyError


def _groups(parent: RootDirectory, name: str) -> Node:
    from topicfs.fusefs.tree.groups import GroupsDirectory

    return GroupsDirectory(parent, name)


def _queues(parent: RootDirectory, name: str) -> Node:
    unavailable = parent.context.engine.share_groups.unavailable
    if unavailable is not None:
        raise GroupsUnsupportedError(unavailable)
    from topicfs.fusefs.tree.queues import QueuesDirectory

    return QueuesDirectory(parent, name)


def _producers(parent: RootDirectory, name: str) -> Node:
    from topicfs.fusefs.files.producers import ProducersFile

    return ProducersFile(parent, name)


QUEUES = "@queues"
NAMES: dict[str, Callable[[RootDirectory, str], Node]] = {
    "@groups": _groups,
    QUEUES: _queues,
    "@status": DaemonStatusFile,
}
"""Special names that are listed; `@queues` only if the engine has queues."""

UNLISTED: dict[str, Callable[[RootDirectory, str], Node]] = {
    "@metrics": MetricsFile,
    "@producers": _producers,
    "@scrub": ScrubFile,
}
"""Special names that are not listed. Their text always changes, so copies of a mount would always differ."""


class RootDirectory(Directory):
    """The root directory of the mount."""

    __slots__ = ("topics",)

    def __init__(self, context: MountContext) -> None:
        super().__init__(context, None, "")
        self.topics = AllTopics(context, self.node_id)

    def names(self) -> Sequence[str]:
        engine = self.context.engine
        has_queues = engine.share_groups.unavailable is None
        return [*(name for name in NAMES if has_queues or name != QUEUES), *engine.topics()]

    def make(self, name: str) -> Node:
        own = NAMES.get(name) or UNLISTED.get(name)
        if own is not None:
            return own(self, name)
        return TopicDirectory(self, name, self.topics.get(name))

    def removal(self, name: str) -> str:
        """Return the sentence that explains to users how to remove a topic."""
        if self.context.settings.allow_delete:
            return f"`rmdir {name}` removes the topic with its records"
        command = f"`topicfs topics delete {name} --with-records` after the unmount"
        return f"`rmdir {name}` removes the topic once it is empty, or in a mount with --allow-delete; so does {command}"

    async def make_directory(self, name: str, pid: int) -> Directory:
        """Create a topic with num.partitions partitions."""
        engine = self.context.engine
        if engine.read_only:
            raise FileError(Refusal.READ_ONLY)
        if is_internal(name):
            raise FileError(
                Refusal.NOT_PERMITTED,
                f"{name} is one of Kafka's own topics, created when needed",
                reported=True,
            )
        await self.change(lambda: engine.create_topic(name), pid)
        node = self.lookup(name)
        assert isinstance(node, Directory)
        return node

    async def remove_directory(self, name: str, pid: int) -> None:
        """Delete a topic. A topic with records is deleted only with --allow-delete."""
        engine = self.context.engine
        if name in NAMES or name in UNLISTED:
            raise FileError(Refusal.NOT_PERMITTED)
        files = self.topics.get(name)
        files.check_writable()

        def remove() -> None:
            engine.delete_topic(name, with_records=self.context.settings.allow_delete)

        try:
            await self.change(remove, pid)
        except TopicNotEmptyError as error:
            reason = f"{error}; {self.removal(name)}"
            raise FileError(Refusal.NOT_EMPTY, reason, reported=True) from error
        self.topics.refresh()
