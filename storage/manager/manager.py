"""The embedded engine: topics over a data directory, what can be done with them, and their duties.

Readers see immutable snapshots and take no lock. `_lock` is held by whoever changes topics or closes,
`_duty_lock` by whoever does duties; neither is held while listeners are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock, RLock
from types import MappingProxyType

from storage.checkpoints.clean_shutdown import mark_clean
from storage.disk.lock import DirectoryLock
from storage.engine import Cancel, Partition
from storage.errors import ReadOnlyError, StorageError, UnknownTopicError
from storage.log.log import Log
from storage.manager.changes import TopicChanges
from storage.manager.checkpointing import CheckpointWriter, name_of
from storage.manager.data_directory import DataDirectory
from storage.manager.doomed import DoomedDirectories
from storage.manager.duties import Duty, Schedule, plan_duties
from storage.manager.loading import PartitionLoader
from storage.manager.registry import TopicRegistry
from storage.manager.topics import LogTopic, check_new_topic, check_partitions, own_overrides
from storage.manager.warnings import WarningBook
from storage.model import Timestamp, TopicPartition
from storage.retention.apply import apply_retention


@dataclass(frozen=True, slots=True)
class Keeping:
    """What keeping a data directory takes."""

    data: DataDirectory
    registry: TopicRegistry
    loader: PartitionLoader
    writer: CheckpointWriter
    doomed: DoomedDirectories
    warnings: WarningBook
    lock: DirectoryLock | None


class LogManager:
    """Implements storage.engine.Engine over a data directory. Made by `opening.open_engine`."""

    def __init__(self, keeping: Keeping, topics: Mapping[str, LogTopic]) -> None:
        self._keeping = keeping
        self._data = keeping.data
        self._writer = keeping.writer
        self._changes = TopicChanges(
            keeping.data, keeping.registry, keeping.loader, keeping.writer, keeping.doomed
        )
        self._topics = _by_name(topics)
        self._schedule = Schedule.begin(plan_duties(keeping.data.config), keeping.data.clock())
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._lock = RLock()
        self._duty_lock = Lock()
        self._closed = False

    # What is there.

    @property
    def read_only(self) -> bool:
        return self._data.read_only

    @property
    def foreign(self) -> bool:
        return self.read_only and not self._keeping.registry.entries

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the owner should know though no call failed; oldest first, the last hundred."""
        return self._keeping.warnings.lines

    def topics(self) -> Mapping[str, LogTopic]:
        return self._topics

    def topic(self, name: str) -> LogTopic:
        found = self._topics.get(name)
        if found is None:
            raise UnknownTopicError(f"{name}: no such topic")
        return found

    def partition(self, topic: str, number: int) -> Partition:
        found = self.topic(topic).partitions().get(number)
        if found is None:
            raise UnknownTopicError(f"{topic}: no partition {number}")
        return found

    def listen(self, listener: Callable[[], None]) -> Cancel:
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def cancel() -> None:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

        return cancel

    # Changing topics.

    def create_topic(
        self, name: str, *, partitions: int | None = None, overrides: Mapping[str, str] | None = None
    ) -> LogTopic:
        with self._lock:
            self._check_writable()
            count = self._data.config.num_partitions if partitions is None else partitions
            check_new_topic(name, self._topics)
            check_partitions(count)
            merged = {**own_overrides(name, self._data.config.creation_overrides), **(overrides or {})}
            topic = self._changes.create(name, partitions=count, overrides=merged)
            self._topics = _by_name({**self._topics, name: topic})
        self._notify()
        return topic

    def add_partitions(self, topic: str, *, total: int) -> None:
        with self._lock:
            self._check_writable()
            found = self.topic(topic)
            check_partitions(total)
            made = self._changes.extend(found, total)
            found.set_partitions({**found.partitions(), **made})
        if made:
            self._notify()

    def delete_topic(self, name: str) -> None:
        with self._lock:
            self._check_writable()
            topic = self.topic(name)
            try:
                self._changes.delete(topic)
            finally:
                if self._changes.is_deleted(name):
                    self._topics = _by_name({one: self._topics[one] for one in self._topics if one != name})
        self._notify()
        _wake(topic.partitions().values())

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        with self._lock:
            self._check_writable()
            self._changes.alter(self.topic(topic), changes)

    def reopen_partition(self, topic: str, number: int) -> Partition:
        """Load a partition anew, with recovery, after what took it offline was repaired (blocking).

        The new object replaces the old one, which stays offline. Raises UnknownTopicError, ReadOnlyError,
        StorageError, OSError; the partition is then as before.
        """
        with self._lock:
            self._check_writable()
            found = self.topic(topic)
            old = self.partition(topic, number)
            kept = self._writer.kept(name_of(old))
            if isinstance(old, Log):
                kept = kept._replace(recovery_point=old.recovery_point, log_start_offset=old.log_start_offset)
                old.retire("opened anew")
                old.close()
            log = self._keeping.loader.reload(TopicPartition(topic, number), found.config, kept)
            found.set_partitions({**found.partitions(), number: log})
        self._notify()
        _wake([old])
        return log

    # Duties and the end.

    def maintenance(self, now: Timestamp) -> None:
        with self._duty_lock:
            if self._closed or self.read_only:
                return
            due = self._schedule.due(now)
            for duty in due:
                self._perform(duty, now)
            self._schedule = self._schedule.done(due, now)

    def next_maintenance(self) -> Timestamp:
        """When `maintenance` next has anything to do."""
        return self._schedule.next_due()

    def close(self) -> None:
        with self._duty_lock, self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                closed_in_order = self._close_logs()
                if not self.read_only:
                    self._keeping.registry.settle()
                    self._writer.write_all(self._partitions())
                    if closed_in_order:
                        mark_clean(self._data.files, self._data.path)
            finally:
                if self._keeping.lock is not None:
                    self._keeping.lock.release()

    def _close_logs(self) -> bool:
        """Close every log; whether all went well, those that were offline before not being well."""
        in_order = True
        for partition in self._partitions():
            if not isinstance(partition, Log):
                in_order = False
                continue
            in_order = in_order and partition.offline_reason is None
            try:
                partition.close()
            except Exception as error:  # noqa: BLE001 (whatever it is, the other logs must be closed)
                in_order = False
                self._warn(partition, "close", error)
        return in_order

    def _perform(self, duty: Duty, now: Timestamp) -> None:
        try:
            if duty is Duty.FLUSH:
                self._for_each_log(duty, lambda log: _flush_if_due(log, now))
            elif duty is Duty.RETENTION:
                self._for_each_log(duty, lambda log: _retain(log, now))
            elif duty is Duty.REMOVAL:
                self._for_each_log(duty, lambda log: log.remove_deleted_files(now))
                self._keeping.doomed.remove_due(now)
                with self._lock:
                    self._keeping.registry.settle()
            elif duty is Duty.PRODUCERS:
                self._for_each_log(duty, lambda log: log.remove_expired_producers(now))
            elif duty is Duty.RECOVERY_POINTS:
                self._checkpoint(self._writer.write_recovery_points)
            elif duty is Duty.LOG_START_OFFSETS:
                self._checkpoint(self._writer.write_log_start_offsets)
            else:
                self._checkpoint(self._writer.write_high_watermarks)
        except (OSError, StorageError) as error:
            self._keeping.warnings.add(f"{duty.value}: {error}")

    def _for_each_log(self, duty: Duty, act: Callable[[Log], object]) -> None:
        """Do a duty for every log that takes writes; one that fails does not stop the others."""
        for partition in self._partitions():
            if not isinstance(partition, Log) or partition.offline_reason is not None:
                continue
            try:
                act(partition)
            except Exception as error:  # noqa: BLE001 (whatever it is, the other logs have their duties too)
                # A topic may be deleted, or a log go offline, in the middle of it: that has its own report.
                if partition.offline_reason is None:
                    self._warn(partition, duty.value, error)

    def _checkpoint(self, write: Callable[[Iterator[Partition]], None]) -> None:
        """Write a checkpoint of topics that nobody deletes meanwhile."""
        with self._lock:
            write(self._partitions())

    def _partitions(self) -> Iterator[Partition]:
        for topic in self._topics.values():
            yield from topic.partitions().values()

    def _warn(self, partition: Partition, what: str, error: Exception) -> None:
        self._keeping.warnings.add(f"{name_of(partition)}: {what}: {error}")

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self._data.path}: opened read-only")
        if self._closed:
            raise StorageError(f"{self._data.path}: closed")


def _by_name(topics: Mapping[str, LogTopic]) -> Mapping[str, LogTopic]:
    return MappingProxyType(dict(sorted(topics.items())))


def _wake(partitions: Iterable[Partition]) -> None:
    """Let whoever waits for these find out that they are no longer there, or no longer the same."""
    for partition in partitions:
        if isinstance(partition, Log):
            partition.wake()


def _retain(log: Log, now: Timestamp) -> None:
    """Remove what is due, and let the epoch file follow the log start: nobody waits for that one."""
    apply_retention(log, now)
    log.epochs.flush()


def _flush_if_due(log: Log, now: Timestamp) -> None:
    """Flush what flush.ms asks for. A flush that fails takes the log offline by itself."""
    if log.unflushed_records and now - log.last_flush_ms >= log.config.flush_ms:
        log.flush()
