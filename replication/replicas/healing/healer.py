"""The healer repairs damage in one replica from another replica in sync (`replication.scrub` writes the bytes).

When a read finds damage, another replica answers the read, and a thread heals the segment right away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock, Thread

from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectories
from topicfs.replication.replicas.healing.renewal import Renewals
from topicfs.replication.replicas.partition import ReplicatedPartition
from topicfs.replication.replicas.rules.presence import absences
from topicfs.replication.replicas.sound_reads import SegmentHealer
from topicfs.replication.scrub.partition import PartitionScrub, ScrubbedLog, ScrubbedPartition
from topicfs.replication.scrub.scrubber import Scrubber
from topicfs.storage.config.live_settings import LiveSettings
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.duties.schedule import Duty, Schedule, plan_duties
from topicfs.storage.errors import Finding, PartitionOfflineError, StorageError
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import Offset, Timestamp, TopicPartition

RECHECK_AFTER_SECONDS = 60.0
"""After a segment was scrubbed for a reader, it is not scrubbed again for this time."""


class Healer:
    """Heals the replicas of an engine. Safe from any thread."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[ReplicatedPartition]],
        replica_dirs: ReplicaDirectories,
        *,
        settings: LiveSettings,
        clock: Clock,
        warn: ReportLine,
        in_background: bool,
    ) -> None:
        self._replica_dirs = replica_dirs
        self.renewals: Renewals
        """Copies replicas that cannot be healed in another way. The engine sets this attribute and `topic_id`."""
        self.topic_id: Callable[[str], str | None]
        self._warn = warn
        self._in_background = in_background and not replica_dirs.files.read_only
        self._settings = settings
        self._schedule = Schedule.begin({Duty.SCRUB: plan_duties(settings.config)[Duty.SCRUB]}, clock())
        self._healing = Lock()
        self._lock = Lock()
        self._wanted: dict[tuple[TopicPartition, Offset], ReplicatedPartition] = {}
        self._unfinished: list[PartitionScrub] = []
        """Scrubs whose damage can only be repaired by copying a replica."""
        self._done: dict[tuple[TopicPartition, Offset], float] = {}
        self._thread: Thread | None = None
        self._stopped = False
        self.scrubber = Scrubber(
            lambda: map(self._scrubbed, partitions()),
            replica_dirs.paths,
            replica_dirs.files,
            clock=clock,
            warn=warn,
        )

    def _scrubbed(self, partition: ReplicatedPartition) -> ScrubbedPartition:
        def replicas() -> list[ScrubbedLog]:
            return [
                ScrubbedLog(str(self._replica_dirs[one.number]), one.log)
                for one in partition.replicas_in_sync
            ]

        return ScrubbedPartition(
            name=partition.name,
            replicas=replicas,
            guard=lambda: partition.lock,
            topic_id=self.topic_id(partition.topic),
            renew=lambda place: self.renewals.renew(partition, place),
            absent=lambda: self._absent(partition),
        )

    def _absent(self, partition: ReplicatedPartition) -> list[Finding]:
        """Return findings about records that logs lack. Raises PartitionOfflineError, StorageError, OSError."""
        offline = partition.status().offline
        if offline is not None:
            raise PartitionOfflineError(offline)
        with partition.lock:
            logs = {one.number: one.log for one in partition.replicas_in_sync}
            closed = {
                tuple((one.base_offset, one.size) for one in log.chain.segments[:-1]) for log in logs.values()
            }
            if len(closed) == 1 < len(logs):
                return []  # All logs have the same closed segments. The scrub compares their bytes.
            return [Finding(one.path, None, one.cause) for one in absences(logs).values()]

    def maintain(self, now: Timestamp) -> None:
        """Start or continue a scrub if one is due. Raises OSError."""
        due = self._schedule.due(now)
        if due:
            self._schedule = self._schedule.done(due, now)
            self.scrubber.maintain(now, self._settings.config.scrub_interval_hours)

    def segment_healer(self, partition: ReplicatedPartition) -> SegmentHealer:
        return SegmentHealer(partial(self.want, partition), partial(self.heal, partition))

    def want(self, partition: ReplicatedPartition, base_offset: Offset) -> None:
        """Let a thread scrub and heal the segment that begins at `base_offset`, unless it has just been scrubbed."""
        key = partition.name, base_offset
        with self._lock:
            if self._stopped or time.monotonic() - self._done.get(key, float("-inf")) < RECHECK_AFTER_SECONDS:
                return
            self._wanted[key] = partition
            self._begin()

    def _begin(self) -> None:
        """Start the thread unless it is running. The caller holds the lock."""
        if self._in_background and (self._thread is None or not self._thread.is_alive()):
            self._thread = Thread(target=self.run_wanted, name="heal", daemon=True)
            self._thread.start()

    def run_wanted(self) -> None:
        while (task := self._next_task()) is not None:
            task()

    def _next_task(self) -> Callable[[], None] | None:
        with self._lock:
            if self._wanted and not self._stopped:
                (_name, base_offset), partition = self._wanted.popitem()
                return partial(self.heal, partition, base_offset)
            if self._unfinished and not self._stopped:
                return self._unfinished.pop().finish
            self._thread = None
            return None

    def heal(self, partition: ReplicatedPartition, base_offset: Offset) -> None:
        """Scrub a segment now (blocking), unless it was scrubbed less than RECHECK_AFTER_SECONDS ago.

        Replicas that need copying are copied later.
        """
        key = partition.name, base_offset
        with self._healing:
            if time.monotonic() - self._done.get(key, float("-inf")) < RECHECK_AFTER_SECONDS:
                return
            if self._replica_dirs.files.read_only:
                return
            scrub = PartitionScrub(self._scrubbed(partition), self.scrubber.counts, self.scrubber.tell_owner)
            try:
                for _ in scrub.segment(base_offset):
                    if self._stopped:
                        break
            except (OSError, StorageError) as error:
                self._warn(f"{partition.name}: not healed: {reason_of(error)}")
            self._done[key] = time.monotonic()
        with self._lock:
            if scrub.is_unfinished:
                self._unfinished.append(scrub)
                if not self._stopped:
                    self._begin()

    def stop(self) -> None:
        """Stop scrubbing and copying after the present step (blocking)."""
        with self._lock:
            self._stopped = True
            self.renewals.stop()
            thread = self._thread
        if thread is not None:
            thread.join()
        self.scrubber.stop()
        for scrub in self._unfinished:
            scrub.give_up()
