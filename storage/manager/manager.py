"""The log engine: topics over data directories, the operations on them, and their duties.

Readers see immutable snapshots and take no lock. `_lock` is held while topics change and during the close,
`_duty_lock` while duties are done. Neither lock is held while listeners are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Lock, RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeVar

from topicfs.storage import errors
from topicfs.storage.checkpoints.clean_shutdown import mark_clean
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.live_settings import reloaded_config
from topicfs.storage.directories.checkpoints import CheckpointWriter, name_of
from topicfs.storage.directories.directories import Directories, OpenDirectory
from topicfs.storage.directories.offline_partition import loaded_logs
from topicfs.storage.disk.filesystem import is_full
from topicfs.storage.disk.names import check_new_topic, check_partitions
from topicfs.storage.duties.schedule import Duty, Schedule, plan_duties
from topicfs.storage.engine import Cancel, Listeners, Partition
from topicfs.storage.log.life import Event
from topicfs.storage.log.log import Log
from topicfs.storage.messages import WarningBook, reason_of
from topicfs.storage.model import DirectoryStatus, Timestamp
from topicfs.storage.topics.changes import TopicChanges, for_each
from topicfs.storage.topics.registry import TopicRegistry
from topicfs.storage.topics.restart import Restart
from topicfs.storage.topics.topic import LogTopic, check_empty, own_overrides

if TYPE_CHECKING:
    from topicfs.storage.duties.log_cleaner import LogCleaner
    from topicfs.storage.duties.plan import PlannedStep
    from topicfs.storage.duties.staged_writes import StagedWrites
    from topicfs.storage.topics.unopened_partitions import UnopenedDuties

T = TypeVar("T")


@dataclass
class _Services:
    staged: StagedWrites
    unopened: UnopenedDuties
    cleaner: LogCleaner


class LogManager:
    """Implements storage.engine.LogEngine over data directories. `startup.open_logs` makes it."""

    one_of_many: ClassVar[bool] = False
    """True if other engines' directories have more partitions of the same topics; no partition counts as missing."""
    remote = False

    def __init__(
        self,
        directories: Directories,
        registry: TopicRegistry,
        warnings: WarningBook,
        topics: Mapping[str, LogTopic],
    ) -> None:
        self._directories, self.read_only = directories, directories.read_only
        self.counts = directories.all[0].data.counts
        self._registry = registry
        self._warnings = warnings
        self._changes = TopicChanges(directories, registry)
        self._topics = by_name(topics)
        self._schedule = Schedule.begin(plan_duties(directories.config), directories.clock())
        self._reopening = Restart(directories, registry, warnings.add)
        directories.on_failure = self._directory_failed
        self._listeners = Listeners()
        self._lock, self._duty_lock = RLock(), Lock()
        self._closed = False
        self._making_services = Lock()
        self._made_services: _Services | None = None

    # Queries.

    @property
    def foreign(self) -> bool:
        return self.read_only and not self._registry.entries

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about problems for which no call failed: the last hundred, oldest first."""
        return self._warnings.lines

    @property
    def doing(self) -> str | None:
        """A line with the progress of a change of topics that takes long; None if there is no such change."""
        return self._changes.progress

    @property
    def _services(self) -> _Services:
        """The services, made on first use: importing them takes a tenth of a server's start. Blocks."""
        directories, warn = self._directories, self._warnings.add
        with self._making_services:
            if self._made_services is None:
                from topicfs.storage.duties.log_cleaner import LogCleaner
                from topicfs.storage.duties.staged_writes import StagedWrites
                from topicfs.storage.topics.unopened_partitions import UnopenedDuties

                self._made_services = _Services(
                    StagedWrites(directories, self, warn=warn),
                    UnopenedDuties(directories, self.topics),
                    LogCleaner(
                        directories.settings,
                        self._logs,
                        clock=directories.clock,
                        warn=warn,
                        write_checkpoints=lambda: self._checkpoint(
                            CheckpointWriter.write_first_dirty_offsets
                        ),
                        lend=self._lend,
                    ),
                )
            return self._made_services

    def directories(self) -> tuple[DirectoryStatus, ...]:
        """Return the state of each data directory, in the order given."""
        return self._directories.status()

    def topics(self) -> Mapping[str, LogTopic]:
        return self._topics

    def topic(self, name: str) -> LogTopic:
        found = self._topics.get(name)
        if found is None:
            raise errors.UnknownTopicError.of(name)
        return found

    def partition(self, topic: str, number: int) -> Partition:
        partitions = self.topic(topic).partitions()
        found = partitions.get(number)
        if found is None:
            raise errors.UnknownTopicError.of_partition(topic, number, partitions)
        return found

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self._listeners.add(listener)

    # Changing topics.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> LogTopic:
        with self._lock:
            self._check_writable()
            count = self._directories.config.num_partitions if partitions is None else partitions
            check_new_topic(name, self._topics)
            check_partitions(count)
            merged = {**own_overrides(name, self._directories.config.creation_overrides), **(overrides or {})}
            topic = self._changes.create(name, partitions=count, overrides=merged, topic_id=topic_id)
            self._topics = by_name({**self._topics, name: topic})
        self._listeners.notify()
        return topic

    def add_partitions(self, topic: str, *, total: int) -> None:
        with self._lock:
            self._check_writable()
            found = self.topic(topic)
            check_partitions(total)
            made = self._changes.extend(found, total)
            found.put_partitions(made)
        if made:
            self._listeners.notify()

    def delete_topic(self, name: str, *, with_records: bool = True) -> None:
        failure: Exception | None = None
        with self._lock:
            self._check_writable()
            topic = self.topic(name)
            if not with_records:
                check_empty(topic)
            try:
                self._changes.delete(topic)
            except (errors.StorageError, OSError) as error:
                if not self._changes.is_deleted(name):
                    raise
                failure = error
            self._topics = by_name({one: self._topics[one] for one in self._topics if one != name})
            self.counts.topic_deleted(name)
        self._listeners.notify()
        _wake(topic.partitions().values())
        if failure is not None:
            raise failure

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        with self._lock:
            self._check_writable()
            self._changes.alter(self.topic(topic), changes)

    def reconfigure(self, config: EngineConfig) -> None:
        with self._lock:
            self._directories.settings.config = reloaded_config(self._directories.config, config)
            self._changes.apply_defaults(self._topics.values(), self._warnings.add)
        with self._duty_lock:
            plans = plan_duties(self._directories.config)
            self._schedule = self._schedule.replanned(plans, self._directories.clock())

    def reopen_partition(self, topic: str, number: int) -> Partition:
        with self._lock:
            self._check_writable()
            before = self.partition(topic, number)
            old = list(self._partitions())
            for directory in self._failed_directories(before):
                self._topics = by_name(self._reopening.directory(directory, self._topics))
            found = self.topic(topic)
            now = found.partitions()[number]
            if now is before or not isinstance(now, Log):
                self._reopening.partition(found, number)
            present = set(map(id, self._partitions()))
        self._listeners.notify()
        _wake(one for one in old if id(one) not in present)
        return self.partition(topic, number)

    def _failed_directories(self, partition: Partition) -> tuple[OpenDirectory, ...]:
        """Return the failed directories that have the partition, or may have it.

        The partition can be loaded again only after these directories.
        """
        directory = self._directories.by_partition.get(name_of(partition))
        if directory is None:
            return self._directories.failed
        return (directory,) if directory.failure is not None else ()

    def keep_log_starts(self) -> None:
        self._check_writable()
        self._checkpoint(CheckpointWriter.write_log_start_offsets)

    # Settings of groups.

    def group_overrides(self) -> Mapping[str, Mapping[str, str]]:
        return self._registry.groups

    def put_group_overrides(self, group: str, overrides: Mapping[str, str]) -> None:
        with self._lock:
            self._check_writable()
            self._registry.put_group(group, overrides)

    # Duties, and the close.

    def maintenance(self, now: Timestamp) -> None:
        self._do(now, self._schedule.due)

    def maintain_now(self, now: Timestamp) -> None:
        """Do every duty, due or not, including all steps that `plan_maintenance` returns. Blocks."""
        self._open_all()
        if not self.read_only:
            self._for_each_log("roll", lambda log: log.appender.roll_if_due(now))
        self._do(now, lambda _: tuple(self._schedule.plans))

    def plan_maintenance(self, now: Timestamp) -> tuple[PlannedStep, ...]:
        """Return the steps by which `maintain_now` would roll, delete and compact, without changing anything."""
        from topicfs.storage.duties.plan import plan_log

        self._open_all()
        logs = [log for log in self._logs() if log.offline_reason is None]
        return tuple(step for log in logs for step in plan_log(log, now))

    def _do(self, now: Timestamp, choose: Callable[[Timestamp], tuple[Duty, ...]]) -> None:
        with self._duty_lock:
            if self._closed or self.read_only:
                return
            due = choose(now)
            for duty in due:
                self._keep(duty.value, partial(self._perform, duty, now))
            self._schedule = self._schedule.done(due, now)
            for directory in self._directories.online:
                directory.reserve.restore()
        if Duty.STAGED_WRITES in due:
            self._services.staged.run_where_changed()
        self._do_above(due, now)
        if Duty.CLEAN in due:
            # Compaction may take long, and the other duties must not wait for it.
            self._services.cleaner.run(now)

    def _do_above(self, due: tuple[Duty, ...], now: Timestamp) -> None:
        """Do the duties of the parts that a subclass adds above the logs. This class has no such duties."""

    def _keep(self, what: str, duty: Callable[[], None]) -> None:
        try:
            duty()
        except (OSError, errors.StorageError) as error:
            self._warnings.add(f"{what}: {reason_of(error)}")

    def commit_staged_writes(self) -> None:
        """Append all submitted writes now, without waiting for the duty. Failures become warnings. Blocks."""
        if not self.read_only:
            self._services.staged.run()

    def close(self) -> None:
        if not self.read_only:
            self._services.staged.stop()
            self._services.cleaner.stop()
        with self._duty_lock, self._lock:
            if self._closed:
                return
            self._closed = True
            for directory in self._directories.all:
                directory.data.flusher.close()
            try:
                with ExitStack() as stack:
                    if not self.read_only:
                        for directory in self._directories.online:
                            stack.enter_context(directory.reserve.lent_when_low())
                    in_order = self._close_logs()
                    if not self.read_only:
                        self._registry.update_copies()
                        self._close_directories(in_order)
            finally:
                for directory in self._directories.all:
                    directory.release()

    def _close_directories(self, in_order: Mapping[OpenDirectory, bool]) -> None:
        """Write the last checkpoints and the clean-shutdown markers. If a directory fails, continue with the others."""
        failures = []
        for directory in self._directories.online:
            try:
                directory.writer.write_all(self._partitions_in(directory))
                if in_order[directory]:
                    mark_clean(directory.data.files, directory.data.path)
            except OSError as error:
                self._warnings.add(f"{directory}: not closed cleanly: {reason_of(error)}")
                failures.append(error)
        if failures:
            raise failures[0]

    def _close_logs(self) -> dict[OpenDirectory, bool]:
        """Close all open logs. Return, by directory, whether all logs closed cleanly and none was offline."""
        in_order = dict.fromkeys(self._directories.all, True)
        for topic in self._topics.values():
            topic.open_no_more()
        partitions = list(self._partitions())
        for partition, closed in zip(partitions, for_each(partitions, self._close_log), strict=True):
            directory = self._directories.by_partition.get(name_of(partition))
            if directory is not None:
                in_order[directory] = closed and in_order[directory]
        return in_order

    def _close_log(self, partition: Partition) -> bool:
        if not isinstance(partition, Log):
            return False
        try:
            partition.close()
        except Exception as error:  # noqa: BLE001 (whatever it is, the other logs must be closed)
            self._warn(partition, "close", error)
            return False
        return partition.offline_reason is None

    def _perform(self, duty: Duty, now: Timestamp) -> None:
        if duty is Duty.FLUSH:
            self._for_each_log(duty.value, lambda log: log.appender.flush_if_due(now))
        elif duty is Duty.RETENTION:
            self._for_each_log(duty.value, lambda log: self._retain(log, now))
        elif duty is Duty.UNOPENED:
            self._services.unopened.open_due(now)
        elif duty is Duty.REMOVAL:
            self._for_each_log(
                duty.value, lambda log: log.parts.removal.pending and log.replacer.remove_deleted_files(now)
            )
            self._look_after_directories(now)
        elif duty is Duty.PRODUCERS:
            self._for_each_log(duty.value, lambda log: log.appender.remove_expired_producers(now))
        elif duty is Duty.RECOVERY_POINTS:
            self._checkpoint(CheckpointWriter.write_recovery_points)
        elif duty is Duty.LOG_START_OFFSETS:
            self._checkpoint(CheckpointWriter.write_log_start_offsets)
        elif duty is Duty.HIGH_WATERMARKS:
            self._checkpoint(CheckpointWriter.write_high_watermarks)

    def _for_each_log(self, what: str, act: Callable[[Log], object]) -> None:
        """Do a duty for every log that accepts writes. If a log fails, continue with the others."""
        for log in self._logs():
            if log.offline_reason is not None:
                continue
            try:
                act(log)
            except Exception as error:  # noqa: BLE001 (whatever it is, the other logs have their duties too)
                # If the topic was deleted, or the log went offline, in the meantime, another caller reports
                # this.
                if log.offline_reason is None:
                    self._warn(log, what, error)

    def _retain(self, log: Log, now: Timestamp) -> None:
        if not self._services.cleaner.retains(log):
            self._services.cleaner.retain(log, now)

    def _lend(self, log: Log, action: Callable[[], T], /) -> T:
        directory = self._directories.by_partition.get(name_of(log))
        return action() if directory is None else directory.reserve.lend(action)

    def _look_after_directories(self, now: Timestamp) -> None:
        """Check which directories still exist, and remove the files and directories that are due."""
        for directory in self._directories.online:
            try:
                directory.data.check()
            except OSError as error:
                with self._lock:
                    self._directories.fail(directory, error)
                continue
            directory.deleted.remove_due(now)
        with self._lock:
            self._registry.update_copies()

    def _checkpoint(self, write: Callable[[CheckpointWriter, Iterable[Partition]], None]) -> None:
        """Call `write` for each serving directory, under the lock that deletions need; an error fails the directory."""
        full: OSError | None = None
        with self._lock:
            for directory in self._directories.online:
                try:
                    write(directory.writer, self._partitions_in(directory))
                except OSError as error:
                    if is_full(error):
                        full = error
                    else:
                        self._directories.fail(directory, error)
        if full is not None:
            raise full

    def _directory_failed(self, directory: OpenDirectory) -> None:
        self._registry.leave(directory.data.path)
        for log in loaded_logs(self._partitions_in(directory)):
            log.parts.life.note(Event.FAIL, str(directory.failure))

    def _partitions_in(self, directory: OpenDirectory) -> list[Partition]:
        by_partition = self._directories.by_partition
        return [one for one in self._partitions() if by_partition.get(name_of(one)) is directory]

    def _logs(self) -> Iterator[Log]:
        return loaded_logs(self._partitions())

    def _partitions(self) -> Iterator[Partition]:
        """Yield the partitions that are open or offline. In a large directory, most partitions are neither."""
        for topic in self._topics.values():
            yield from topic.opened()

    def _open_all(self) -> None:
        for topic in self._topics.values():
            for one in topic.unopened():
                one.open()

    def _warn(self, partition: Partition, what: str, error: Exception) -> None:
        self._warnings.add(f"{name_of(partition)}: {what}: {reason_of(error)}")

    def _check_writable(self) -> None:
        if self.read_only:
            raise errors.ReadOnlyError(f"{self._directories}: opened read-only")
        if self._closed:
            raise errors.StorageError(f"{self._directories}: closed")


def by_name(topics: Mapping[str, LogTopic]) -> Mapping[str, LogTopic]:
    """Return the topics sorted by name, as a snapshot."""
    return MappingProxyType(dict(sorted(topics.items())))


def _wake(partitions: Iterable[Partition]) -> None:
    """Wake the readers that wait for new records in partitions that were removed or replaced."""
    for log in loaded_logs(partitions):
        log.parts.listeners.notify()
