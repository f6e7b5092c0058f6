"""`state`: whether a partition serves, and why not. Writing `online` tries again after a repair."""

from __future__ import annotations

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.targets import CommandTarget, LineTarget
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.files.text_file import PartitionTextFile
from topicfs.fusefs.nodes.nodes import Directory
from topicfs.storage.engine import Engine
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.messages import printable
from topicfs.storage.model import ONLINE, TopicPartition

LINE_BYTES = 64


class StateTarget(CommandTarget):
    """The target of the line that asks for a partition to serve again."""

    max_record_bytes = LINE_BYTES

    def __init__(self, name: str, engine: Engine, partition: TopicPartition) -> None:
        self.name = name
        self._engine = engine
        self._partition = partition

    def check(self, lines: bytes) -> None:
        text = lines.decode("utf-8", "replace").split("\n")[-2].strip()
        if text != ONLINE:
            raise InvalidConfigError(f"{text}: `{ONLINE}` alone can be written, to try again after a repair")

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        """Reopen the partition (blocking), and what failed with it. Raises what still keeps it offline."""
        del durable
        self.check(lines)
        self._engine.reopen_partition(*self._partition)


class StateFile(PartitionTextFile):
    """`state` of a partition. It asks for the partition by name: another object serves once it was reopened."""

    __slots__ = ("_partition",)

    def __init__(self, parent: Directory, name: str, files: PartitionFiles) -> None:
        super().__init__(parent, name, files)
        self._partition = TopicPartition(files.partition.topic, files.partition.number)

    def render(self) -> str:
        leave_event_loop()
        return f"{printable(self.context.engine.partition(*self._partition).status().state)}\n"

    def target(self) -> LineTarget | None:
        return StateTarget(self.path, self.context.engine, self._partition)
