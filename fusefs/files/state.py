"""`state`: whether a partition serves, and if not, why. Writing `online` reopens a repaired partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.files.text_file import PartitionTextFile, same_topic
from topicfs.fusefs.nodes.nodes import Directory
from topicfs.storage.messages import printable
from topicfs.storage.model import ONLINE, TopicPartition

if TYPE_CHECKING:
    from topicfs.fusefs.appending.targets import LineTarget


class StateFile(PartitionTextFile):
    """`state` of a partition. Looks the partition up by name, because reopening creates a new partition object."""

    __slots__ = ("_check_same", "_partition")

    def __init__(self, parent: Directory, name: str, files: PartitionFiles) -> None:
        super().__init__(parent, name, files)
        self._partition = TopicPartition(files.partition.topic, files.partition.number)
        self._check_same = same_topic(self.context.engine, self._partition.topic)

    def render(self) -> str:
        leave_event_loop()
        return f"{printable(self.context.engine.partition(*self._partition).status().state)}\n"

    def target(self) -> LineTarget | None:
        from topicfs.fusefs.appending.targets import word_target

        return word_target(self.path, ONLINE, "to try again after a repair", self._reopen)

    def _reopen(self) -> None:
        self._check_same()
        self.context.engine.reopen_partition(*self._partition)
