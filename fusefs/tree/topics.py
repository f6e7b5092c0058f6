"""A topic's directory: its settings, its doors and its partitions."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from functools import partial

from fusefs.blocking import Blocking
from fusefs.errors import FileError, file_error
from fusefs.following.follow import Followed
from fusefs.forms import FORMS, Form
from fusefs.tree.config import ConfigFile
from fusefs.tree.doors import DoorFile
from fusefs.tree.follows import FollowNode
from fusefs.tree.nodes import Directory, Node
from fusefs.tree.partitions import PartitionDirectory
from fusefs.tree.topic_files import TopicFiles
from storage.errors import StorageError

MAX_PARTITIONS = 10_000
"""A partition's number lies below."""

_PARTITION = re.compile(r"0|[1-9][0-9]{0,3}")


def partition_number(name: str) -> int | None:
    """Read a partition's directory name: a canonical decimal below 10,000; None for anything else."""
    return int(name) if _PARTITION.fullmatch(name) else None


def _door(parent: TopicDirectory, name: str, *, form: Form) -> Node:
    return DoorFile(parent, name, parent.files, parent.files.door(form))


def _follow(parent: TopicDirectory, name: str, *, form: Form) -> Node:
    files = parent.files
    isolation = parent.context.settings.isolation
    return FollowNode(
        parent, name, Followed(f"/{parent.path}/{name}", files.followed, files.listen, form, isolation)
    )


def _config(parent: TopicDirectory, name: str) -> Node:
    return ConfigFile(parent, name, parent.files)


NAMES: dict[str, tuple[bool, Callable[[TopicDirectory, str], Node]]] = {
    "config": (True, _config),
    **{f"log{form.suffix}": (True, partial(_door, form=form)) for form in FORMS},
    **{f"follow{form.suffix}": (False, partial(_follow, form=form)) for form in FORMS},
}
"""Every fixed name of a topic: whether it is listed, and how its node is made."""


class TopicDirectory(Directory):
    """`orders`."""

    __slots__ = ("_blocking", "files")

    def __init__(self, parent: Directory, name: str, files: TopicFiles) -> None:
        super().__init__(files.context, parent, name)
        self.files = files
        self._blocking: Blocking = files.context.appending.blocking

    def is_current(self) -> bool:
        return not self.files.deleted

    def names(self) -> Sequence[str]:
        fixed = [name for name, (listed, _make) in NAMES.items() if listed]
        return [*fixed, *(str(number) for number in self.files.topic.partitions())]

    def make(self, name: str) -> Node:
        self.files.check_exists()
        number = partition_number(name)
        if number is not None:
            find = partial(self.files.partition, number)
            return PartitionDirectory(self, name, find(), find)
        fixed = NAMES.get(name)
        if fixed is None:
            raise FileError(errno.ENOENT)
        return fixed[1](self, name)

    async def make_directory(self, name: str) -> Directory:
        """Create what is missing of partitions up to the one so numbered."""
        number = partition_number(name)
        if number is None:
            reason = f"{self.path}/{name}: a partition is a number below {MAX_PARTITIONS}"
            raise FileError(errno.EINVAL, reason)
        if self.context.engine.read_only:
            raise FileError(errno.EROFS)
        if self.files.topic.internal:
            raise FileError(errno.EPERM, f"{self.name} is one of Kafka's own topics")
        if number in self.files.topic.partitions():
            raise FileError(errno.EEXIST)
        engine = self.context.engine
        try:
            await self._blocking.run(lambda: engine.add_partitions(self.name, total=number + 1))
        except StorageError as error:
            raise file_error(error) from error
        self.files.refresh()
        node = self.lookup(name)
        assert isinstance(node, Directory)
        return node
