"""The thread in which followers of a data directory catch up, as long as any of its replicas is out of sync.

It copies in large steps beside appends, and has the follower join with appends held up only for the last ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from threading import Event, Lock, Thread

from storage.errors import StorageError
from storage.log.log import Log
from storage.messages import Say, reason_of
from storage.model import TopicPartition
from storage.replicas.controller import ReplicaController
from storage.replicas.members.member import FIRST_PAUSE_S, LONGEST_PAUSE_S, ReplicatingDirectory
from storage.replicas.partition import ReplicatedPartition
from storage.replicas.rules.follower import fetch_once

_LOGGER = logging.getLogger(__name__)

STEP_BYTES = 1 << 20
"""Copied at a time."""
NEARLY_BYTES = 64 << 10
"""A step that copies no more than this is the last but one: the rest is copied while appends wait."""


class FetcherThread:
    """The thread that brings the replicas of one directory back into sync."""

    def __init__(
        self,
        member: ReplicatingDirectory,
        partitions: Callable[[], Iterable[ReplicatedPartition]],
        controller: ReplicaController,
        *,
        rate: int,
        warn: Say,
    ) -> None:
        """Make the thread; `rate`: bytes a second that it may copy (follower.replication.throttled.rate)."""
        self._member = member
        self._partitions = partitions
        self._controller = controller
        self._rate = rate
        self._warn = warn
        self._stopping = Event()
        self._wanted = Event()
        self._thread: Thread | None = None
        self._beginning = Lock()
        self._pauses: dict[TopicPartition, tuple[float, float]] = {}
        """Partitions that failed: the time of the next attempt, and the pause before it."""
        self._told: dict[TopicPartition, str] = {}

    def want(self) -> None:
        """Look for what is out of sync, in a thread that begins now or goes on."""
        self._wanted.set()
        with self._beginning:
            if not self._stopping.is_set() and (self._thread is None or not self._thread.is_alive()):
                self._thread = Thread(target=self._run, name=f"follow-{self._member.number}", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread, after the step that it is at (blocking)."""
        self._stopping.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.clear()
            behind = self._behind()
            if not behind or not self._member.serves:
                return
            for partition in behind:
                if not self._stopping.is_set() and self._member.serves:
                    self._catch_up(partition)
            self._wanted.wait(0.05)

    def _behind(self) -> list[ReplicatedPartition]:
        number = self._member.number
        return [
            one
            for one in self._partitions()
            if number in one.state.assigned and number not in one.state.in_sync and one.leader is not None
        ]

    def run_once(self) -> None:
        """Do what the thread would do, once (blocking); for owners without threads."""
        for partition in self._behind():
            self._catch_up(partition)

    def _catch_up(self, partition: ReplicatedPartition) -> None:
        due, pause = self._pauses.get(partition.name, (0.0, FIRST_PAUSE_S))
        if time.monotonic() < due:
            return
        try:
            log = self._log(partition.name)
            if self._copy(partition, log) and self._controller.join(partition, self._member.number, log):
                self._pauses.pop(partition.name, None)
                self._told.pop(partition.name, None)
        except (OSError, StorageError) as error:
            self._pauses[partition.name] = time.monotonic() + pause, min(2 * pause, LONGEST_PAUSE_S)
            self._report(partition.name, reason_of(error))

    def _report(self, partition: TopicPartition, reason: str) -> None:
        if self._told.get(partition) != reason:
            self._told[partition] = reason
            self._warn(f"{partition}: its replica in {self._member} does not catch up: {reason}")

    def _log(self, partition: TopicPartition) -> Log:
        """Return the follower's log; one that went offline is opened again (StorageError, OSError)."""
        log = self._member.log(partition)
        if log is None:
            self._member.engine.reopen_partition(*partition)
            log = self._member.log(partition)
            if log is None:
                raise StorageError(f"{partition}: not there")
            log.follow(log.log_end_offset)
        return log

    def _copy(self, partition: ReplicatedPartition, log: Log) -> bool:
        """Copy until little is missing; False where it was stopped."""
        if log.parts.leads:
            log.follow(log.log_end_offset)
        while not self._stopping.is_set():
            leader = partition.leader
            if leader is None:
                return False
            began = time.monotonic()
            step = fetch_once(leader.log, log, max_bytes=STEP_BYTES)
            if step.copied_bytes <= NEARLY_BYTES and not step.truncated:
                log.sync()  # Appends do not wait for most of it.
                return True
            self._slow_down(step.copied_bytes, time.monotonic() - began)
        return False

    def _slow_down(self, copied_bytes: int, took_s: float) -> None:
        self._stopping.wait(max(0.0, copied_bytes / max(self._rate, 1) - took_s))
