"""Copies whole replicas, because a damaged log that is compacted cannot be repaired batch by batch.

    orders-0                        the damaged replica, in sync and serving
    orders-0.<unique>-future        the copy of a completely valid leader, made in parallel to appends
    agreed on: the damaged replica is not in sync
    orders-0.<unique>-delete        the damaged replica; the copy is renamed to orders-0, all of it on disk
    agreed on: the replica is in sync again

If the damaged replica leads, a valid replica is elected first. Single batches are not copied, because one log may
have removed a tombstone while another still has the records that the tombstone deleted. Nothing is removed before the
copy is complete. So after any interruption the directory has the damaged replica, the copy, or a replica that is
filled like a new one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Lock, RLock

from topicfs.replication.replicas.controller import ReplicaController
from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectories, ReplicaDirectory
from topicfs.replication.replicas.directories.state_file import ReplicatedTopicEntry
from topicfs.replication.replicas.fetcher_thread import (
    COPY_STEP_BYTES,
    NEARLY_BYTES,
    FetcherThread,
    opened_again,
)
from topicfs.replication.replicas.moves import ReplicaMoves
from topicfs.replication.replicas.partition import FOLLOWER_FETCH_BYTES, ReplicatedPartition
from topicfs.replication.replicas.rules.follower import catch_up, steps
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.replication.replicas.served_partition import Replica
from topicfs.replication.scrub.findings import ScrubCounts, ScrubFinding
from topicfs.replication.scrub.partition import PartitionScrub, ScrubbedLog, ScrubbedPartition
from topicfs.storage.errors import StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.log.soundness import torn_segments
from topicfs.storage.model import Offset

_LOGGER = logging.getLogger(__name__)


class Renewals:
    """Copies replicas, one after another. Safe from any thread; calls block."""

    def __init__(
        self,
        replica_dirs: ReplicaDirectories,
        controller: ReplicaController,
        moves: ReplicaMoves,
        fetchers: Mapping[ReplicaId, FetcherThread],
        *,
        changes: RLock,
        rate: Callable[[], int],
    ) -> None:
        """Make the object. `changes` is held while topics change; `rate` returns the maximum bytes per second."""
        self._fetchers = fetchers
        self._replica_dirs = replica_dirs
        self._controller = controller
        self._moves = moves
        self._changes = changes
        self._rate = rate
        self._one = Lock()
        self._stopping = Event()

    def stop(self) -> None:
        self._stopping.set()

    def renew(self, partition: ReplicatedPartition, place: str) -> str:
        """Copy a damaged replica from a valid one (blocking); return the directory of the valid replica.

        Raises StorageError, OSError.
        """
        replica_dir = next((one for one in self._replica_dirs.serving if str(one) == place), None)
        if replica_dir is None:
            raise StorageError(f"{place} does not serve")
        with self._one:
            self._moves.check_none([partition])
            self._moves.renewed.add(partition.name)
            try:
                # Wait for a cleaning in progress to end: it may replace segments, which would make checks and
                # copies invalid.
                self._moves.pause_cleaning()
                source = self._sound_leader(partition, replica_dir)
                self._renew(partition, replica_dir, source)
            finally:
                self._moves.renewed.discard(partition.name)
                self._moves.pause_cleaning()
        _LOGGER.info(
            "%s: its replica in %s was copied again from %s", partition.name, replica_dir, source.number
        )
        return str(self._replica_dirs[source.number])

    def _sound_leader(self, partition: ReplicatedPartition, replica_dir: ReplicaDirectory) -> Replica:
        """Return the leader, whose log is valid. If the replica in `replica_dir` leads, elect another leader first."""
        for one in partition.replicas_in_sync:
            if one.number != replica_dir.number and self._is_sound(partition, one):
                leader = partition.leader
                if leader is not None and leader.number == replica_dir.number:
                    with self._changes:
                        self._controller.lead(partition, one.number)
                    leader = partition.leader
                if leader is not None and leader.number == one.number:
                    return leader
        raise StorageError("no other replica in sync is free of damage")

    def _is_sound(self, partition: ReplicatedPartition, replica: Replica) -> bool:
        """Return whether a log has no damaged batch. Raises OSError, CopyMovedError."""
        found: list[ScrubFinding] = []
        one = ScrubbedPartition(
            name=partition.name,
            replicas=lambda: [ScrubbedLog(str(replica.number), replica.log)],
            guard=lambda: partition.lock,
            heals=False,
        )
        if torn_segments(replica.log):
            return False
        scrub = PartitionScrub(one, ScrubCounts(), found.append)
        for base_offset in replica.log.chain.base_offsets:
            for _ in scrub.segment(base_offset):
                self._check_going_on()
        # In a log that is offline the scrub would find nothing.
        return replica.log.offline_reason is None and not any(
            one.finding.file.suffix == ".log" for one in found
        )

    def _renew(self, partition: ReplicatedPartition, replica_dir: ReplicaDirectory, source: Replica) -> None:
        entry = self._controller.entry(partition.topic)
        if entry is None or partition.gone:
            raise StorageError("its topic was deleted")
        rewrites = source.log.rewrites
        log = replica_dir.engine.open_replacement(partition.name, entry)
        try:
            self._copy(source.log, log)
            with self._changes, self._fetchers[replica_dir.number].held(), partition.lock:
                self._check_same(partition, replica_dir, source)
                catch_up(source.log, log, max_bytes=FOLLOWER_FETCH_BYTES)
                log.sync()
                if source.log.rewrites != rewrites:
                    raise StorageError(
                        "the source was compacted meanwhile: the next scrub copies the replica"
                    )
                self._replace(partition, replica_dir, entry)
        finally:
            with suppress(StorageError, OSError):
                replica_dir.engine.discard_future(partition.name)

    def _copy(self, source: Log, log: Log) -> None:
        began = time.monotonic()
        for step in steps(source, log, max_bytes=COPY_STEP_BYTES):
            self._check_going_on()
            if step.copied_bytes <= NEARLY_BYTES and not step.truncated:
                log.sync()  # Flush now, so that appends will wait only for the remaining records.
                return
            self._stopping.wait(began + step.copied_bytes / max(self._rate(), 1) - time.monotonic())
            began = time.monotonic()

    def _check_same(
        self, partition: ReplicatedPartition, replica_dir: ReplicaDirectory, source: Replica
    ) -> None:
        """Raise StorageError if the replicas have changed since `source` was found to be a valid leader."""
        self._moves.check_none([partition])
        entry = self._controller.entry(partition.topic)
        if partition.gone or entry is None or partition.number not in entry.partitions:
            raise StorageError("its topic was deleted")
        is_there = source.log.offline_reason is None
        if partition.leader != source or not is_there or replica_dir.number not in partition.state.assigned:
            raise StorageError("its replicas changed meanwhile: the next scrub copies the replica")

    def _replace(
        self, partition: ReplicatedPartition, replica_dir: ReplicaDirectory, entry: ReplicatedTopicEntry
    ) -> None:
        name = partition.name
        self._controller.leave(partition, replica_dir.number)
        replica_dir.engine.put_replacement(name, entry)
        arrived = opened_again(replica_dir, name)
        arrived.roles.follow(Offset(arrived.log_end_offset))
        self._controller.join(partition, replica_dir.number, arrived)

    def _check_going_on(self) -> None:
        if self._stopping.is_set():
            raise StorageError("the data directories are being closed: the next scrub copies the replica")
