"""Topics as a directory's files show them. Another process may write the files, so each call reads them again.

These classes implement only the reading part of the engine's protocol. The daemon that owns the directory makes
changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

from topicfs.data_directory import opened_for_reading
from topicfs.mounted import MountedPartition, numbers_of
from topicfs.pipeline.source.directories import SourceDirectories
from topicfs.storage import engine
from topicfs.storage.checkpoints.partition_metadata import topic_id_of
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.engine import Cancel
from topicfs.storage.errors import PartitionGoneError, ReadOnlyError, UnknownTopicError
from topicfs.storage.log.log import Log
from topicfs.storage.model import Fetched, Isolation, Offset, TopicPartition

READ_ONLY = "the directory was opened read-only; open the directory itself without read_only=True"


class FileTopics:
    """The topics of data directories. With a mountpoint, the daemon that owns the directories makes the changes."""

    read_only = True
    remote = False

    def __init__(self, directories: Sequence[Path], mountpoint: Path | None = None) -> None:
        """Read the directories. Raises StorageError, PipelineError, OSError."""
        self._paths = tuple(directories)
        self.mountpoint = mountpoint
        self.sources = SourceDirectories(directories)
        self.reading = threading.Lock()
        """Held while the directories are read again."""
        self.opened = ExitStack()
        """Files of the mount that are open for appending."""
        self._known: dict[str, FileTopic] = {}
        self._disk = NativeFileSystem(read_only=True)

    def topics(self) -> Mapping[str, engine.Topic]:
        first = dict(reversed(self._partitions()))
        return {name: cast("engine.Topic", self._topic(name, first[name])) for name in sorted(first)}

    def topic(self, name: str) -> engine.Topic:
        return cast("engine.Topic", self._topic(name, self.numbers(name)[0]))

    def _topic(self, name: str, number: int) -> FileTopic:
        """Return the topic of a partition: the same object until the topic is deleted or replaced."""
        topic_id = self.topic_id(TopicPartition(name, number)) or ""
        known = self._known.get(name)
        if known is None or known.topic_id != topic_id:
            known = self._known[name] = FileTopic(self, name, topic_id)
        return known

    def _partitions(self) -> Sequence[TopicPartition]:
        with self.reading:
            self.sources.refresh()
            return self.sources.partitions()

    def numbers(self, topic: str) -> Sequence[int]:
        """Return the current partition numbers of a topic. Raises UnknownTopicError."""
        found = []
        if self.mountpoint is None:
            found = [number for name, number in self._partitions() if name == topic]
        else:  # Keys are hashed over all partitions, and only the daemon knows all of them.
            with suppress(FileNotFoundError):
                found = numbers_of(self.mountpoint / topic)
        if not found:
            raise UnknownTopicError.of(topic)
        return sorted(found)

    def topic_id(self, partition: TopicPartition) -> str | None:
        """Return the ID of the topic that owns the partition's files now; None if the partition does not exist."""
        folders = [path / names.partition_directory(partition) for path in self._paths]
        ids = (topic_id_of(folder, self._disk) or "" for folder in folders if self._disk.exists(folder))
        return next(ids, None)

    def overrides(self, topic: str) -> Mapping[str, str]:
        with opened_for_reading(self._paths) as opened:
            return dict(opened.topic(topic).overrides)

    def close(self) -> None:
        self.opened.close()
        self.sources.close()


class FileTopic:
    """A topic, identified by its ID; see `storage.engine.Topic`."""

    def __init__(self, files: FileTopics, name: str, topic_id: str) -> None:
        self._files = files
        self.name, self.topic_id = name, topic_id
        self.internal = names.is_internal(name)
        self._partitions: dict[int, engine.Partition] = {}

    @property
    def overrides(self) -> Mapping[str, str]:
        return self._files.overrides(self.name)

    def partitions(self) -> Mapping[int, engine.Partition]:
        files = self._files
        for number in files.numbers(self.name):
            if number not in self._partitions:
                one: Any = FilePartition(files, TopicPartition(self.name, number), self.topic_id)
                if files.mountpoint is not None:
                    one = MountedPartition(one, self.topic_id, files.mountpoint, files.opened)
                self._partitions[number] = one
        return dict(sorted(self._partitions.items()))


class FilePartition:
    """A partition of the topic with a given ID; see `storage.engine.Partition`. `find_bounds` rereads the files."""

    def __init__(self, files: FileTopics, name: TopicPartition, topic_id: str) -> None:
        self._files, self._name, self._topic_id = files, name, topic_id
        self.topic, self.number = name
        self._log: Log | None = None

    def __getattr__(self, name: str) -> Any:
        if self._log is None:
            self.find_bounds()
        return getattr(self._log, name)

    def find_bounds(self) -> None:
        """Read the current files. Raises PartitionGoneError, StorageError, OSError."""
        self._check()
        with self._files.reading:
            self._files.sources.refresh()
            self._log = self._files.sources.log(self._name)
        self._check()

    def read(self, offset: Offset, *, max_bytes: int, isolation: Isolation) -> Fetched:
        """Read batches of this topic, never of a new topic with the same name."""
        if self._log is None:
            self.find_bounds()
        assert self._log is not None
        found = self._log.read(offset, max_bytes=max_bytes, isolation=isolation)
        self._check()
        return found

    def append(self, batches: bytearray, **_options: bool) -> None:
        del batches
        raise ReadOnlyError(f"{self._name}: {READ_ONLY}")

    def check_in_sync(self) -> None:
        """Do nothing: only the owner of the files can check whether enough replicas are in sync."""

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Ignore `listener`: files send no notifications."""
        del listener
        return lambda: None

    def _check(self) -> None:
        if self._files.topic_id(self._name) != self._topic_id:
            raise PartitionGoneError(f"{self._name}: its topic was deleted")
