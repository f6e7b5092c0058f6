"""Moves replicas to other data directories while their partitions are in use.

    agreed on: a replica of orders-0 moves from directory 1 to directory 3
    3/orders-0.<unique>-future      copied from the leader in parallel to appends; cleaning is paused meanwhile
    3/orders-0                      the last records copied while appends wait, all of it on disk, and renamed
    agreed on: the replica is in directory 3; if it led in directory 1, it now leads in a new epoch
    1/orders-0.<unique>-delete      the old replica

After any interruption the agreed state decides. Before the second agreement the copy does not count, and copying
continues from its end. After the second agreement the old replica does not count. The source is always the leader, so
that a replica can leave a failing disk. If the leader's log is truncated, the copy is truncated as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import RLock

from topicfs.replication.replicas.controller import ReplicaController
from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectories, ReplicaDirectory
from topicfs.replication.replicas.fetcher_thread import CopyingThread, opened_again
from topicfs.replication.replicas.partition import FOLLOWER_FETCH_BYTES, ReplicatedPartition
from topicfs.replication.replicas.rules.follower import catch_up
from topicfs.replication.replicas.rules.state import Move, ReplicaId, with_move
from topicfs.storage.errors import InvalidConfigError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)


class ReplicaMoves:
    """The moves in progress, and the threads that copy. Calls block."""

    def __init__(
        self,
        replica_dirs: ReplicaDirectories,
        partitions: Callable[[], Iterable[ReplicatedPartition]],
        controller: ReplicaController,
        changes: RLock,
        *,
        rate: Callable[[], int],
        warn: ReportLine,
    ) -> None:
        """Make the object. `changes` is held while topics change; `rate`: maximum bytes per second and directory."""
        self._replica_dirs = replica_dirs
        self._partitions = partitions
        self._controller = controller
        self._changes = changes
        self._warn = warn
        self._threads = {
            replica_dir.number: MovingThread(replica_dir, partitions, self, rate=rate, warn=warn)
            for replica_dir in replica_dirs
        }
        self.renewed: set[TopicPartition] = set()
        """Partitions with a replica that is being renewed (`replication.replicas.healing.renewal`)."""
        self._stopped: set[TopicPartition] = set()
        """Partitions whose move is being cancelled, and partitions that are being deleted."""

    def begin(self, partition: ReplicatedPartition, directory: str, source: str | None) -> None:
        """Start moving a replica from `source`. Raises InvalidConfigError, RecordsLostError, StorageError, OSError."""
        target = self._number(partition.name, directory)
        replica_dir = self._replica_dirs[target]
        if not replica_dir.serves:
            raise StorageError(f"{replica_dir}: {replica_dir.failure}")
        with self._changes, partition.lock:
            state = partition.state
            self.check_none([partition])
            if target in state.assigned:
                raise InvalidConfigError(f"{partition.name}: {replica_dir} already has a replica")
            move = Move(self._source(partition, source), target)
            if partition.leader is not None:  # The leader is the source of the copy.
                self._controller.check_removal(partition, [move.source], partition.leader.log)
            self._controller.put_state(partition, with_move(state, move))
            self._stopped.discard(partition.name)
        _LOGGER.info(
            "%s: its replica in %s moves to %s",
            partition.name,
            self._replica_dirs.path_of(move.source),
            replica_dir,
        )
        self.pause_cleaning()

    def cancel(self, partition: ReplicatedPartition) -> None:
        """Cancel a move, and remove its copy. Raises InvalidConfigError, StorageError, OSError."""
        with self._changes:
            move = partition.state.moving
            if move is None:
                raise InvalidConfigError(f"{partition.name}: no replica is being moved")
            try:
                self.discard(partition)
                with partition.lock:
                    self._controller.put_state(partition, with_move(partition.state, None))
            finally:
                self._stopped.discard(partition.name)
        _LOGGER.info(
            "%s: the move of its replica in %s was cancelled",
            partition.name,
            self._replica_dirs.path_of(move.source),
        )
        self.pause_cleaning()

    def discard(self, partition: ReplicatedPartition) -> None:
        """Stop a move and remove the copy; the caller then stores the agreed state. Raises StorageError, OSError."""
        move = partition.state.moving
        replica_dir = None if move is None else self._replica_dirs.get(move.target)
        if replica_dir is None:
            return
        self._stopped.add(partition.name)
        with self._threads[replica_dir.number].held():
            if not replica_dir.serves:
                return
            topic = replica_dir.engine.topics().get(partition.topic)
            if topic is not None and partition.number in topic.served:
                replica_dir.engine.drop_partitions(partition.topic, [partition.number])
            replica_dir.engine.discard_future(partition.name)

    def end(self, partition: ReplicatedPartition, replica_dir: ReplicaDirectory) -> bool:
        """Replace a replica by its nearly complete copy; return False if it cannot be. Raises StorageError, OSError."""
        with self._changes:
            with self._threads[replica_dir.number].held(), partition.lock:
                move, leader = partition.state.moving, partition.leader
                if move is None or move.target != replica_dir.number or leader is None:
                    return False
                entry = self._controller.entry(partition.topic)
                if entry is None or partition.number not in entry.partitions:
                    return False
                log = self.log_to_copy_to(partition.name, replica_dir)
                catch_up(leader.log, log, max_bytes=FOLLOWER_FETCH_BYTES)
                log.sync()
                self._controller.check_removal(partition, [move.source], log)
                replica_dir.engine.promote_future(partition.name, entry)
                arrived = opened_again(replica_dir, partition.name)
                arrived.roles.follow(arrived.log_end_offset)
                # The log start has not been stored under the new name yet.
                catch_up(leader.log, arrived, max_bytes=FOLLOWER_FETCH_BYTES)
                arrived.sync()
                replica_dir.engine.keep_log_starts()
                arrived.checkpoint([arrived])
                self._controller.moved(partition, arrived)
            self._remove_old(partition, move.source)
        _LOGGER.info(
            "%s: its replica has moved from %s to %s",
            partition.name,
            self._replica_dirs.path_of(move.source),
            replica_dir,
        )
        self.pause_cleaning()
        return True

    def _remove_old(self, partition: ReplicatedPartition, source: ReplicaId) -> None:
        """Remove the old replica. If its directory is away or fails now, the next open of the directory removes it."""
        replica_dir = self._replica_dirs.get(source)
        if replica_dir is None or not replica_dir.serves or partition.leader is None:
            return
        try:
            replica_dir.engine.drop_partitions(partition.topic, [partition.number])
        except (StorageError, OSError) as error:
            self._warn(
                f"{partition.name}: the old replica in {replica_dir} was not removed: {reason_of(error)}"
            )

    def pause_cleaning(self) -> None:
        """Pause the cleaning of partitions that move or are renewed, in all directories.

        The cleaning of all other partitions is resumed.
        """
        moving = [*self.renewed, *(one.name for one in self._partitions() if one.state.moving is not None)]
        for replica_dir in self._replica_dirs.serving:
            with suppress(StorageError):
                replica_dir.engine.pause_cleaning(moving)

    def wants(self, partition: ReplicatedPartition, target: ReplicaId) -> bool:
        move = partition.state.moving
        return move is not None and move.target == target and partition.name not in self._stopped

    def check_none(self, partitions: Iterable[ReplicatedPartition]) -> None:
        """Raise InvalidConfigError if a replica of one of the partitions is moving."""
        for one in partitions:
            if one.state.moving is not None:
                raise InvalidConfigError(
                    f"{one.name}: a replica is being moved to {self._replica_dirs.path_of(one.state.moving.target)}; "
                    "wait for it, or cancel the move first"
                )

    def future_log(self, partition: TopicPartition, target: ReplicaId) -> Log | None:
        """Return the target log of a copy in progress, if that log is open."""
        replica_dir = self._replica_dirs.get(target)
        if replica_dir is None or not replica_dir.serves:
            return None
        return replica_dir.log(partition) or replica_dir.engine.future_log(partition)

    def log_to_copy_to(self, partition: TopicPartition, replica_dir: ReplicaDirectory) -> Log:
        """Return a directory's copy of a partition, opened or created. Raises StorageError, OSError."""
        topic = replica_dir.engine.topics().get(partition.topic)
        if topic is not None and partition.partition in topic.served:
            # The copy was already renamed when the move was interrupted.
            return opened_again(replica_dir, partition)
        entry = self._controller.entry(partition.topic)
        if entry is None:
            raise StorageError(f"{partition}: its topic was deleted")
        return replica_dir.engine.open_future(partition, entry)

    # Threads.

    def want(self) -> None:
        for replica_dir in self._replica_dirs.serving:
            self._threads[replica_dir.number].want()

    def run_once(self) -> None:
        for replica_dir in self._replica_dirs.serving:
            self._threads[replica_dir.number].run_once()

    def stop(self) -> None:
        for one in self._threads.values():
            one.stop()

    # Lookups.

    def _number(self, name: TopicPartition, directory: str) -> ReplicaId:
        for replica_dir in self._replica_dirs:
            if directory in {str(replica_dir.path), str(replica_dir.number)}:
                return replica_dir.number
        places = ", ".join(map(str, self._replica_dirs))
        raise InvalidConfigError(f"{name}: {directory} is not one of the data directories {places}")

    def _source(self, partition: ReplicatedPartition, directory: str | None) -> ReplicaId:
        assigned = partition.state.assigned
        places = ", ".join(map(self._replica_dirs.path_of, assigned))
        if directory is None:
            if len(assigned) > 1:
                raise InvalidConfigError(
                    f"{partition.name}: has replicas in {places}; say which of them moves"
                )
            return assigned[0]
        number = self._number(partition.name, directory)
        if number not in assigned:
            raise InvalidConfigError(f"{partition.name}: has no replica in {directory}, only in {places}")
        return number


class MovingThread(CopyingThread):
    """Copies replicas that move to one directory (limit: replica.alter.log.dirs.io.max.bytes.per.second)."""

    does = "move"

    def __init__(
        self,
        replica_dir: ReplicaDirectory,
        partitions: Callable[[], Iterable[ReplicatedPartition]],
        moves: ReplicaMoves,
        *,
        rate: Callable[[], int],
        warn: ReportLine,
    ) -> None:
        super().__init__(replica_dir, partitions, rate=rate, warn=warn)
        self._moves = moves

    def _wants(self, partition: ReplicatedPartition) -> bool:
        return self._moves.wants(partition, self._replica_dir.number)

    def _log(self, partition: TopicPartition) -> Log:
        return self._moves.log_to_copy_to(partition, self._replica_dir)

    def _end(self, partition: ReplicatedPartition, log: Log) -> bool:
        del log
        return self._moves.end(partition, self._replica_dir)
