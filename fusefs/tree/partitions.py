"""A partition's directory: a table of fixed names, and selectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from topicfs.fusefs.allowance import RequestTooLargeError
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.links import RecordLink
from topicfs.fusefs.files.log_file import DecodedLogFile, LogFile
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.files.segments import SegmentsDirectory
from topicfs.fusefs.files.selector_files import selected_file
from topicfs.fusefs.files.start_and_state import StartFile, StateFile
from topicfs.fusefs.files.status import PartitionStatusFile
from topicfs.fusefs.forms import DECODED_SUFFIXES, LINE_SUFFIXES, SUFFIXES, VIEW_FORMS
from topicfs.fusefs.nodes.nodes import DIRECTORY_MODE, Attributes, Directory, Node
from topicfs.fusefs.views.records import earliest_offset, latest_offset
from topicfs.storage.engine import Partition
from topicfs.storage.errors import CorruptionError


def _log(parent: PartitionDirectory, name: str, files: PartitionFiles) -> Node:
    suffix = name.removeprefix("log")
    kind = DecodedLogFile if suffix in DECODED_SUFFIXES else LogFile
    return kind(parent, name, files, files.context.decoding.form(suffix))


def _follow(parent: PartitionDirectory, name: str, files: PartitionFiles) -> Node:
    from topicfs.fusefs.files.follow_file import FollowNode
    from topicfs.fusefs.following.follow import Followed

    def partitions() -> dict[int, Partition]:
        files.check_exists()
        return {files.partition.number: files.partition}

    context = files.context
    form, isolation = context.decoding.form(name.removeprefix("follow")), context.settings.isolation
    return FollowNode(parent, name, Followed(partitions, files.news, context.shared.tails, form, isolation))


def _segments(parent: PartitionDirectory, name: str, files: PartitionFiles) -> Node:
    if files.partition.directory is None:
        raise FileError(Refusal.NOT_FOUND, "the partition has no files of its own")
    return SegmentsDirectory(parent, name, files)


NAMES: dict[str, tuple[bool, Callable[[PartitionDirectory, str, PartitionFiles], Node]]] = {
    **{f"log{form.suffix}": (True, _log) for form in VIEW_FORMS},
    **{f"log{suffix}": (False, _log) for suffix in DECODED_SUFFIXES},
    **{f"follow{suffix}": (False, _follow) for suffix in LINE_SUFFIXES},
    **{
        f"{stem}{suffix}": (not suffix, partial(RecordLink, find=find))
        for stem, find in (("earliest", earliest_offset), ("latest", latest_offset))
        for suffix in ("", *SUFFIXES)
    },
    "start": (True, StartFile),
    "state": (True, StateFile),
    "status": (True, PartitionStatusFile),
    "segments": (True, _segments),
}
"""All fixed names: whether each is listed, and how its node is made. Any other name is a selector, or unknown."""

ONLY_WITH_RECORDS = frozenset({"earliest", "latest"})


class PartitionDirectory(Directory):
    """`orders/0`: a partition."""

    __slots__ = ("_files", "_find")

    def __init__(
        self, parent: Directory, name: str, files: PartitionFiles | None, find: Callable[[], PartitionFiles]
    ) -> None:
        """Make the directory. `find` returns the partition's files.

        `files` is None if the partition's files were not used before. So listing many partitions opens none of them.
        """
        super().__init__(parent.context, parent, name)
        self._files = files
        self._find = find
        if files is not None:
            files.directory_id = self.node_id

    @property
    def files(self) -> PartitionFiles:
        """The files of the current partition object: an open directory stays valid when the partition is reopened."""
        files = self._files
        if files is None:
            files = self._found()
        elif files.deleted:
            with suppress(FileError):  # If the topic is gone, the partition is gone too.
                files = self._found()
                self._children.clear()
        return files

    def _found(self) -> PartitionFiles:
        self._files = files = self._find()
        files.directory_id = self.node_id
        return files

    def is_current(self) -> bool:
        return self._files is None or not self.files.deleted

    def listed_attributes(self) -> Attributes:
        if self._files is None:
            return Attributes(DIRECTORY_MODE, 0, super().mtime_ns(), 0, self.node_id)
        return self.attributes()

    def lookup(self, name: str) -> Node:
        self.files.check_exists()
        return super().lookup(name)

    def mtime_ns(self) -> int:
        return self.files.mtime_ns()

    def names(self) -> Sequence[str]:
        partition, isolation = self.files.partition, self.context.settings.isolation
        empty = self.files.is_empty()
        if not empty and not self.context.engine.remote:
            # If the first batch cannot be read, the partition still has a batch, so it is not empty.
            with suppress(CorruptionError, RequestTooLargeError):
                empty = earliest_offset(partition, isolation=isolation) is None
        hidden = ONLY_WITH_RECORDS if empty else frozenset()
        return [
            name
            for name, (listed, _make) in NAMES.items()
            if listed and name not in hidden and (name != "segments" or partition.directory is not None)
        ]

    def make(self, name: str) -> Node:
        fixed = NAMES.get(name)
        if fixed is None:
            return selected_file(self, name, self.files)
        node = fixed[1](self, name, self.files)
        if isinstance(node, RecordLink):
            node.check_exists()
        return node
