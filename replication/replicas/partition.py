"""A partition with replicas: implements the engine's `Partition` over the logs of its replicas.

    append ─► leader's log ─► every follower in sync fetches it ─► high watermark ─► readers

An append returns when every replica in sync has the records. From then on readers see the records, and whichever
replica leads next has them. If a replica fails meanwhile, the others continue. A failed follower is no longer in sync.
A failed leader is replaced in a new epoch, and appends that it had not replicated are repeated on the new leader.

A lock guards appends and changes of roles. Readers take no lock: they read the leader's log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple, Protocol

from topicfs.replication.replicas.rules.follower import append_fetched, catch_up, match_segments
from topicfs.replication.replicas.rules.state import ReplicaId, ReplicaState, high_watermark
from topicfs.replication.replicas.served_partition import Replica, ServedPartition
from topicfs.replication.replicas.sound_reads import SegmentHealer
from topicfs.storage import errors
from topicfs.storage.codec.batch import assign_offsets, scan
from topicfs.storage.codec.binary.fields import BASE_OFFSET_POSITION
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Cancel
from topicfs.storage.log.appending.small_appends import append_in_step
from topicfs.storage.log.life import Role
from topicfs.storage.log.log import Log
from topicfs.storage.log.parts import LogParts
from topicfs.storage.log.soundness import keep_lost_start
from topicfs.storage.model import (
    NO_LEADER_EPOCH,
    Appended,
    Fetched,
    Offset,
    PartitionStatus,
    PartitionSummary,
    Position,
    ProducerId,
    ReplicaStatus,
    TopicPartition,
)
from topicfs.storage.producers.append import Origin, VerificationGuard
from topicfs.storage.producers.entry import ProducerEntry

FOLLOWER_FETCH_BYTES = 1 << 20
"""Maximum number of bytes that a follower in sync fetches in one step."""

_BASE_OFFSET = Struct(">q")

_FAILURES = (OSError, errors.PartitionOfflineError, errors.CorruptionError, errors.NotLeaderError)
"""Errors after which a log cannot continue. Other errors concern only a request."""


class _Asked(NamedTuple):
    """A caller's options for appending batches to the leader's log (`LogAppender.append`)."""

    encoded_here: bool = False
    accepted: bool = False
    origin: Origin = Origin.CLIENT
    guard: VerificationGuard | None = None


class Controller(Protocol):
    """Decides about replicas, and stores the decisions on every disk."""

    def lost(self, partition: ReplicatedPartition, replica: ReplicaId, error: Exception) -> ReplicaState:
        """Return the agreed state without a failed replica; another replica may lead in it, or none (blocking)."""

    def replicas(self, partition: ReplicatedPartition) -> tuple[ReplicaStatus, ...]:
        """Return the present status of each assigned replica."""

    def segment_healer(self, partition: ReplicatedPartition, /) -> SegmentHealer:
        """Return the healer of the partition's segments, for readers that find damage."""


class ReplicatedPartition(ServedPartition):
    """Implements storage.engine.Partition."""

    def __init__(
        self,
        name: TopicPartition,
        state: ReplicaState,
        config: Callable[[], TopicConfig],
        controller: Controller,
    ) -> None:
        super().__init__(name, config)
        self.state = state
        """The agreed state of the partition's replicas. The controller holds `lock` when it changes the state."""
        self.troubles: dict[ReplicaId, str] = {}
        self._controller = controller
        self._in_step: tuple[LogParts, ...] = ()
        """The parts of the logs in sync, the leader's log first."""
        self._high_watermark, self._served_epoch = Offset(0), NO_LEADER_EPOCH
        self.gone = False
        """True once the topic is being deleted. A new topic of the same name gets a new object. Set under `lock`."""
        self._appending = False
        self._cancel: Cancel = lambda: None

    # Roles.

    def take_roles(self, logs: Mapping[ReplicaId, Log]) -> tuple[ReplicaId, ...]:
        """Give logs the roles of `state`, and let followers in sync catch up (blocking). Return failed replicas."""
        with self.lock:
            state = self.state
            self._go_on_with(())
            leader = None if state.leader is None else logs.get(state.leader)
            if state.leader is None or leader is None:
                self._serve(None)
                return () if state.leader is None else (state.leader,)
            try:
                self._lead(leader, state)
            except (*_FAILURES, errors.StorageError):
                return (state.leader,)
            shared = leader.epochs.end_offset_for(self._served_epoch, leader.log_end_offset)
            if shared is not None and shared.end_offset < self._high_watermark:
                self.cuts = (*self.cuts, shared.end_offset)
                self._rewrites += 1
            # The high watermark may move back after an unclean election; offsets above it are not replicated.
            self._high_watermark, self._served_epoch = leader.high_watermark, state.leader_epoch
            failed = [number for number in state.in_sync if number not in logs]
            followers = []
            for number, log in logs.items():
                if log is leader:
                    continue
                try:
                    log.roles.follow(min(self._high_watermark, log.log_end_offset))
                    if number in state.in_sync:
                        catch_up(leader, log, max_bytes=FOLLOWER_FETCH_BYTES)
                        match_segments(leader, log)
                        followers.append(Replica(number, log))
                except (*_FAILURES, errors.SegmentDeletedError):
                    failed.append(number)
            self._go_on_with(tuple(followers))
            self._serve(Replica(state.leader, leader))
            self._advance(leader)
            return tuple(failed)

    def show(self, leader: Replica | None, followers: tuple[Replica, ...] = ()) -> None:
        """Let readers read directories that were opened read-only, without changing the logs."""
        with self.lock:
            self._followers = followers or self._followers
            self._serve(leader)

    def _lead(self, leader: Log, state: ReplicaState) -> None:
        if len(state.assigned) == 1:
            leader.roles.lead(state.leader_epoch, None)
        else:
            leader.roles.lead(
                state.leader_epoch,
                max(
                    self._high_watermark,
                    Offset(0) if leader.parts.life.role is Role.FOLLOWER else leader.high_watermark,
                ),
            )

    def _serve(self, leader: Replica | None) -> None:
        before, start = self.leader, self.log_start_offset
        self._cancel()
        self._cancel = lambda: None
        if before is not None and before != leader and self._config().compacts:
            # Record counts by file position may be different in the new leader's log.
            self._rewrites += before.log.rewrites + 1
        self.leader = leader
        self._go_on_with(self._followers)
        if leader is None:
            self._serving = self._offline(self._reason(), start)
        else:
            self._serving = leader.log
            self._cancel = leader.log.listen(self._changed)
        self.listeners.notify()

    def _go_on_with(self, followers: tuple[Replica, ...]) -> None:
        self._followers = followers
        self._in_step = (
            () if self.leader is None else tuple(one.log.parts for one in (self.leader, *followers))
        )

    def _reason(self) -> str:
        last = ", ".join(map(str, self.state.in_sync))
        return f"no replica that was in sync is available: {last}; bring back its disk"

    def join(self, number: ReplicaId, log: Log) -> bool:
        """Let a follower catch up and flush its log while appends wait; return False without a leader (blocking)."""
        leader = self.leader
        if leader is None:
            return False
        catch_up(leader.log, log, max_bytes=FOLLOWER_FETCH_BYTES)
        log.sync()
        match_segments(leader.log, log)
        if all(one.number != number for one in self._followers):
            self._go_on_with((*self._followers, Replica(number, log)))
        for one in self.replicas_in_sync:
            keep_lost_start(one.log, log)
        self._advance(leader.log)
        return True

    def keep(self, in_sync: Sequence[ReplicaId]) -> None:
        with self.lock:
            self._go_on_with(tuple(one for one in self._followers if one.number in in_sync))
            if self.leader is not None:
                self._advance(self.leader.log)

    @property
    def in_sync_replicas(self) -> int:
        return len(self._followers) + (self.leader is not None)

    def follow_high_watermark(self) -> None:
        """Pass the high watermark to the followers, which need it for retention and when they become leaders."""
        with self.lock:
            for follower in self._followers:
                follower.log.roles.follow_high_watermark(self._high_watermark)

    # Appends.

    def check_in_sync(self) -> None:
        self._leading()
        too_few = self._too_few()
        if too_few:
            raise errors.NotEnoughReplicasError(too_few)

    def _too_few(self) -> str:
        """Return why too few replicas are in sync, or "". A topic never requires more replicas than it has."""
        there, assigned = self.in_sync_replicas, max(len(self.state.assigned), 1)
        wanted = self._config().min_insync_replicas
        if there >= min(wanted, assigned):
            return ""
        return f"{self.name}: {there} of {assigned} replicas in sync and min.insync.replicas={wanted}"

    def append(
        self,
        batches: bytearray,
        *,
        durable: bool = False,
        encoded_here: bool = False,
        accepted: bool = False,
        origin: Origin = Origin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        with self.lock:
            in_step, appended = self._in_step, None
            if encoded_here and 1 < len(in_step) == len(self.state.assigned):
                appended = append_in_step(in_step[0], in_step[1:], batches)
            if appended is None:
                appended = self._append(batches, _Asked(encoded_here, accepted, origin, guard))
            elif in_step[0].state.replicated == appended[1] + 1:
                self._high_watermark = Offset(appended[1] + 1)
                self.listeners.notify()
            elif not self._complete(self._leading(), appended.base_offset, batches):
                _unstamp(batches)
                appended = self._append(batches, _Asked())
        # Count the records only if the setting differs from its default, which means "never flush".
        flush_messages = in_step[0].config.flush_messages
        if durable or (
            flush_messages <= appended[1] + 1
            and any(parts.unflushed_records >= flush_messages for parts in self._in_step)
        ):
            self._flush()
        if durable and (too_few := self._too_few()):
            raise errors.NotEnoughReplicasAfterAppendError(
                f"{too_few}: the records are in the log nevertheless, and become visible with enough replicas in sync"
            )
        return appended

    def _append(self, batches: bytearray, asked: _Asked) -> Appended:
        while True:
            leader = self._leading()
            state = leader.log.parts.state
            before, active = state.end_offset, state.chain.segments[-1]
            at, size = active.base_offset, active.size
            try:
                appended = self._append_to(leader.log, batches, asked)
            except _FAILURES as error:
                self._lose(leader, error)
            else:
                now_active = leader.log.parts.state.chain.segments[-1]
                grown = now_active.size - (size if now_active.base_offset == at else 0)
                as_given = (
                    asked.encoded_here and grown == len(batches) and leader.log.parts.rules.codec is None
                )
                if self._complete(leader, before, batches if as_given else None):
                    return appended
            if asked.guard is not None:
                # The guard is valid only in the old leader's log. When the client sends the batch again, the
                # coordinator is asked again.
                raise errors.NotLeaderError(f"{self.name}: has a new leader; send the batch again")
            _unstamp(batches)
            asked = asked._replace(encoded_here=False)

    def _complete(self, leader: Replica, before: Offset, batches: bytearray | None) -> bool:
        """Replicate the records that were appended at the offset `before`.

        Return False if the leader failed and no other replica in sync has the records: the caller must append them
        again.
        """
        return self._replicate(leader, before, batches) or self._leading().log.log_end_offset > before

    def _append_to(self, log: Log, batches: bytearray, asked: _Asked) -> Appended:
        """Append to the leader's log. The listeners are called once, after the followers have the records."""
        self._appending = True
        try:
            appended = log.append(
                batches,
                encoded_here=asked.encoded_here,
                accepted=asked.accepted,
                origin=asked.origin,
                guard=asked.guard,
            )
        except BaseException:
            self._appending = (
                False  # Set this first, so that changes during the following call are reported as well.
            )
            self.listeners.notify()  # Report other changes that were held back.
            raise
        self._appending = False
        return appended

    def _changed(self) -> None:
        if not self._appending:
            self.listeners.notify()

    def _leading(self) -> Replica:
        leader = self.leader
        if leader is None:
            raise errors.PartitionOfflineError(f"{self.name}: {self._reason()}")
        return leader

    def _replicate(self, leader: Replica, start_offset: Offset, batches: bytearray | None) -> bool:
        """Copy the records from `start_offset` on to the followers. Return False if the leader failed.

        `batches` are the bytes of these records, if the caller has them.
        """
        log = leader.log
        if batches is not None and _BASE_OFFSET.unpack_from(batches, BASE_OFFSET_POSITION)[0] == start_offset:
            self._append_to_followers(batches, start_offset, log)
        # Start at the lowest log end: an unexpected error may have left a follower behind.
        while self._followers and (offset := self._least_end()) < log.parts.state.end_offset:
            try:
                fetched = log.read_as_follower(offset, max_bytes=FOLLOWER_FETCH_BYTES)
            except (*_FAILURES, errors.SegmentDeletedError) as error:
                self._lose(leader, error)
                return False
            for follower in self._followers:
                try:
                    append_fetched(follower.log, fetched)
                except (*_FAILURES, errors.StorageError) as error:
                    self._lose(follower, error)
        if not self._advance(log):
            self.listeners.notify()
        return True

    def _append_to_followers(self, batches: bytearray, start_offset: Offset, leader: Log) -> None:
        """Append the leader's new bytes directly to the followers whose logs end at `start_offset`."""
        segment_base_offset = leader.parts.state.chain.segments[-1].base_offset
        for follower in self._followers:
            if follower.log.log_end_offset != start_offset:
                continue
            try:
                if not follower.log.roles.extend_as_follower(batches, segment_base_offset):
                    data, end = memoryview(batches), leader.log_end_offset
                    append_fetched(follower.log, Fetched(data, Position(0), segment_base_offset, end))
            except (*_FAILURES, errors.StorageError) as error:
                self._lose(follower, error)

    def _least_end(self) -> Offset:
        """Return the lowest log end of the followers in sync."""
        return min([one.log.parts.state.end_offset for one in self._followers])

    def _advance(self, leader: Log) -> bool:
        """Raise the high watermark if possible. Return whether the listeners were called."""
        if len(self.state.assigned) == 1:
            self._high_watermark = leader.log_end_offset
            return False
        ends = [leader.parts.state.end_offset, *[one.log.parts.state.end_offset for one in self._followers]]
        self._high_watermark = high_watermark(
            self._high_watermark,
            ends,
            min_in_sync=self._config().min_insync_replicas,
            assigned=len(self.state.assigned),
        )
        return leader.roles.advance_high_watermark(self._high_watermark)

    def _lose(self, replica: Replica, error: Exception) -> None:
        """Continue without a failed replica. Raises the error if no replica is left, or if the topic is deleted."""
        if self.gone or (replica is self.leader and not self._followers):
            raise error
        self._controller.lost(self, replica.number, error)

    def sync(self) -> None:
        self._flush()
        self.check_in_sync()  # Check after the flush, in which a disk may fail.

    def _flush(self) -> None:
        for replica in self._replicas():
            try:
                replica.log.sync()
            except _FAILURES as error:
                with self.lock:
                    self._lose(replica, error)

    def _replicas(self) -> tuple[Replica, ...]:
        with self.lock:
            return (self._leading(), *self._followers)

    @property
    def replicas_in_sync(self) -> tuple[Replica, ...]:
        """The replicas in sync, the leader first; empty while the partition is offline."""
        leader = self.leader
        return () if leader is None else (leader, *self._followers)

    def delete_records(self, before: Offset) -> Offset:
        with self.lock:
            leader = self._leading()
            start = leader.log.delete_records(before)
            for follower in self._followers:
                try:
                    follower.log.roles.follow_high_watermark(self._high_watermark)
                    follower.log.replacer.follow_start(start)
                except _FAILURES as error:
                    self._lose(follower, error)
        return start

    def begin_verification(
        self, producer_id: ProducerId, *, epoch: int, sequence: int, bumps_epoch: bool
    ) -> VerificationGuard | None:
        with self.lock:
            return self._leading().log.begin_verification(
                producer_id, epoch=epoch, sequence=sequence, bumps_epoch=bumps_epoch
            )

    # Status.

    def producers(self) -> list[ProducerEntry]:
        return self._leading().log.producers()

    def status(self) -> PartitionStatus:
        serving = self._serving
        replicas = self._controller.replicas(self)
        lacking = [one for number, one in self.lacking.items() if number in self.state.in_sync]
        missing = "; ".join(f"{one.path}: {one.cause}" for one in lacking)
        return serving.status()._replace(replicas=replicas, missing=missing or None)

    def summary(self) -> PartitionSummary:
        missing = max(len(self.state.assigned) - self.in_sync_replicas, 0)
        return self._serving.summary()._replace(missing_replicas=missing)

    def _segment_healer(self) -> SegmentHealer:
        return self._controller.segment_healer(self)


def _unstamp(batches: bytearray) -> None:
    """Reset the offsets and epochs that a failed leader assigned. The next leader assigns new ones."""
    for batch in scan(batches):
        assign_offsets(batches, batch.position, base_offset=0, leader_epoch=NO_LEADER_EPOCH)
