"""A topic's directory: its settings, the files of the whole topic, and its partitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.config import ConfigFile
from topicfs.fusefs.files.replicas import ReplicasFile
from topicfs.fusefs.files.status import TopicStatusFile
from topicfs.fusefs.files.topic_files import TopicFiles
from topicfs.fusefs.files.topic_log import TopicLogFile, TopicTimesFile
from topicfs.fusefs.forms import BATCH, LINE_SUFFIXES
from topicfs.fusefs.nodes.nodes import Directory, Node
from topicfs.fusefs.selectors import SelectorError, TimeRange, parse
from topicfs.fusefs.tree.partitions import PartitionDirectory
from topicfs.storage.disk.names import MAX_PARTITIONS

REPLICAS = "replicas"
_PARTITION = re.compile(r"0|[1-9][0-9]{0,3}")


def partition_number(name: str) -> int | None:
    """Parse a partition's directory name: a canonical decimal below 10,000. Return None for any other name."""
    return int(name) if _PARTITION.fullmatch(name) else None


def _log(parent: Directory, name: str, files: TopicFiles) -> Node:
    return TopicLogFile(parent, name, files, files.context.decoding.form(name.removeprefix("log")))


def _follow(parent: Directory, name: str, files: TopicFiles) -> Node:
    from topicfs.fusefs.files.follow_file import FollowNode
    from topicfs.fusefs.following.follow import Followed

    context = files.context
    form, isolation = context.decoding.form(name.removeprefix("follow")), context.settings.isolation
    return FollowNode(parent, name, Followed(files.followed, files, context.shared.tails, form, isolation))


def _replicas(parent: Directory, name: str, files: TopicFiles) -> Node:
    """Make the file of a topic's replicas. Raises FileError (ENOENT) if the engine has no replicas."""
    replication = files.context.engine.replication
    if replication is None:
        raise FileError(Refusal.NOT_FOUND)
    return ReplicasFile(parent, name, files, replication)


def _times(parent: TopicDirectory, name: str) -> Node:
    """Make the file of a range of times. Raises FileError (ENOENT) for any other name."""
    try:
        selector = parse(name)
    except SelectorError as error:
        is_time = name[0] == "@"
        reason = str(error) if is_time else NOT_IN_A_TOPIC
        raise FileError(Refusal.NOT_FOUND, reason, reported=is_time) from None
    if not isinstance(selector, TimeRange) or selector.suffix == BATCH.suffix:
        raise FileError(Refusal.NOT_FOUND, NOT_IN_A_TOPIC, reported=not name.isdecimal())
    form = parent.context.decoding.form(selector.suffix)
    return TopicTimesFile(parent, name, parent.files, form, selector)


NAMES: dict[str, tuple[bool, Callable[[Directory, str, TopicFiles], Node]]] = {
    "config": (True, ConfigFile),
    "status": (True, TopicStatusFile),
    REPLICAS: (False, _replicas),
    **{f"log{suffix}": (False, _log) for suffix in LINE_SUFFIXES},
    **{f"follow{suffix}": (False, _follow) for suffix in LINE_SUFFIXES},
}
"""All fixed names of a topic: whether each is listed, and how its node is made."""
NOT_IN_A_TOPIC = (
    "no such file; a topic has its partitions (0, 1, …), log, follow, config, status, @TIME- and @TIME-@TIME"
)


class TopicDirectory(Directory):
    """`orders`: a topic."""

    __slots__ = ("files",)

    def __init__(self, parent: Directory, name: str, files: TopicFiles) -> None:
        super().__init__(files.context, parent, name)
        self.files = files

    def is_current(self) -> bool:
        return not self.files.deleted

    def names(self) -> Sequence[str]:
        fixed = [name for name, (listed, _make) in NAMES.items() if listed]
        if self.context.engine.replication is not None:
            fixed.append(REPLICAS)
        return [*fixed, *(str(number) for number in self.files.topic.partitions())]

    def make(self, name: str) -> Node:
        self.files.check_exists()
        number = partition_number(name)
        if number is not None:
            find = partial(self.files.partition, number)
            known = self.files.known(number)
            if known is None and number not in self.files.topic.partitions():
                find()  # Raises an error that names the existing partitions.
            return PartitionDirectory(self, name, known, find)
        fixed = NAMES.get(name)
        return _times(self, name) if fixed is None else fixed[1](self, name, self.files)

    async def make_directory(self, name: str, pid: int) -> Directory:
        """Create all missing partitions up to the partition with the number `name`."""
        number = partition_number(name)
        if number is None:
            reason = f"{self.path}/{name}: a partition is a number below {MAX_PARTITIONS}"
            raise FileError(Refusal.INVALID, reason)
        self.files.check_writable()
        if number in self.files.topic.partitions():
            raise FileError(Refusal.EXISTS)
        engine = self.context.engine
        await self.change(lambda: engine.add_partitions(self.name, total=number + 1), pid)
        self.files.refresh()
        node = self.lookup(name)
        assert isinstance(node, Directory)
        return node
