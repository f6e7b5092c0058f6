"""The directories below `@groups`.

In `@groups/billing/orders/0`, `billing` is a group, `orders` is its subscription, and `0` is a partition.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

from topicfs.coordination.membership import Groups, Subscription
from topicfs.coordination.shares.groups import ShareGroups
from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.group_files import GroupConfigFile, GroupStatusFile, LagFile, PositionFile
from topicfs.fusefs.files.group_log import GroupLogNode
from topicfs.fusefs.forms import BATCH, SUFFIXES
from topicfs.fusefs.groups.read_limit import parse_read_limit
from topicfs.fusefs.nodes.nodes import Directory, Node
from topicfs.storage.disk.names import check_topic_name
from topicfs.storage.errors import GroupExistsError, InvalidNameError, UnknownGroupError
from topicfs.storage.model import TopicPartition

PATTERN_SIGNS = frozenset("*?[")


class KindDirectory(Directory):
    """All groups of one kind: mkdir creates a group, rmdir deletes it. A name belongs to a single kind."""

    __slots__ = ("_loaded",)

    def __init__(self, parent: Directory, name: str) -> None:
        super().__init__(parent.context, parent, name)
        self._loaded = False

    @property
    @abstractmethod
    def service(self) -> Groups | ShareGroups:
        """The service that creates and deletes the groups."""

    @abstractmethod
    def listed(self) -> Collection[str]:
        """Return the names of the groups."""

    @abstractmethod
    def keeps_state(self, name: str) -> bool:
        """Return whether a deletion would lose positions (blocking)."""

    def _load(self) -> None:
        """Read the groups from the disk, if they were not read yet. In the event loop, raise ThreadNeededError."""
        if not self._loaded:
            leave_event_loop()
            self.listed()
            self._loaded = True

    def names(self) -> Sequence[str]:
        self._load()
        return sorted(self.listed())

    def lookup(self, name: str) -> Node:
        self._load()
        return super().lookup(name)

    async def make_directory(self, name: str, pid: int) -> Directory:

        def create() -> None:
            with self.context.shared.naming_groups:
                try:
                    self.service.create(name)
                except GroupExistsError as error:
                    is_other = name not in self.listed()
                    raise FileError(Refusal.EXISTS, str(error), reported=is_other) from error

        await self.change(create, pid)
        node = await self.context.blocking.run_inline_or_in_thread(
            lambda: self.lookup(name), self.program(pid)
        )
        assert isinstance(node, Directory)
        return node

    async def remove_directory(self, name: str, pid: int) -> None:
        """Delete a group without members. A group with positions can be deleted only with --allow-delete."""

        def remove() -> None:
            if not self.context.settings.allow_delete and self.keeps_state(name):
                remedy = f"in a mount with --allow-delete, or by `topicfs groups delete {name}`"
                raise FileError(
                    Refusal.NOT_EMPTY, f"{name} has positions; delete them {remedy}", reported=True
                )
            self.service.delete(name)

        await self.change(remove, pid)


class GroupsDirectory(KindDirectory):
    """`@groups`: the consumer groups, whose members share partitions."""

    __slots__ = ()

    @property
    def service(self) -> Groups:
        return self.context.engine.groups

    def listed(self) -> Collection[str]:
        return self.service.listed()

    def keeps_state(self, name: str) -> bool:
        return bool(self.service.positions(name).committed)

    def make(self, name: str) -> Node:
        if name in self.listed():
            return GroupDirectory(self.context, self, name)
        with suppress(UnknownGroupError):
            self.service.describe(name)  # Raises GroupError if the group's records cannot be read.
        raise FileError(Refusal.NOT_FOUND, f"no such group; create it with `mkdir @groups/{name}`")


class GroupDirectory(Directory):
    """`@groups/billing`: a directory for each topic; any other name is parsed as a list of topics or patterns."""

    __slots__ = ()
    files: ClassVar[Mapping[str, Callable[[Directory, str, str], Node]]] = {
        "config": GroupConfigFile,
        "status": GroupStatusFile,
    }
    """The files of a group; all are listed."""

    entry_timeout = 0.0
    """0: the kernel must look the name up each time, because it is not notified when a group is created or deleted."""

    def is_current(self) -> bool:
        parent = self.parent
        assert isinstance(parent, KindDirectory)
        return self.name in parent.listed()

    def names(self) -> Sequence[str]:
        return [*self.files, *sorted(self.topics().intersection(self.context.engine.topics()))]

    def make(self, name: str) -> Node:
        file = self.files.get(name)
        return self.make_subscription(name) if file is None else file(self, name, self.name)

    def topics(self) -> set[str]:
        groups = self.context.engine.groups
        topics = {partition.topic for partition in groups.positions(self.name).committed}
        return topics.union(*(member.topics for member in groups.describe(self.name).members))

    def make_subscription(self, name: str) -> Node:
        """Make the directory for `orders,clicks,pay*`. Raises FileError (ENOENT) if a topic does not exist."""
        names = name.split(",")
        patterns = frozenset(one for one in names if PATTERN_SIGNS.intersection(one))
        topics = frozenset(names) - patterns
        for topic in sorted(topics):
            try:
                check_topic_name(topic)
            except InvalidNameError:
                raise FileError(Refusal.NOT_FOUND) from None
            if topic not in self.context.engine.topics():
                raise FileError(Refusal.NOT_FOUND, f"no such topic: {topic}")
        return SubscriptionDirectory(self, name, Subscription(topics=topics, patterns=patterns))


class SubscriptionDirectory(Directory):
    """`@groups/billing/orders`: the files of a subscription. If it has a single topic, also the topic's partitions."""

    __slots__ = ("subscription",)

    entry_timeout = 0.0

    def __init__(self, parent: Directory, name: str, subscription: Subscription) -> None:
        super().__init__(parent.context, parent, name)
        self.subscription = subscription

    @property
    def group(self) -> str:
        assert self.parent is not None
        return self.parent.name

    @property
    def _topic(self) -> str | None:
        """The single topic of the subscription; None for several topics or patterns."""
        (topic, *others) = [*self.subscription.topics, *self.subscription.patterns]
        return None if others or self.subscription.patterns else topic

    def is_current(self) -> bool:
        return self.subscription.topics.issubset(self.context.engine.topics())

    def names(self) -> Sequence[str]:
        topic = self._topic
        if topic is None or not self.is_current():
            return []
        return [str(number) for number in self.context.engine.topic(topic).partitions()]

    def make(self, name: str) -> Node:
        suffix = next((one for one in SUFFIXES if name.endswith(one)), "")
        limit = parse_read_limit(name.removesuffix(suffix))
        # Record batches are not split, so a limit on records does not apply.
        if limit is not None and (limit.records is None or suffix != BATCH.suffix):
            form = self.context.decoding.form(suffix)
            return GroupLogNode(self, name, self.group, self.subscription, form, limit)
        if self._topic is None or name not in self.names():
            raise FileError(Refusal.NOT_FOUND)
        return PlaceDirectory(self, name, self.group, TopicPartition(self._topic, int(name)))


class PlaceDirectory(Directory):
    """`@groups/billing/orders/0`: the group's position in a partition."""

    __slots__ = ("_group", "_partition")

    def __init__(self, parent: Directory, name: str, group: str, partition: TopicPartition) -> None:
        super().__init__(parent.context, parent, name)
        self._group = group
        self._partition = partition

    def names(self) -> Sequence[str]:
        return list(PLACE_FILES)

    def make(self, name: str) -> Node:
        file = PLACE_FILES.get(name)
        if file is None:
            raise FileError(Refusal.NOT_FOUND)
        return file(self, name, self._group, self._partition)


PLACE_FILES = {"position": PositionFile, "lag": LagFile}
"""The files of a group's position in a partition; both are listed."""
