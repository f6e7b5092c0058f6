"""The threads that copy from leaders to lagging logs. Appends continue until only a few records are missing."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import ClassVar

from topicfs.replication.replicas.controller import ReplicaController
from topicfs.replication.replicas.directories.replica_directory import (
    FIRST_RETRY_SECONDS,
    LONGEST_RETRY_SECONDS,
    ReplicaDirectory,
)
from topicfs.replication.replicas.partition import ReplicatedPartition
from topicfs.replication.replicas.rules.follower import Step, steps
from topicfs.replication.replicas.rules.presence import absences, mend_epochs
from topicfs.replication.replicas.served_partition import Replica
from topicfs.storage.errors import CorruptionError, StorageError
from topicfs.storage.log.life import Role
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)

COPY_STEP_BYTES = 1 << 20
NEARLY_BYTES = 64 << 10
"""A log is nearly caught up after a step of at most this size: the remaining records are copied while appends wait."""


ROUND_PAUSE_SECONDS = 0.05
"""Pause between rounds, and between checks of whether a throttled copy is still wanted."""


class CopyingThread(ABC):
    does: ClassVar[str]

    def __init__(
        self,
        replica_dir: ReplicaDirectory,
        partitions: Callable[[], Iterable[ReplicatedPartition]],
        *,
        rate: Callable[[], int],
        warn: ReportLine,
    ) -> None:
        """Make the thread; `rate` returns the maximum number of bytes to copy per second."""
        self._copying = Lock()
        """Held while a log is being copied."""
        self._holders = 0
        self._replica_dir = replica_dir
        self._partitions = partitions
        self._rate = rate
        self._warn = warn
        self._stopping = Event()
        self._wanted = Event()
        self._thread: Thread | None = None
        self._beginning = Lock()
        self._pauses: dict[TopicPartition, tuple[float, float]] = {}
        """For each partition that failed: the time of the next attempt, and the pause before it."""

    def want(self) -> None:
        """Let the thread look for lagging replicas; start the thread if necessary."""
        self._wanted.set()
        with self._beginning:
            if not self._stopping.is_set() and (self._thread is None or not self._thread.is_alive()):
                self._thread = Thread(
                    target=self._run, name=f"{self.does}-{self._replica_dir.number}", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()
        with self._beginning:  # Another call may be starting the thread.
            thread = self._thread
        if thread is not None:
            thread.join()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Suspend copying in the `with` block, after waiting for the present step. Only one such block runs at once."""
        self._holders += 1
        try:
            with self._copying:
                yield
        finally:
            self._holders -= 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.clear()
            behind = self._behind()
            if not behind or not self._replica_dir.serves:
                return
            for partition in behind:
                if not self._stopping.is_set() and self._replica_dir.serves:
                    self._catch_up(partition)
            self._wanted.wait(ROUND_PAUSE_SECONDS)

    def _still_wants(self, partition: ReplicatedPartition) -> bool:
        return not partition.gone and self._wants(partition)

    def _behind(self) -> list[ReplicatedPartition]:
        return [one for one in self._partitions() if one.leader is not None and self._wants(one)]

    @abstractmethod
    def _wants(self, partition: ReplicatedPartition) -> bool:
        """Return whether this directory needs a copy of the partition."""

    @abstractmethod
    def _log(self, partition: TopicPartition) -> Log:
        """Return the log to copy to; reopen it if it went offline. Raises StorageError, OSError."""

    @abstractmethod
    def _end(self, partition: ReplicatedPartition, log: Log) -> bool:
        """Give a nearly caught up log its role; return False to continue copying. Raises StorageError, OSError."""

    def run_once(self) -> None:
        """Do one round of the thread's work (blocking), for owners without threads."""
        for partition in self._behind():
            self._catch_up(partition)

    def _catch_up(self, partition: ReplicatedPartition) -> None:
        due, pause = self._pauses.get(partition.name, (0.0, FIRST_RETRY_SECONDS))
        if time.monotonic() < due:
            return
        try:
            if self._is_copied_anew(partition):
                self._pauses.pop(partition.name, None)
                partition.troubles.pop(self._replica_dir.number, None)
                return
            with self._copying:
                if not self._still_wants(partition):
                    return
                log = self._log(partition.name)
                # The log could belong to a topic that was deleted and created again.
                copied = not partition.gone and self._copy(partition, log)
            if copied and self._end(partition, log):
                self._pauses.pop(partition.name, None)
                partition.troubles.pop(self._replica_dir.number, None)
        except (OSError, StorageError) as error:
            self._pauses[partition.name] = time.monotonic() + pause, min(2 * pause, LONGEST_RETRY_SECONDS)
            self._report(partition, reason_of(error))

    def _is_copied_anew(self, _partition: ReplicatedPartition) -> bool:
        """If fetching cannot repair a log, copy the whole log again and return True.

        Blocks. Raises StorageError, OSError.
        """
        return False

    def _report(self, partition: ReplicatedPartition, reason: str) -> None:
        if partition.troubles.get(self._replica_dir.number) != reason:
            partition.troubles[self._replica_dir.number] = reason
            self._warn(f"{partition.name}: its replica in {self._replica_dir} does not catch up: {reason}")

    def _copy(self, partition: ReplicatedPartition, log: Log) -> bool:
        if log.parts.life.role is not Role.FOLLOWER:
            log.roles.follow(log.log_end_offset)
        leader: Replica | None = None
        copying: Iterator[Step] = iter(())
        while not self._stopping.is_set() and not self._holders and self._still_wants(partition):
            if partition.leader is None:
                return False
            if partition.leader != leader:
                leader = partition.leader
                copying = steps(leader.log, log, max_bytes=COPY_STEP_BYTES)
            began = time.monotonic()
            step = next(copying)
            if step.copied_bytes <= NEARLY_BYTES and not step.truncated:
                log.sync()  # Flush now, so that appends will wait only for the remaining records.
                return True
            self._slow_down(partition, began + step.copied_bytes / max(self._rate(), 1))
        return False

    def _slow_down(self, partition: ReplicatedPartition, until: float) -> None:
        while (left := until - time.monotonic()) > 0 and not self._holders and self._still_wants(partition):
            if self._stopping.wait(min(left, ROUND_PAUSE_SECONDS)):
                return


class FetcherThread(CopyingThread):
    """Brings the replicas in one directory back into sync (limit: follower.replication.throttled.rate)."""

    does = "follow"

    def __init__(
        self,
        replica_dir: ReplicaDirectory,
        partitions: Callable[[], Iterable[ReplicatedPartition]],
        controller: ReplicaController,
        *,
        rate: Callable[[], int],
        warn: ReportLine,
    ) -> None:
        super().__init__(replica_dir, partitions, rate=rate, warn=warn)
        self._controller = controller
        self.renew: Callable[[ReplicatedPartition, str], str]

    def _is_copied_anew(self, partition: ReplicatedPartition) -> bool:
        number, leader, damaged = self._replica_dir.number, partition.leader, False
        with self._copying:
            if leader is None or not self._still_wants(partition):
                return False
            log = self._log(partition.name)
            try:
                mend_epochs([log], self._warn)
            except CorruptionError:
                damaged = True
        if log.log_end_offset < leader.log.log_start_offset:
            return False  # The follower will be emptied anyway.
        found = {} if damaged else absences({number: log, leader.number: leader.log})
        if not damaged and not (number in found and found[number].elsewhere):
            return False
        partition.lacking = {**partition.lacking, **found}
        self.renew(partition, str(self._replica_dir))
        return True

    def _wants(self, partition: ReplicatedPartition) -> bool:
        number, state = self._replica_dir.number, partition.state
        return number in state.assigned and number not in state.in_sync

    def _log(self, partition: TopicPartition) -> Log:
        return opened_again(self._replica_dir, partition)

    def _end(self, partition: ReplicatedPartition, log: Log) -> bool:
        if not self._controller.join(partition, self._replica_dir.number, log):
            return False
        leader, lacking = partition.leader, partition.lacking
        lost, here = lacking.get(leader.number) if leader else None, lacking.get(self._replica_dir.number)
        if lost and (lost.elsewhere or (here and here.present > lost.present)):
            self._controller.lead(partition, self._replica_dir.number)
        for number, one in lacking.items():
            if one.elsewhere and number in partition.state.in_sync:
                # The replica that has just caught up has the records that the lost replica lacked.
                self.renew(partition, self._controller.path_of(number))
        return True


def opened_again(replica_dir: ReplicaDirectory, partition: TopicPartition) -> Log:
    """Return a directory's log of a partition; reopen it if it went offline. Raises StorageError, OSError."""
    log = replica_dir.log(partition)
    if log is None:
        replica_dir.engine.reopen_partition(*partition)
        log = replica_dir.log(partition)
        if log is None:
            raise StorageError(f"{partition}: not there")
        log.roles.follow(log.log_end_offset)
    return log
