"""A topic's directory: its settings, itself as a whole, and its partitions."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from functools import partial

from fusefs.errors import FileError, file_error
from fusefs.files.config import ConfigFile
from fusefs.files.follow_file import FollowNode
from fusefs.files.replicas import ReplicasFile
from fusefs.files.status import TopicStatusFile
from fusefs.files.topic_files import TopicFiles
from fusefs.files.topic_log import TopicLogFile, TopicTimesFile
from fusefs.following.follow import Followed
from fusefs.following.waiting_reads import Program
from fusefs.forms import BATCH, DECODED_SUFFIXES, FORMS, Form
from fusefs.nodes.nodes import Directory, Node
from fusefs.selectors import SelectorError, TimeRange, parse
from fusefs.threads.blocking_calls import BlockingCalls
from fusefs.tree.partitions import PartitionDirectory
from storage.disk.names import MAX_PARTITIONS
from storage.errors import StorageError

REPLICAS = "replicas"
_PARTITION = re.compile(r"0|[1-9][0-9]{0,3}")


def partition_number(name: str) -> int | None:
    """Read a partition's directory name: a canonical decimal below 10,000; None for anything else."""
    return int(name) if _PARTITION.fullmatch(name) else None


def _log(parent: TopicDirectory, name: str, *, form: Form) -> Node:
    return TopicLogFile(parent, name, parent.files, form)


def _follow(parent: TopicDirectory, name: str, *, form: Form) -> Node:
    files, context = parent.files, parent.context
    path, isolation = f"/{parent.path}/{name}", context.settings.isolation
    return FollowNode(parent, name, Followed(path, files.followed, files, context.tails, form, isolation))


def _decoded_log(parent: TopicDirectory, name: str, *, suffix: str) -> Node:
    return _log(parent, name, form=parent.context.decoding.form(suffix))


def _decoded_follow(parent: TopicDirectory, name: str, *, suffix: str) -> Node:
    return _follow(parent, name, form=parent.context.decoding.form(suffix))


def _config(parent: TopicDirectory, name: str) -> Node:
    return ConfigFile(parent, name, parent.files)


def _status(parent: TopicDirectory, name: str) -> Node:
    return TopicStatusFile(parent, name, parent.files)


def _replicas(parent: TopicDirectory, name: str) -> Node:
    """Make the file of a topic's replicas. Raises FileError (ENOENT) in an engine that looks after none."""
    replication = parent.context.engine.replication
    if replication is None:
        raise FileError(errno.ENOENT)
    return ReplicasFile(parent, name, parent.files, replication)


def _times(parent: TopicDirectory, name: str) -> Node:
    """Make the file of a range of times. Raises FileError (ENOENT) for any other name."""
    try:
        selector = parse(name)
    except SelectorError:
        raise FileError(errno.ENOENT) from None
    if not isinstance(selector, TimeRange) or selector.suffix == BATCH.suffix:
        raise FileError(errno.ENOENT)
    form = parent.context.decoding.form(selector.suffix)
    return TopicTimesFile(parent, name, parent.files, form, selector)


NAMES: dict[str, tuple[bool, Callable[[TopicDirectory, str], Node]]] = {
    "config": (True, _config),
    "status": (True, _status),
    REPLICAS: (False, _replicas),
    **{f"log{form.suffix}": (False, partial(_log, form=form)) for form in FORMS},
    **{f"follow{form.suffix}": (False, partial(_follow, form=form)) for form in FORMS},
    **{f"log{suffix}": (False, partial(_decoded_log, suffix=suffix)) for suffix in DECODED_SUFFIXES},
    **{f"follow{suffix}": (False, partial(_decoded_follow, suffix=suffix)) for suffix in DECODED_SUFFIXES},
}
"""Every fixed name of a topic: whether it is listed, and how its node is made."""


class TopicDirectory(Directory):
    """`orders`: a topic."""

    __slots__ = ("_blocking", "files")

    def __init__(self, parent: Directory, name: str, files: TopicFiles) -> None:
        super().__init__(files.context, parent, name)
        self.files = files
        self._blocking: BlockingCalls = files.context.appending.blocking

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
                find()  # It says what there is instead.
            return PartitionDirectory(self, name, known, find)
        fixed = NAMES.get(name)
        return _times(self, name) if fixed is None else fixed[1](self, name)

    async def make_directory(self, name: str, pid: int) -> Directory:
        """Create what is missing of partitions up to the one so numbered."""
        number = partition_number(name)
        if number is None:
            reason = f"{self.path}/{name}: a partition is a number below {MAX_PARTITIONS}"
            raise FileError(errno.EINVAL, reason)
        self.files.check_writable()
        if number in self.files.topic.partitions():
            raise FileError(errno.EEXIST)
        engine = self.context.engine
        try:
            await self._blocking.run(
                lambda: engine.add_partitions(self.name, total=number + 1),
                asker=Program(self.context.waiting, pid, ""),
            )
        except StorageError as error:
            raise file_error(error) from error
        self.files.refresh()
        node = self.lookup(name)
        assert isinstance(node, Directory)
        return node
