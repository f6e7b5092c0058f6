"""The engine over one of several data directories with replicas. It has some of each topic's partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from topicfs.replication.replicas.directories.state_file import ReplicatedTopicEntry
from topicfs.storage.checkpoints.partition_metadata import read_topic_id, write_topic_id
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.directories.directories import Directories, OpenDirectory
from topicfs.storage.disk import names
from topicfs.storage.disk.names import DirectoryMark, parse_partition_directory
from topicfs.storage.duties.staged_writes import StagedWrites
from topicfs.storage.engine import LogEngine
from topicfs.storage.errors import CorruptionError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.manager.manager import LogManager, by_name
from topicfs.storage.messages import WarningBook
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.recovery.options import LoadOptions
from topicfs.storage.segment.roll import SegmentDirectory
from topicfs.storage.staging.record import CommitRecord
from topicfs.storage.topics.registry import TopicRegistry
from topicfs.storage.topics.topic import LogTopic

T = TypeVar("T")


class ReplicaLogManager(LogManager):
    """A LogManager that may have only some of a topic's partitions. Made by `startup.open_logs`."""

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

    def hold_partitions(self, name: str, numbers: Iterable[int], entry: ReplicatedTopicEntry) -> None:
        """Create missing partitions of a topic in this directory (blocking). Raises StorageError, OSError."""
        with self._lock:
            self._check_writable()
            topic = self._topics.get(name)
            if topic is None:
                topic = LogTopic(
                    name,
                    topic_id=entry.topic_id,
                    config=self._config(entry),
                    overrides=entry.overrides,
                    partitions={},
                )
            topic.put_partitions(self._changes.hold(topic, numbers))
            self._topics = by_name({**self._topics, name: topic})
        self._listeners.notify()

    def drop_partitions(self, name: str, numbers: Iterable[int]) -> None:
        """Remove some of a topic's partitions from this directory. Raises StorageError, OSError."""
        with self._lock:
            self._check_writable()
            topic = self.topic(name)
            gone = set(numbers)
            self._changes.drop(topic, gone)
            topic.take_partitions(gone)
        self._listeners.notify()

    # Moving replicas.

    def future_log(self, partition: TopicPartition) -> Log | None:
        """Return the open copy of a partition that is moving to this directory; None if there is none."""
        return self._futures.get(partition)

    def open_future(self, partition: TopicPartition, entry: ReplicatedTopicEntry) -> Log:
        """Open or create the copy of a partition moving to this directory (blocking). Raises StorageError, OSError."""
        with self._lock:
            self._check_writable()
            topic = self._topics.get(partition.topic)
            if topic is not None and partition.partition in topic.served:
                raise StorageError(f"{partition}: the replica is already here")
            return self._futures.open(partition, self._config(entry), entry.topic_id)

    def promote_future(self, partition: TopicPartition, entry: ReplicatedTopicEntry) -> None:
        """Turn a copy into this directory's partition; on disk on return (blocking). Raises StorageError, OSError."""
        with self._lock:
            self._check_writable()
            if self._futures.get(partition) is not None:
                self._futures.promote(partition)
            self.hold_partitions(partition.topic, [partition.partition], entry)

    def open_replacement(self, partition: TopicPartition, entry: ReplicatedTopicEntry) -> Log:
        """Return a new, empty copy that will replace a partition (blocking). Raises StorageError, OSError."""
        with self._lock:
            self._check_writable()
            self._futures.discard(partition)  # A copy left by a killed process is outdated.
            return self._futures.open(partition, self._config(entry), entry.topic_id, beside=True)

    def put_replacement(self, partition: TopicPartition, entry: ReplicatedTopicEntry) -> None:
        """Replace a partition by its copy (blocking). If that fails, the partition gets an empty log.

        Raises StorageError, OSError.
        """
        with self._lock:
            self.drop_partitions(partition.topic, [partition.partition])
            try:
                self._futures.promote(partition)
            finally:
                self.hold_partitions(partition.topic, [partition.partition], entry)

    def _config(self, entry: ReplicatedTopicEntry) -> TopicConfig:
        return TopicConfig.from_overrides(entry.overrides, self._directories.config.topic_defaults)

    def discard_future(self, partition: TopicPartition) -> None:
        """Remove a partition's copy. Raises StorageError, OSError."""
        with self._lock:
            self._check_writable()
            self._futures.discard(partition)

    def discard_futures(self, unwanted: Callable[[TopicPartition, str | None], bool]) -> None:
        """Remove copies for which `unwanted(partition, topic_id or None)` is True. Raises StorageError, OSError."""
        with self._lock:
            self._check_writable()
            self._futures.discard_all(unwanted)

    def pause_cleaning(self, partitions: Iterable[TopicPartition]) -> None:
        """Set which partitions are not cleaned from now on. If one is being cleaned now, its cleaning is stopped."""
        self._services.cleaner.pause(partitions)

    def close(self) -> None:
        with self._lock:
            self._futures.close()
        super().close()

    def lend(self, action: Callable[[], T]) -> T:
        """Run an action; if the disk is full, run it again with the reserve's space. Raises OSError."""
        return self._directories.all[0].reserve.lend(action)

    def redirect_writes(self, engine: LogEngine, record: CommitRecord) -> None:
        """Let `engine`, which is over all directories, append the writes that are submitted to this directory."""
        self._services.staged = StagedWrites(
            self._directories, engine, warn=self._warnings.add, record=record
        )


_DAMAGED = "damaged"


class FutureLogs:
    """Logs that are being copied into a data directory (Kafka's future replicas). Callers hold the manager's lock.

        orders-0.<32 hex digits>-future/     being copied
        orders-0/                            the copy's name once it is complete and serves

    Until a copy is renamed, nothing depends on it. After a kill the copy is recovered, and copying continues at its
    end.
    """

    def __init__(self, directory: OpenDirectory) -> None:
        self._directory = directory
        self._opened: dict[TopicPartition, Log] = {}

    def get(self, partition: TopicPartition) -> Log | None:
        return self._opened.get(partition)

    def open(
        self, partition: TopicPartition, config: TopicConfig, topic_id: str, *, beside: bool = False
    ) -> Log:
        """Return the future log of a partition: the open log, the log left on disk, or a new log. Blocks.

        A future log that went offline is loaded again, with recovery. `beside` is True if the directory also serves
        the partition. Raises StorageError, OSError.
        """
        log = self._opened.get(partition)
        if log is not None and log.offline_reason is None:
            return log
        self._close(partition)
        data = self._directory.data
        log = load_log(
            SegmentDirectory(
                data.path / self._future_directory(partition, topic_id, beside=beside), data.files, data.clock
            ),
            config,
            clean=False,
            options=LoadOptions(
                failed_before=self._directory.failed_before,
                producer_expiration_ms=data.config.producer_id_expiration_ms,
                flusher=data.flusher,
                counts=data.counts,
            ),
        )
        log.parts.append_gate = self._directory.reserve.append_gate
        log.roles.follow(Offset(0))
        self._opened[partition] = log
        return log

    def promote(self, partition: TopicPartition) -> None:
        """Close a future log and rename its directory to the partition; on disk when this returns. Raises OSError."""
        log = self._opened.pop(partition)
        log.close()
        data = self._directory.data
        data.files.rename(log.directory, data.partition_path(partition))
        data.sync()

    def discard(self, partition: TopicPartition) -> None:
        """Remove the future log of a partition, open or not. Raises OSError."""
        self._close(partition)
        data = self._directory.data
        for name in self._names(partition):
            deleted = data.deleted_name(partition)
            data.files.rename(data.path / name, data.path / deleted)
            self._directory.deleted.add(deleted, data.clock())
        data.sync()

    def discard_all(self, unwanted: Callable[[TopicPartition, str | None], bool]) -> None:
        """Remove the future logs for which `unwanted(partition, topic_id)` returns True. Raises OSError."""
        for name in self._directory.data.contents().marked.get(DirectoryMark.FUTURE, ()):
            parsed, topic_id = parse_partition_directory(name), self._topic_id(name)
            known = None if topic_id == _DAMAGED else topic_id
            if parsed is not None and unwanted(parsed.partition, known):
                self.discard(parsed.partition)

    def close(self) -> None:
        """Close all logs. A log that cannot be flushed is recovered at the next open."""
        for partition in list(self._opened):
            self._close(partition)

    def _close(self, partition: TopicPartition) -> None:
        log = self._opened.pop(partition, None)
        if log is not None:
            with suppress(OSError):
                log.close()

    def _future_directory(self, partition: TopicPartition, topic_id: str, *, beside: bool) -> str:
        """Return the name of a partition's future directory, creating it if this topic has none. Raises OSError."""
        data = self._directory.data
        for name in self._names(partition):
            found = self._topic_id(name)
            if found == topic_id:
                return name
            if found is None:
                data.remove_directory(name)  # The directory was not completely created.
        name = names.marked_directory(partition, DirectoryMark.FUTURE)
        live = data.partition_path(partition)
        if not beside and data.files.exists(live) and self._topic_id(live.name) == topic_id:
            data.files.rename(live, data.path / name)  # The interrupted move had already renamed the copy.
        else:
            data.files.make_directory(data.path / name)
            write_topic_id(data.files, data.path / name, topic_id)
        data.sync()
        return name

    def _names(self, partition: TopicPartition) -> list[str]:
        marked = self._directory.data.contents().marked.get(DirectoryMark.FUTURE, ())
        parsed = {name: parse_partition_directory(name) for name in marked}
        return [name for name, found in parsed.items() if found is not None and found.partition == partition]

    def _topic_id(self, name: str) -> str | None:
        data = self._directory.data
        try:
            return read_topic_id(data.files, data.path / name)
        except CorruptionError:
            return _DAMAGED
