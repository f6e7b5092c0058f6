"""The engine over one data directory of several that replicate: it holds some of the partitions of each topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from storage.config.topic import TopicConfig
from storage.duties.staged_writes import StagedWrites
from storage.manager.manager import LogManager, by_name
from storage.staging.placer import CreateTopic, FindPartition
from storage.topics.topic import LogTopic

T = TypeVar("T")


class MemberManager(LogManager):
    """A LogManager whose topics have partitions in other engines, too. Made by `opening.open_engine` with `one_of_many`."""

    groups_are_served_elsewhere = True

    def hold_partitions(
        self, name: str, numbers: Iterable[int], *, overrides: Mapping[str, str], topic_id: str
    ) -> None:
        """Make those of a topic's partitions that are missing here; its others are in other engines (blocking).

        Raises StorageError, OSError.
        """
        with self._lock:
            self._check_writable()
            topic = self._topics.get(name)
            if topic is None:
                config = TopicConfig.from_overrides(overrides, self._directories.config.topic_defaults)
                topic = LogTopic(name, topic_id=topic_id, config=config, overrides=overrides, partitions={})
            topic.put_partitions(self._changes.hold(topic, numbers))
            self._topics = by_name({**self._topics, name: topic})
        self._listeners.notify()

    def drop_partitions(self, name: str, numbers: Iterable[int]) -> None:
        """Remove some of a topic's partitions from here; its others stay (StorageError, OSError)."""
        with self._lock:
            self._check_writable()
            topic = self.topic(name)
            gone = set(numbers)
            self._changes.drop(topic, gone)
            topic.take_partitions(gone)
        self._listeners.notify()

    def lend(self, action: Callable[[], T]) -> T:
        """Do what must also be possible on a full disk, in an engine of one directory (OSError)."""
        return self._directories.all[0].reserve.lend(action)

    def redirect_writes(self, find: FindPartition, create: CreateTopic) -> None:
        """Append the writes that others submit here to the partitions of another engine, which this one is a part of."""
        self._staged = StagedWrites(self._directories, find, create, warn=self._warnings.add)
