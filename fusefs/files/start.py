"""`start`: the log start offset. With --allow-delete, writing a larger one deletes older records."""

from __future__ import annotations

from topicfs.fusefs.appending.flags import Access
from topicfs.fusefs.appending.handle import AppendHandle
from topicfs.fusefs.appending.targets import CommandTarget, LineTarget
from topicfs.fusefs.files.text_file import PartitionTextFile
from topicfs.storage.engine import LogEngine, Partition
from topicfs.storage.errors import InvalidConfigError, OffsetOutOfRangeError
from topicfs.storage.model import Offset

LINE_BYTES = 64


class StartTarget(CommandTarget):
    """The target of a written offset."""

    max_record_bytes = LINE_BYTES

    def __init__(self, name: str, partition: Partition, engine: LogEngine) -> None:
        self.name = name
        self._partition = partition
        self._engine = engine

    def check(self, lines: bytes) -> None:
        parse_start(lines)

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        del durable
        offset = parse_start(lines)
        if offset <= self._partition.offsets().log_start_offset:
            return  # Records that are gone do not come back.
        try:
            self._partition.delete_records(offset)
        except OffsetOutOfRangeError as error:
            raise InvalidConfigError(str(error)) from error
        # Who reads the files beside us must not be shown what is deleted, nor a crash bring it back.
        self._engine.keep_log_starts()


def parse_start(lines: bytes) -> Offset:
    """Read the last line as an offset. Raises InvalidConfigError."""
    text = lines.decode("ascii", "replace").split("\n")[-2].strip()
    if not (text.isascii() and text.isdecimal()):
        raise InvalidConfigError(f"{text}: must be an offset")
    return Offset(int(text))


class StartFile(PartitionTextFile):
    """`start` of a partition."""

    __slots__ = ()

    def render(self) -> str:
        self._files.check_exists()
        if (
            self.context.engine.remote
        ):  # The start of a log that could not be loaded is that of its checkpoint.
            self._files.partition.find_bounds()
        return f"{self._files.partition.offsets().log_start_offset}\n"

    def target(self) -> LineTarget | None:
        if not self.context.settings.allow_delete or self._files.internal:
            return None
        return StartTarget(self.path, self._files.partition, self.context.engine)

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        if access.writes:
            self._files.check_writable()
        return super()._writer(access, pid)
