"""An engine in memory that, like a remote engine, has no directory: sizes are unknown and there are no segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.doubles.memory_partition import MemoryPartition
from tests.doubles.no_groups import NoGroups
from topicfs.coordination.engine import Replication
from topicfs.coordination.shares.groups import NoShareGroups
from topicfs.storage.config.listing import ShownSetting, topic_settings
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.engine import Cancel
from topicfs.storage.errors import UnknownTopicError
from topicfs.storage.model import DirectoryStatus, PartitionStatus, SegmentInfo, Timestamp


class PartitionWithoutDirectory(MemoryPartition):
    """A partition that has no files. A call that needs a file fails the test."""

    def __init__(self, topic: str, number: int) -> None:
        super().__init__(topic, number)
        self.directory = None

    def status(self) -> PartitionStatus:
        return super().status()._replace(segments=None, log_bytes=None, index_bytes=None)

    def segments(self) -> Sequence[SegmentInfo] | None:
        return None

    def segment_of(self, name: str) -> SegmentInfo | None:
        raise AssertionError(f"there are no segments, but {name} was called")

    def open_segment_file(self, name: str) -> memoryview:
        raise AssertionError(f"there are no files, but {name} was called")


class MemoryTopic:
    """A `storage.engine.Topic` in memory."""

    internal = False

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.topic_id = f"{name:A<22}"
        self.config = TopicConfig()
        self.overrides: Mapping[str, str] = {}
        self.all = {number: PartitionWithoutDirectory(name, number) for number in range(partitions)}

    def settings(self) -> Sequence[ShownSetting]:
        return list(topic_settings(self.config, overrides=self.overrides, given={}))

    def opened(self):
        return list(self.all.values())

    def partitions(self) -> Mapping[int, PartitionWithoutDirectory]:
        return dict(self.all)


class KnownTopics:
    """A base class of engines that have no files: it looks up topics by name in the mapping `all`."""

    foreign = False
    doing: str | None = None
    scrub: str | None = None
    scrubber: None = None
    groups = NoGroups("there are none in this engine")

    def __init__(self) -> None:
        self.counts = EngineCounts()
        self.all: dict[str, Any] = {}

    @property
    def replication(self) -> Replication | None:
        return None

    def topics(self) -> Mapping[str, Any]:
        return dict(sorted(self.all.items()))

    def topic(self, name: str) -> Any:
        if name not in self.all:
            raise UnknownTopicError(name)
        return self.all[name]

    def partition(self, topic: str, number: int) -> Any:
        partitions = self.topic(topic).all
        if number not in partitions:
            raise UnknownTopicError(f"{topic}-{number}")
        return partitions[number]

    def directories(self) -> Sequence[DirectoryStatus]:
        return ()


class MemoryEngine(KnownTopics):
    """A `coordination.engine.Engine` in memory."""

    read_only = remote = False
    share_groups = NoShareGroups("an engine in memory has none")

    def __init__(self, *warnings: str) -> None:
        super().__init__()
        self.warnings = warnings
        self.listeners: list[Callable[[], None]] = []

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> MemoryTopic:
        assert not overrides
        assert topic_id is None
        self.all[name] = MemoryTopic(name, partitions or 1)
        self._changed()
        return self.all[name]

    def add_partitions(self, topic: str, *, total: int) -> None:
        of_topic = self.topic(topic).all
        for number in range(len(of_topic), total):
            of_topic[number] = PartitionWithoutDirectory(topic, number)
        self._changed()

    def delete_topic(self, name: str, *, with_records: bool = True) -> None:
        del self.all[self.topic(name).name]
        self._changed()

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        raise NotImplementedError

    def reopen_partition(self, topic: str, number: int) -> PartitionWithoutDirectory:
        return self.partition(topic, number)

    def listen(self, listener: Callable[[], None]) -> Cancel:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener) if listener in self.listeners else None

    def maintenance(self, now: Timestamp) -> None:
        """Do nothing: an engine in memory has no duties."""

    def keep_log_starts(self) -> None:
        """Do nothing: an engine in memory has no files of log starts."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _changed(self) -> None:
        for listener in list(self.listeners):
            listener()
