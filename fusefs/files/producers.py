"""`@producers`: how much of each input of a named producer is appended. Written by `topicfs append --producer`."""

from __future__ import annotations

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.targets import CommandTarget, LineTarget
from topicfs.fusefs.files.text_file import TextFile
from topicfs.replication.replicas.startup import producers_of
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.idempotence.registry import InputProgress, read_entry
from topicfs.storage.messages import printable

MAX_PRODUCER_LINE_BYTES = 4 << 20
"""Largest size of a line. A line has about 80 bytes for each partition of a topic."""


class ProducersFile(TextFile):
    """One line per input: the producer's name, the appended bytes and records, the input file, and the target."""

    __slots__ = ()

    def render(self) -> str:
        leave_event_loop()
        if self.context.engine.remote:
            return ""
        inputs = producers_of(self.context.engine).read().items()
        lines = (f"{name} {one.position} {one.records} {source}" for (name, source), one in inputs)
        return "".join(f"{printable(line)}\n" for line in lines)

    def target(self) -> LineTarget | None:
        if self.context.engine.remote:
            return None
        return CommandTarget(self.path, self._check, self._store, max_record_bytes=MAX_PRODUCER_LINE_BYTES)

    def _check(self, lines: bytes) -> None:
        """Check each line. Raises InvalidConfigError."""
        for line in lines.splitlines():
            try:
                self._check_target(*read_entry(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InvalidConfigError(
                    f"not a producer's progress ({error!r}); only `topicfs append --producer` writes this file"
                ) from None

    def _check_target(self, _name: str, source: str, progress: InputProgress) -> None:
        """Raise ValueError if the input's topic, or one of its partitions, does not exist."""
        topic_id = source.rpartition("@")[2]
        topic = next((one for one in self.context.engine.topics().values() if one.topic_id == topic_id), None)
        if topic is None or not progress.partitions.keys() <= topic.partitions().keys():
            raise ValueError("its topic or one of its partitions does not exist")

    def _store(self, lines: bytes) -> None:
        """Store the progress on disk."""
        for line in lines.splitlines():
            producers_of(self.context.engine).put(*read_entry(line))
