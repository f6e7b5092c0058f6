"""The engine over one data directory of several that replicate: it holds some of the partitions of each topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.directories.directories import Directories
from topicfs.storage.duties.staged_writes import StagedWrites
from topicfs.storage.engine import LogEngine
from topicfs.storage.errors import StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.manager.future_logs import FutureLogs
from topicfs.storage.manager.manager import LogManager, by_name
from topicfs.storage.messages import WarningBook
from topicfs.storage.model import TopicPartition
from topicfs.storage.staging.record import CommitRecord
from topicfs.storage.topics.registry import TopicRegistry
from topicfs.storage.topics.topic import LogTopic

T = TypeVar("T")


class MemberManager(LogManager):
    """A LogManager whose topics have partitions in other engines, too. Made by `startup.open_logs`."""

    one_of_many = True

    def __init__(
        self,
        directories: Directories,
        registry: TopicRegistry,
        warnings: WarningBook,
        topics: Mapping[str, LogTopic],
    ) -> None:
        super().__init__(directories, registry, warnings, topics)
        self._futures = FutureLogs(directories.all[0])

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

    # Replicas that are moved here, or from here.

    def future_log(self, partition: TopicPartition) -> Log | None:
        """Return the copy of a partition that is on its way here; None where none is open."""
        return self._futures.get(partition)

    def open_future(self, partition: TopicPartition, *, overrides: Mapping[str, str], topic_id: str) -> Log:
        """Return the copy of a partition that is to come here, made where there is none (StorageError, OSError; blocking)."""
        with self._lock:
            self._check_writable()
            topic = self._topics.get(partition.topic)
            if topic is not None and partition.partition in topic.served:
                raise StorageError(f"{partition}: it has arrived")
            config = TopicConfig.from_overrides(overrides, self._directories.config.topic_defaults)
            return self._futures.open(partition, config, topic_id)

    def promote_future(
        self, partition: TopicPartition, *, overrides: Mapping[str, str], topic_id: str
    ) -> None:
        """Make a partition's copy a partition of this engine, all of it on disk (StorageError, OSError; blocking)."""
        with self._lock:
            self._check_writable()
            if self._futures.get(partition) is not None:
                self._futures.promote(partition)
            self.hold_partitions(
                partition.topic, [partition.partition], overrides=overrides, topic_id=topic_id
            )

    def open_replacement(
        self, partition: TopicPartition, *, overrides: Mapping[str, str], topic_id: str
    ) -> Log:
        """Return an empty copy beside a partition of this engine, to take its place (StorageError, OSError; blocking)."""
        with self._lock:
            self._check_writable()
            self._futures.discard(
                partition
            )  # What a kill left would be of another state of the log that is copied.
            config = TopicConfig.from_overrides(overrides, self._directories.config.topic_defaults)
            return self._futures.open(partition, config, topic_id, beside=True)

    def put_replacement(
        self, partition: TopicPartition, *, overrides: Mapping[str, str], topic_id: str
    ) -> None:
        """Remove a partition, and put its copy in its place, all of it on disk (StorageError, OSError; blocking).

        Where that fails in between an empty partition is in its place.
        """
        with self._lock:
            self.drop_partitions(partition.topic, [partition.partition])
            try:
                self._futures.promote(partition)
            finally:
                self.hold_partitions(
                    partition.topic, [partition.partition], overrides=overrides, topic_id=topic_id
                )

    def discard_future(self, partition: TopicPartition) -> None:
        """Have a partition's copy removed (StorageError, OSError)."""
        with self._lock:
            self._check_writable()
            self._futures.discard(partition)

    def discard_futures(self, unwanted: Callable[[TopicPartition, str | None], bool]) -> None:
        """Have those copies removed of which `unwanted` says so, given the partition and its topic's id (StorageError, OSError).

        One that names no topic, for it was about to be made, has None.
        """
        with self._lock:
            self._check_writable()
            self._futures.discard_all(unwanted)

    def pause_cleaning(self, partitions: Iterable[TopicPartition]) -> None:
        """Clean these partitions no more until others are named; a cleaning of one that is under way ends."""
        self._services.cleaner.pause(partitions)

    def close(self) -> None:
        with self._lock:
            self._futures.close()
        super().close()

    def lend(self, action: Callable[[], T]) -> T:
        """Do what must also be possible on a full disk, in an engine of one directory (OSError)."""
        return self._directories.all[0].reserve.lend(action)

    def redirect_writes(self, engine: LogEngine, record: CommitRecord) -> None:
        """Append the writes that others submit here to the partitions of another engine, which this one is a part of."""
        self._services.staged = StagedWrites(
            self._directories, engine, warn=self._warnings.add, record=record
        )
