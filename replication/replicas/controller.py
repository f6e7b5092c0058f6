"""The controller decides who leads and who is in sync, whenever a data directory fails or returns.

It decides by the rules in `rules/state.py`, writes each decision to all directories that are online, and then gives
the logs their roles. Its methods lock the partitions that they change, in ascending order of their names.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import permutations

from topicfs.replication.replicas.directories.agreement import Agreement
from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectories, ReplicaDirectory
from topicfs.replication.replicas.directories.state_file import ReplicatedTopicEntry
from topicfs.replication.replicas.partition import ReplicatedPartition
from topicfs.replication.replicas.rules.follower import first_lost, log_end
from topicfs.replication.replicas.rules.presence import (
    Absence,
    absences,
    held_of,
    mend_epochs,
    missing_in_all,
)
from topicfs.replication.replicas.rules.state import (
    LogEnd,
    ReplicaId,
    ReplicaState,
    begun,
    elect,
    elect_unclean,
    ended_move,
    joined,
    without_replicas,
)
from topicfs.replication.replicas.served_partition import Replica
from topicfs.replication.replicas.sound_reads import SegmentHealer
from topicfs.storage.errors import PartitionOfflineError, RecordsLostError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.log.soundness import keep_lost_start, true_start
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import Offset, ReplicaStatus, TopicPartition

_LOGGER = logging.getLogger(__name__)

_COPIED = "it is copied again from another replica"
_NOWHERE = (
    "no replica in sync is complete; restore the file, or bring back a directory that has these records"
)


class ReplicaController:
    """Decides which replicas lead and which are in sync, and stores these decisions. Safe from any thread."""

    def __init__(
        self,
        agreement: Agreement,
        replica_dirs: ReplicaDirectories,
        partitions: Callable[[], Iterable[ReplicatedPartition]],
        warn: ReportLine,
    ) -> None:
        self._agreement = agreement
        self._replica_dirs = replica_dirs
        self._partitions = partitions
        self._warn = warn
        self._counts = replica_dirs.counts
        self.segment_healer: Callable[[ReplicatedPartition], SegmentHealer]
        self.future_log: Callable[[TopicPartition, ReplicaId], Log | None] = lambda _partition, _target: None

    def logs(self, partition: TopicPartition) -> dict[ReplicaId, Log]:
        """Return a partition's available logs by assigned replica; empty if the topic was deleted."""
        found: dict[ReplicaId, Log] = {}
        entry = self.entry(partition.topic)
        if entry is None or partition.partition not in entry.partitions:
            return found
        for number in entry.partitions[partition.partition].assigned:
            replica_dir = self._replica_dirs.get(number)
            log = None if replica_dir is None else replica_dir.log(partition)
            if log is not None:
                found[number] = log
        return found

    def entry(self, topic: str) -> ReplicatedTopicEntry | None:
        """Return the agreed entry of a topic; None if it was deleted."""
        return self._agreement.content.topics.get(topic)

    def path_of(self, replica: ReplicaId) -> str:
        return self._replica_dirs.path_of(replica)

    def put_state(self, partition: ReplicatedPartition, state: ReplicaState) -> None:
        """Store a new agreed state that changes no role. The caller holds the partition's lock. Raises OSError."""
        self._agreement.put_states({partition.name: state})
        partition.state = state

    def replicas(self, partition: ReplicatedPartition) -> tuple[ReplicaStatus, ...]:
        # A replica may have been healed or deleted since it was recorded as incomplete.
        if partition.lacking:
            self.find_absences(partition)
        state, leader = partition.state, partition.leader
        logs = self.logs(partition.name)
        places, move = state.assigned, state.moving
        if move is not None:
            places = (*places, move.target)
            arriving = self.future_log(partition.name, move.target)
            if arriving is not None:
                logs[move.target] = arriving
        return tuple(
            ReplicaStatus(
                place=self._replica_dirs.path_of(number),
                leads=leader is not None and leader.number == number,
                in_sync=number in state.in_sync,
                end_offset=logs[number].log_end_offset if number in logs else None,
                log_bytes=logs[number].parts.state.log_bytes() if number in logs else None,
                reason=self._reason(partition, number, logs.get(number)),
                arriving=number not in state.assigned,
            )
            for number in places
        )

    def _reason(self, partition: ReplicatedPartition, replica: ReplicaId, log: Log | None) -> str | None:
        state, replica_dir, leader = partition.state, self._replica_dirs.get(replica), partition.leader
        if replica in state.in_sync or replica not in state.assigned:
            return None
        if replica_dir is None or not replica_dir.serves:
            return "its directory is not named" if replica_dir is None else replica_dir.failure
        lacks = partition.lacking.get(replica)
        known = partition.troubles.get(replica) or (lacks and lacks.cause)
        if known or log is None or leader is None:
            return known
        return f"{max(leader.log.log_end_offset - log.log_end_offset, 0)} records behind its leader"

    def find_absences(self, partition: ReplicatedPartition) -> Mapping[ReplicaId, Absence]:
        """Find out what each log in sync lacks. Store the result in the partition, and return it."""
        logs, in_sync = self.logs(partition.name), partition.state.in_sync
        others = {n: one for n, one in partition.lacking.items() if n not in in_sync or n not in logs}
        found: Mapping[ReplicaId, Absence] = {}
        try:
            found = absences({number: log for number, log in logs.items() if number in in_sync})
        except (
            OSError,
            StorageError,
        ) as error:  # An unreadable log is noticed when it has to lead or follow.
            self._warn(f"{partition.name}: its replicas were not compared: {reason_of(error)}")
        partition.lacking = {**others, **found}
        return found

    def check_removal(
        self, partition: ReplicatedPartition, leaving: Iterable[ReplicaId], copy: Log | None = None
    ) -> None:
        """Raise RecordsLostError if some records exist only in `leaving` replicas.

        If a leaving replica moves, `copy` is its new log, which counts as a replica that stays.
        """
        with partition.lock:
            logs, in_sync = self.logs(partition.name), partition.state.in_sync
            going = [number for number in leaving if self._replica_dirs.get(number) is not None]
            staying = [one for number, one in logs.items() if number in in_sync and number not in going]
            staying += [] if copy is None else [copy]
            if not going:
                return
            if not staying:
                raise RecordsLostError(f"{partition.name}: no replica that stays in sync is available")
            starts = [true_start(log) for log in staying]
            starts += [
                logs[number].log_start_offset for number in going if number in logs and number in in_sync
            ]
            missing = missing_in_all(staying, min(starts))
            for number in going if missing else ():
                log = logs.get(number)
                held = missing if log is None else held_of(missing, log)
                if held:
                    offsets = ", ".join(f"{start} to {stop - 1}" for start, stop in held)
                    place = self._replica_dirs.path_of(number)
                    raise RecordsLostError(
                        f"{partition.name}: only {place} {'may have' if log is None else 'has'} offsets {offsets}: keep "
                        f"its replica, or give these records up and leave the directory out: topicfs mount --without "
                        f"{shlex.quote(place)} …"
                    )

    def lost(self, partition: ReplicatedPartition, replica: ReplicaId, error: Exception) -> ReplicaState:
        """Remove a failed replica from the replicas in sync. The caller holds the partition's lock.

        Raises PartitionOfflineError if no other replica is in sync.
        """
        replica_dir = self._replica_dirs[replica]
        reason = reason_of(error)
        self._warn(f"{partition.name}: its replica in {replica_dir} is out of sync: {reason}")
        self._remove_replicas([partition], {replica})
        self._check_directory(replica_dir)
        if partition.leader is None:
            raise PartitionOfflineError(f"{partition.name}: no replica in sync is left: {reason}") from error
        return partition.state

    def directory_failed(self, replica_dir: ReplicaDirectory) -> None:
        """Remove all replicas in a failed directory from the replicas in sync (blocking)."""
        concerned = [one for one in self._partitions() if replica_dir.number in one.state.in_sync]
        with self._locked(concerned):
            try:
                self._remove_replicas(concerned, {replica_dir.number})
            except OSError:
                # No directory is left to store the change: partitions stay offline until a directory returns.
                for partition in concerned:
                    partition.show(None)

    def _check_directory(self, replica_dir: ReplicaDirectory) -> None:
        """If a directory's engine is offline, mark the directory as failed, because all its partitions are affected."""
        offline = replica_dir.offline
        if offline is not None:
            replica_dir.fail(offline)

    def begin(self, partitions: Iterable[ReplicatedPartition]) -> None:
        """Elect the leaders by the content of the logs, at a start or when a directory returns (blocking)."""
        concerned = list(partitions)
        if self._agreement.read_only:
            self._show(concerned)
            return
        with self._locked(concerned):
            for one in concerned:
                self._cut_at_holes(one)
            changes = {one.name: begun(*self._presence(one)) for one in concerned}
            self._agree_and_take_roles(concerned, changes)
            for one in concerned:
                if one.lacking and one.leader is not None:
                    self._repair_after_gaps(one)

    def _repair_after_gaps(self, partition: ReplicatedPartition) -> None:
        """Repair the state after files were lost.

        Store the recovery point of each log with gaps, and let the replica with the lowest log start lead.
        """
        logs = self.logs(partition.name)
        for number in self.find_absences(partition):
            with suppress(OSError):  # A failing disk is noticed at the next append.
                logs[number].checkpoint([logs[number]])
        first = min(partition.replicas_in_sync, key=lambda one: one.log.log_start_offset)
        if first.log.log_start_offset < partition.log_start_offset:
            self.lead(partition, first.number)

    def _cut_at_holes(self, partition: ReplicatedPartition) -> None:
        """Truncate a log in sync at a hole, if another log in sync has the records of the hole.

        The records after the hole were never flushed.
        """
        logs = self.logs(partition.name)
        in_sync = [logs[number] for number in partition.state.in_sync if number in logs]
        cuts: dict[Log, Offset] = {}
        # A log that cannot be read or truncated is noticed when it has to lead or follow.
        for log, other in permutations(in_sync, 2):
            with suppress(OSError, StorageError):
                lost = first_lost(other, log.holes)
                if lost is not None:
                    cuts[log] = min(lost, cuts.get(log, lost))
        for log, lost in cuts.items():
            with suppress(OSError, StorageError):
                log.replacer.truncate_to(lost, "another replica has records that a power loss destroyed here")
                log.holes = ()

    def _presence(self, partition: ReplicatedPartition) -> tuple[ReplicaState, dict[ReplicaId, LogEnd]]:
        """Return the state before an election, and the end of each log that may be elected.

        A log is left out if it lacks records and can be copied from another log.
        """
        state, logs = partition.state, self.logs(partition.name)
        in_sync = {number: log for number, log in logs.items() if number in state.in_sync}
        # A log whose leader epochs are damaged may lack records as well.
        with suppress(OSError, StorageError):
            mend_epochs(logs.values(), self._warn)
            # The file of log starts may have been rebuilt from the logs' batches.
            for log, other in permutations(in_sync.values(), 2):
                keep_lost_start(log, other)
        for number, one in self.find_absences(partition).items():
            self._warn(f"{one.path}: {one.cause}: {_COPIED if one.elsewhere else _NOWHERE}")
            if one.elsewhere:
                del logs[number], in_sync[number]
        first = min(in_sync, key=lambda one: in_sync[one].log_start_offset, default=None)
        if first is not None and state.leader in in_sync:
            before = in_sync[state.leader].log_start_offset
            state = state if before == in_sync[first].log_start_offset else replace(state, leader=first)
        return state, {number: log_end(log) for number, log in logs.items()}

    def _show(self, partitions: list[ReplicatedPartition]) -> None:
        for partition in partitions:
            logs = self.logs(partition.name)
            state, ends = self._presence(partition)
            ends = {number: end for number, end in ends.items() if number in state.in_sync}
            leader = elect(replace(state, leader=None), ends, prefer=state.leader).leader
            shown = {number: Replica(number, logs[number]) for number in ends}
            first = None if leader is None else shown.pop(leader)
            partition.show(first, tuple(shown.values()))

    def elect_preferred(self, partitions: Iterable[ReplicatedPartition]) -> int:
        """Let preferred replicas lead if they are in sync; return how many partitions changed leader (blocking)."""
        wanted = [
            one
            for one in partitions
            if one.leader is not None
            and one.state.assigned[0] in one.state.in_sync
            and not _preferred_leads(one)
        ]
        with self._locked(wanted):
            changes = {}
            for partition in wanted:
                state = partition.state
                preferred = state.assigned[0]
                end = self._ends(partition.name).get(preferred)  # None if its disk has failed.
                if end is not None and preferred in state.in_sync and not _preferred_leads(partition):
                    changes[partition.name] = elect(replace(state, leader=None), {preferred: end})
            self._agree_and_take_roles(wanted, changes)
        return len(changes)

    def lead(self, partition: ReplicatedPartition, replica: ReplicaId) -> None:
        with self._locked([partition]):
            state, end = partition.state, self._ends(partition.name).get(replica)
            if partition.gone:
                return
            if end is not None and replica in state.in_sync and state.leader != replica:
                changed = elect(replace(state, leader=None), {replica: end})
                self._log_change(partition, changed)
                self._agree_and_take_roles([partition], {partition.name: changed})

    def leave(self, partition: ReplicatedPartition, replica: ReplicaId) -> None:
        """Remove a follower that will be copied again. The caller holds the partition's lock. Raises OSError."""
        state = without_replicas(partition.state, {replica}, {})
        self._log_change(partition, state)
        self._agree_and_take_roles([partition], {partition.name: state}, but={replica})

    def returned(self) -> None:
        """Elect leaders for partitions that have none, after a directory has returned (blocking)."""
        self.begin([one for one in self._partitions() if one.leader is None])

    def elect_unclean(self, partition: ReplicatedPartition, replica: ReplicaId) -> None:
        """Elect a replica that was not in sync, at a user's request (blocking)."""
        with self._locked([partition]):
            state = elect_unclean(partition.state, self._ends(partition.name), replica)
            self._warn(
                f"{partition.name}: {self._replica_dirs[replica]} leads now but was not in sync: records may be lost"
            )
            self._agree_and_take_roles([partition], {partition.name: state})

    def join(self, partition: ReplicatedPartition, replica: ReplicaId, log: Log) -> bool:
        """Add a nearly caught up follower to the ISR; return whether it was added. Blocks. Raises the logs' errors."""
        with partition.lock:
            state = partition.state
            if partition.gone:
                return False
            if replica in state.in_sync or replica not in state.assigned:
                return replica in state.in_sync
            if not partition.join(replica, log):
                return False
            partition.state = joined(state, replica)
            try:
                self._replica_dirs[replica].engine.keep_log_starts()
                self._agreement.put_states({partition.name: partition.state})
            except OSError:
                partition.state = state
                partition.keep(state.in_sync)
                raise
            self.find_absences(partition)
            self._counts.isr_expands += 1
            leader = partition.leader
            _LOGGER.info(
                "%s: %s is in sync again: offset %d; in sync %s, leader %s",
                partition.name,
                self._replica_dirs[replica],
                log.log_end_offset,
                _numbers(partition.state.in_sync),
                leader and leader.number,
            )
            return True

    def moved(self, partition: ReplicatedPartition, log: Log) -> None:
        """Replace a moved replica by its copy. If the replica led, its copy leads.

        The caller holds the partition lock. Raises OSError.
        """
        state, move = ended_move(partition.state), partition.state.moving
        assert move is not None, "no replica is on its way"
        if state.leader is None:
            state = elect(state, {move.target: log_end(log)})
        self._log_change(partition, state)
        self._agree_and_take_roles([partition], {partition.name: state})
        leader = partition.leader
        if leader is not None and leader.number != move.target:
            try:
                partition.join(move.target, log)
            except (OSError, StorageError) as error:
                self.lost(partition, move.target, error)

    def _remove_replicas(self, partitions: list[ReplicatedPartition], gone: set[ReplicaId]) -> None:
        """Agree on states without the replicas in `gone`, and give the remaining replicas their roles."""
        changes = {}
        for partition in partitions:
            ends = {number: end for number, end in self._ends(partition.name).items() if number not in gone}
            known = {number: end for number, end in ends.items() if number in partition.state.in_sync}
            changed = without_replicas(partition.state, gone, known)
            if changed != partition.state:
                changes[partition.name] = changed
                if (
                    partition.leader is not None
                ):  # If no directory is left, each maintenance repeats this call: log the change only the first time.
                    self._log_change(partition, changed)
        self._agree_and_take_roles(partitions, changes, but=gone)

    def _agree_and_take_roles(
        self,
        partitions: list[ReplicatedPartition],
        changes: Mapping[TopicPartition, ReplicaState],
        but: Iterable[ReplicaId] = (),
    ) -> None:
        self._agreement.put_states(changes)
        excluded = set(but)
        for partition in partitions:
            before = partition.state
            state = changes.get(partition.name, before)
            partition.state = state
            if set(state.in_sync) < set(before.in_sync):
                self._counts.isr_shrinks += 1
            if (
                state.leader == before.leader
                and state.leader_epoch == before.leader_epoch
                and partition.leader
            ):
                partition.keep(state.in_sync)
                continue
            logs = {
                number: log for number, log in self.logs(partition.name).items() if number not in excluded
            }
            failed = partition.take_roles(logs)
            if failed:
                self._remove_replicas([partition], excluded | set(failed))

    def _ends(self, partition: TopicPartition) -> dict[ReplicaId, LogEnd]:
        return {number: log_end(log) for number, log in self.logs(partition).items()}

    def _log_change(self, partition: ReplicatedPartition, state: ReplicaState) -> None:
        before = partition.state
        if state.in_sync != before.in_sync:
            _LOGGER.info(
                "%s: in sync %s -> %s", partition.name, _numbers(before.in_sync), _numbers(state.in_sync)
            )
        if state.leader != before.leader:
            _LOGGER.info(
                "%s: leader %s -> %s, leader epoch %d -> %d",
                partition.name,
                before.leader,
                state.leader,
                before.leader_epoch,
                state.leader_epoch,
            )

    @contextmanager
    def _locked(self, partitions: Iterable[ReplicatedPartition]) -> Iterator[None]:
        with ExitStack() as stack:
            for partition in sorted(partitions, key=lambda one: one.name):
                stack.enter_context(partition.lock)
            yield


def _preferred_leads(partition: ReplicatedPartition) -> bool:
    return partition.state.leader == partition.state.assigned[0]


def _numbers(replicas: Iterable[ReplicaId]) -> str:
    return ",".join(map(str, replicas))
