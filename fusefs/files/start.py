"""`start`: the log start offset. With --allow-delete, writing a larger offset deletes the records below that offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicfs.fusefs.files.text_file import PartitionTextFile
from topicfs.storage.errors import InvalidConfigError, OffsetOutOfRangeError
from topicfs.storage.model import Offset

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
    """`start` of a partition."""

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
