"""The engine over replicated partitions: topics over several data directories, each of which holds some replicas.

Each change of topics is first agreed on (`directories/agreement.py`), then made in each directory that is online. A
directory that was away is updated when it returns (`directories/reconciliation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import RLock

from topicfs.coordination.groups.runtime.service import make_groups
from topicfs.coordination.shares.groups import QueueGroups
from topicfs.coordination.shares.journal import QueueJournal
from topicfs.replication.replicas.controller import ReplicaController
from topicfs.replication.replicas.directories.agreement import Agreement
from topicfs.replication.replicas.directories.histories import check_returned
from topicfs.replication.replicas.directories.reconciliation import adopt, reconcile
from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectories, ReplicaDirectory
from topicfs.replication.replicas.fetcher_thread import FetcherThread
from topicfs.replication.replicas.healing.healer import Healer
from topicfs.replication.replicas.healing.renewal import Renewals
from topicfs.replication.replicas.moves import ReplicaMoves
from topicfs.replication.replicas.partition import ReplicatedPartition
from topicfs.replication.replicas.topics import ReplicatedTopic, TopicTable
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.live_settings import LiveSettings, reloaded_config
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.engine import Cancel, Listeners, Partition
from topicfs.storage.errors import ReadOnlyError, StorageError, UnknownTopicError
from topicfs.storage.idempotence.registry import ProducerRegistry
from topicfs.storage.messages import WarningBook, reason_of
from topicfs.storage.model import DirectoryStatus, Timestamp, TopicPartition
from topicfs.storage.staging.record import CommitRecord
from topicfs.storage.topics.topic import check_empty


class ReplicatedEngine:
    """Implements coordination.engine.Engine. Made by `startup.open_replicas`."""

    remote = foreign = False

    def __init__(
        self,
        replica_dirs: ReplicaDirectories,
        agreement: Agreement,
        settings: LiveSettings,
        warnings: WarningBook,
        *,
        clock: Clock,
        in_background: bool = True,
    ) -> None:
        """Make the engine. With `in_background`, threads copy to lagging replicas; otherwise only `catch_up` copies."""
        self._replica_dirs, self.counts = replica_dirs, replica_dirs.counts
        self._agreement, self.read_only = agreement, agreement.read_only
        self._settings = settings
        self._warnings = warnings
        self._in_background = in_background
        self._listeners = Listeners()
        self._lock = RLock()
        """Held while topics change, and while a directory fails or returns."""
        self._closed = False
        self.controller = ReplicaController(agreement, replica_dirs, self._partitions, warnings.add)
        self._table = TopicTable(replica_dirs, agreement, settings, self.controller, warnings.add)
        self._catching_up = {
            replica_dir.number: FetcherThread(
                replica_dir,
                self._partitions,
                self.controller,
                rate=lambda: settings.config.follower_rate,
                warn=warnings.add,
            )
            for replica_dir in replica_dirs
        }
        self._moves = ReplicaMoves(
            replica_dirs,
            self._partitions,
            self.controller,
            self._lock,
            rate=lambda: settings.config.move_rate,
            warn=warnings.add,
        )
        self._healer = Healer(
            self._partitions,
            replica_dirs,
            settings=settings,
            clock=clock,
            warn=warnings.add,
            in_background=in_background,
        )
        self.scrubber = self._healer.scrubber
        self._healer.renewals = Renewals(
            replica_dirs,
            self.controller,
            self._moves,
            self._catching_up,
            changes=self._lock,
            rate=lambda: settings.config.follower_rate,
        )
        for one in self._catching_up.values():
            one.renew = self._healer.renewals.renew
        self._healer.topic_id = lambda name: (
            entry.topic_id if (entry := self.controller.entry(name)) else None
        )
        self.controller.segment_healer = self._healer.segment_healer
        self.controller.future_log = self._moves.future_log
        self.groups = make_groups(self, settings.config, clock)
        copies = replica_dirs.files, replica_dirs.paths, self._copy_failed
        self.share_groups = QueueGroups(self, partial(QueueJournal, *copies), clock)
        self._commits = CommitRecord(*copies)
        self.producers = ProducerRegistry(*copies)
        self._positions_due = clock() + settings.config.offsets_retention_check_interval_ms

    serves_clients = False

    # Queries.

    @property
    def warnings(self) -> tuple[str, ...]:
        inner = (line for replica_dir in self._replica_dirs.serving for line in replica_dir.engine.warnings)
        return (*inner, *self._warnings.lines)

    @property
    def doing(self) -> str | None:
        lines = (replica_dir.engine.doing for replica_dir in self._replica_dirs.serving)
        return next((line for line in lines if line is not None), None)

    def heal(self) -> None:
        """Heal the damage that readers have found (blocking)."""
        self._healer.run_wanted()

    @property
    def scrub(self) -> str | None:
        return self.scrubber.line

    @property
    def replication(self) -> ReplicatedEngine:
        return self

    def directories(self) -> tuple[DirectoryStatus, ...]:
        return tuple(replica_dir.status() for replica_dir in self._replica_dirs)

    def topics(self) -> Mapping[str, ReplicatedTopic]:
        return self._table.topics

    def topic(self, name: str) -> ReplicatedTopic:
        found = self._table.topics.get(name)
        if found is None:
            raise UnknownTopicError.of(name)
        return found

    def partition(self, topic: str, number: int) -> Partition:
        return self.replicated(TopicPartition(topic, number))

    def replicated(self, name: TopicPartition) -> ReplicatedPartition:
        """Return a partition with access to its replicas. Raises UnknownTopicError."""
        partitions = self.topic(name.topic).served
        found = partitions.get(name.partition)
        if found is None:
            raise UnknownTopicError.of_partition(*name, partitions)
        return found

    def _partitions(self) -> Iterator[ReplicatedPartition]:
        for topic in self._table.topics.values():
            yield from topic.served.values()

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self._listeners.add(listener)

    # Group settings.

    def group_overrides(self) -> Mapping[str, Mapping[str, str]]:
        return self._agreement.content.groups

    def put_group_overrides(self, group: str, overrides: Mapping[str, str]) -> None:
        self._check_writable()
        self._agreement.put_group(group, overrides)

    # Start.

    def begin(self) -> None:
        """Update the directories to the agreed state, and elect leaders (blocking)."""
        with self._lock:
            if not self.read_only:
                adopt(self._replica_dirs.serving, self._agreement)
            self._table.begin()
            if not self.read_only:
                for replica_dir in self._replica_dirs.serving:
                    self._update_directory(replica_dir)
                newest = max((one.copy.revision for one in self._replica_dirs if one.copy), default=0)
                stale = [one for one in self._replica_dirs if one.copy and one.copy.revision < newest]
            self.controller.begin(self._partitions())
            if not self.read_only:
                self._update_record_copies(stale)
                self._moves.pause_cleaning()
        self._want_all()

    def _update_directory(self, replica_dir: ReplicaDirectory) -> None:
        """Update a directory to the agreed state. If that fails, mark the directory as failed (blocking)."""
        try:
            reconcile(replica_dir, self._agreement.content, self._warnings.add)
            replica_dir.engine.redirect_writes(self, self._commits)
        except (StorageError, OSError) as error:
            replica_dir.fail(f"failed: {reason_of(error)}")

    def _copy_failed(self, directory: Path, error: OSError) -> None:
        """Mark a directory as failed immediately. Later appends then neither wait for it nor count it as in sync."""
        # The caller holds the locks of groups and records. This cannot deadlock, because no thread that holds
        # a partition's lock takes these locks.
        for replica_dir in self._replica_dirs:
            if replica_dir.path == directory:
                replica_dir.fail(f"failed: {reason_of(error)}")
                self.controller.directory_failed(replica_dir)

    def _update_record_copies(self, stale: Iterable[ReplicaDirectory]) -> None:
        paths = [replica_dir.path for replica_dir in stale]
        for record in (self._commits, self.producers):
            self._keep(record.file_name, partial(record.update_copies, paths))

    # Changes of topics.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        topic_id: str | None = None,
        replicas: int | None = None,
    ) -> ReplicatedTopic:
        """Create a topic with `replicas` replicas of each partition (None: as in the settings)."""
        # Do not hold the engine's lock here: the groups' thread takes it as well.
        self.groups.prepare_new_topic(name)
        with self._lock:
            self._check_writable()
            topic = self._table.create(
                name, partitions=partitions, overrides=overrides, topic_id=topic_id, replicas=replicas
            )
        self._listeners.notify()
        return topic

    def add_partitions(self, topic: str, *, total: int) -> None:
        with self._lock:
            self._check_writable()
            made = self._table.extend(self.topic(topic), total)
        if made:
            self._listeners.notify()

    def delete_topic(self, name: str, *, with_records: bool = True) -> None:
        self.groups.load()
        with self._lock:
            self._check_writable()
            topic = self.topic(name)
            if not with_records:
                check_empty(topic)
            for partition in topic.served.values():
                with suppress(StorageError, OSError):
                    self._moves.discard(partition)
            self._table.delete(topic)
            self.counts.topic_deleted(name)
        self._listeners.notify()
        for partition in topic.served.values():
            partition.listeners.notify()

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        with self._lock:
            self._check_writable()
            self._table.alter(self.topic(topic), changes)

    def reconfigure(self, config: EngineConfig) -> None:
        with self._lock:
            self._settings.config = reloaded_config(self._settings.config, config)
            self._table.apply_defaults()
            for replica_dir in self._replica_dirs.serving:
                with suppress(
                    StorageError
                ):  # A directory that fails now gets these settings when it is opened again.
                    replica_dir.engine.reconfigure(config)

    def set_replicas(self, topic: str, replicas: int) -> None:
        with self._lock:
            self._check_writable()
            self._moves.check_none(self.topic(topic).served.values())
            self._table.set_replicas(self.topic(topic), replicas)
        self._want_all()

    def move_replica(self, partition: TopicPartition, directory: str, source: str | None = None) -> None:
        self._check_writable()
        self._moves.begin(self.replicated(partition), directory, source)
        self._want_all()

    def cancel_move(self, partition: TopicPartition) -> None:
        self._check_writable()
        self._moves.cancel(self.replicated(partition))

    def elect_preferred(self, topic: str | None = None) -> int:
        with self._lock:
            self._check_writable()
            wanted = self._partitions() if topic is None else self.topic(topic).served.values()
            return self.controller.elect_preferred(wanted)

    def elect_unclean(self, name: TopicPartition, directory: str) -> None:
        """Elect the replica in a directory even if it is not in sync (blocking). Records may then be lost."""
        with self._lock:
            self._check_writable()
            partition = self.replicated(name)
            for number in partition.state.assigned:
                replica_dir = self._replica_dirs.get(number)
                if (
                    replica_dir is not None
                    and directory in {str(replica_dir.path), str(number)}
                    and replica_dir.log(name)
                ):
                    # Stop fetching first: records of the old leader must not follow records of the new
                    # leader.
                    with self._catching_up[number].held():
                        self.controller.elect_unclean(partition, number)
                    self._table.fill_again(partition)
                    break
            else:
                raise StorageError(f"{name}: has no available replica in {directory}")
        self._want_all()

    def reopen_partition(self, topic: str, number: int) -> Partition:
        with self._lock:
            self._check_writable()
            found = self.replicated(TopicPartition(topic, number))
            for one in found.state.assigned:
                replica_dir = self._replica_dirs.get(one)
                if replica_dir is None:
                    continue  # The directory was left out at the start.
                if not replica_dir.serves:
                    self._bring_back(replica_dir)
                if replica_dir.serves and replica_dir.log(found.name) is None:
                    replica_dir.engine.reopen_partition(topic, number)
            leader = found.leader
            if leader is None or self._replica_dirs[leader.number].log(found.name) is not leader.log:
                self.controller.begin([found])
            if found.leader is None:
                raise StorageError(f"{found.name}: {found.status().offline}")
        self._want_all()
        return found

    # Duties and close.

    def commit_staged_writes(self) -> None:
        """Append the writes that were submitted to the data directories (blocking). Failures become warnings."""
        for replica_dir in self._replica_dirs.serving:
            with suppress(StorageError):  # If a directory fails now, its writes stay there until it returns.
                replica_dir.engine.commit_staged_writes()

    def keep_log_starts(self) -> None:
        self._check_writable()
        for replica_dir in self._replica_dirs.serving:
            replica_dir.engine.keep_log_starts()

    def maintenance(self, now: Timestamp) -> None:
        if self.read_only or self._closed:
            return
        for partition in list(self._partitions()):
            partition.follow_high_watermark()
        for replica_dir in self._replica_dirs.serving:
            try:
                replica_dir.engine.maintenance(now)
            except (StorageError, OSError) as error:
                self._warnings.add(f"{replica_dir}: {reason_of(error)}")
        self._look_after_directories()
        if now >= self._positions_due:
            self._positions_due = now + self._settings.config.offsets_retention_check_interval_ms
            self._keep("positions of groups", lambda: self.groups.expire(now))
        self._keep("share groups", lambda: self.share_groups.maintain(now))
        self._keep("scrub", lambda: self._healer.maintain(now))

    def _keep(self, what: str, duty: Callable[[], None]) -> None:
        try:
            duty()
        except (StorageError, OSError) as error:
            self._warnings.add(f"{what}: {reason_of(error)}")

    def _look_after_directories(self) -> None:
        with self._lock:
            if self._closed:
                return
            for replica_dir in self._replica_dirs:
                offline = replica_dir.offline
                if offline is not None:
                    replica_dir.fail(offline)
                if not replica_dir.serves:
                    self.controller.directory_failed(replica_dir)
                if replica_dir.due:
                    self._bring_back(replica_dir)
        self._want_all()

    def _bring_back(self, replica_dir: ReplicaDirectory) -> None:
        content = self._agreement.content
        if not replica_dir.attempt(
            content.cluster_id, lambda: check_returned(replica_dir, content, self._replica_dirs)
        ):
            return
        self._update_directory(replica_dir)
        if not replica_dir.serves:
            return
        self._warnings.add(f"{replica_dir}: serves again")
        self._update_record_copies([replica_dir])
        try:
            self._agreement.put_topics({})
            self.controller.returned()
            self.share_groups.places_changed()
            self._moves.pause_cleaning()
        except (StorageError, OSError) as error:
            replica_dir.fail(f"failed: {reason_of(error)}")  # It is retried like any failed directory.

    def catch_up(self) -> None:
        """Copy the missing records to lagging replicas now (blocking). Replicas that fail are retried later."""
        for replica_dir in self._replica_dirs.serving:
            self._catching_up[replica_dir.number].run_once()
        self._moves.run_once()

    def _want_all(self) -> None:
        if self._in_background and not self.read_only:
            for replica_dir in self._replica_dirs.serving:
                self._catching_up[replica_dir.number].want()
            self._moves.want()

    def close(self) -> None:
        self.groups.close()
        self.share_groups.close()
        self._healer.stop()
        for one in self._catching_up.values():
            one.stop()
        self._moves.stop()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if not self.read_only:
                for partition in self._partitions():
                    partition.follow_high_watermark()
            errors: list[Exception] = []
            for replica_dir in self._replica_dirs:
                try:
                    replica_dir.close()
                except (StorageError, OSError) as error:
                    errors.append(error)
            if errors:
                raise errors[0]

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError("the data directories are opened read-only")
        if self._closed:
            raise StorageError("the data directories are closed")
