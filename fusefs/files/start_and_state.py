"""`start` and `state` of a partition: small files, and what a line that is written to them does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.files.text_file import PartitionTextFile, same_topic
from topicfs.fusefs.nodes.nodes import Directory
from topicfs.storage.errors import InvalidConfigError, OffsetOutOfRangeError
from topicfs.storage.messages import printable
from topicfs.storage.model import ONLINE, Offset, TopicPartition

if TYPE_CHECKING:
    from topicfs.fusefs.appending.targets import LineTarget


def parse_start(lines: bytes) -> Offset:
    """Parse the last line as an offset. Raises InvalidConfigError."""
    from topicfs.fusefs.appending.targets import last_line

    text = last_line(lines)
    if not (text.isascii() and text.isdecimal()):
        raise InvalidConfigError(f"{text}: must be an offset")
    return Offset(int(text))


class StartFile(PartitionTextFile):
    """`start`: the log start offset. With --allow-delete, writing a larger offset deletes the records below it."""

    __slots__ = ()

    def render(self) -> str:
        self._files.check_exists()
        # If the log could not be loaded, this is the checkpointed start.
        if self.context.engine.remote:
            self._files.partition.find_bounds()
        return f"{self._files.partition.offsets().log_start_offset}\n"

    def target(self) -> LineTarget | None:
        if not self.context.settings.allow_delete or self._files.internal:
            return None
        from topicfs.fusefs.appending.targets import CommandTarget

        return CommandTarget(self.path, parse_start, self._delete)

    def _delete(self, lines: bytes) -> None:
        partition, offset = self._files.partition, parse_start(lines)
        if offset <= partition.offsets().log_start_offset:
            return  # Deleted records cannot be restored.
        try:
            partition.delete_records(offset)
        except OffsetOutOfRangeError as error:
            raise InvalidConfigError(str(error)) from error
        # Checkpoint the new start, so that neither other readers of the files nor a crash bring deleted
        # records back.
        self.context.engine.keep_log_starts()

    def check_writable(self) -> None:
        self._files.check_writable()


class StateFile(PartitionTextFile):
    """`state`: whether a partition serves, and if not, why. Writing `online` reopens a repaired partition.

    Looks the partition up by name, because reopening creates a new partition object.
    """

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
