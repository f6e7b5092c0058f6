"""The file `@producers`: how far each input of a named producer is in the topics. `topicfs append --producer` writes it."""

from __future__ import annotations

from topicfs.coordination.engine import Engine
from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.targets import CommandTarget, LineTarget
from topicfs.fusefs.files.text_file import TextFile
from topicfs.replication.replicas.startup import producers_of
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.idempotence.registry import InputProgress, ProducerRegistry, read_entry
from topicfs.storage.messages import printable

LINE_BYTES = 4 << 20
"""Most bytes of a line: it has some 80 for each partition of a topic."""


class ProducersTarget(CommandTarget):
    """The target of a line that says how far an input is in."""

    max_record_bytes = LINE_BYTES

    def __init__(self, name: str, producers: ProducerRegistry, engine: Engine) -> None:
        self.name = name
        self._producers = producers
        self._engine = engine

    def check(self, lines: bytes) -> None:
        """Check each line. Raises InvalidConfigError."""
        for line in lines.splitlines():
            try:
                self._check_target(*read_entry(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InvalidConfigError(
                    f"not the progress of a producer ({error!r}); `topicfs append --producer` writes it"
                ) from None

    def _check_target(self, _name: str, source: str, progress: InputProgress) -> None:
        """Raise ValueError for an input whose topic, or a partition of it, does not exist."""
        topic_id = source.rpartition("@")[2]
        topic = next((one for one in self._engine.topics().values() if one.topic_id == topic_id), None)
        if topic is None or not progress.partitions.keys() <= topic.partitions().keys():
            raise ValueError("its topic or one of its partitions does not exist")

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        """Store the progress; it is on disk afterwards."""
        del durable
        self.check(lines)
        for line in lines.splitlines():
            self._producers.put(*read_entry(line))


class ProducersFile(TextFile):
    """A line for each input: the producer's name, the bytes and the records that are in, the file and its target."""

    __slots__ = ()

    def render(self) -> str:
        leave_event_loop()
        if self.context.engine.remote:
            return ""
        inputs = producers_of(self.context.engine).read().items()
        lines = (f"{name} {one.position} {one.records} {source}" for (name, source), one in inputs)
        return "".join(f"{printable(line)}\n" for line in lines)

    def target(self) -> LineTarget | None:
        engine = self.context.engine
        return None if engine.remote else ProducersTarget(self.path, producers_of(engine), engine)
