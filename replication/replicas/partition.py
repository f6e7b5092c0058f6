"""A partition with replicas: the engine's `Partition` over the logs of its replicas.

    append ─► leader's log ─► every follower in sync fetches it ─► high watermark ─► readers

An append returns when every replica in sync has it, so that a reader sees it, and whichever of them leads next has it,
too. Where one fails meanwhile the others go on without it: a follower leaves the replicas in sync, a leader is replaced,
in a new epoch, and what it had not handed on yet is appended again, to the new one.

One lock guards appends and changes of roles. Readers hold none: they read the log that leads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Protocol

from topicfs.replication.replicas.rules.follower import append_fetched, catch_up, log_end, match_segments
from topicfs.replication.replicas.rules.state import LogEnd, ReplicaId, ReplicaState, high_watermark
from topicfs.replication.replicas.served_partition import Replica, ServedPartition
from topicfs.replication.replicas.sound_reads import SegmentHealer
from topicfs.storage.codec.batch import assign_offsets, scan
from topicfs.storage.codec.binary.fields import BASE_OFFSET_POSITION
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Cancel
from topicfs.storage.errors import (
    CorruptionError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    PartitionOfflineError,
    SegmentDeletedError,
    StorageError,
)
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
    PartitionGlance,
    PartitionStatus,
    Position,
    ReplicaStatus,
    TopicPartition,
)
from topicfs.storage.producers.entry import ProducerEntry

FETCH_BYTES = 1 << 20
"""Bytes that a follower in sync fetches at a time."""

_BASE_OFFSET = Struct(">q")

_FAILURES = (OSError, PartitionOfflineError, CorruptionError, NotLeaderError)
"""The errors of a log that cannot go on, as opposed to those of what was asked of it."""


class Controller(Protocol):
    """Decides about replicas, and keeps what was decided on every disk."""

    def lost(self, partition: ReplicatedPartition, replica: ReplicaId, error: Exception) -> ReplicaState:
        """Return the state without a replica that failed, on disk already; it may have another leader, or none (blocking)."""

    def replicas(self, partition: ReplicatedPartition) -> tuple[ReplicaStatus, ...]:
        """Return each assigned replica as it is now."""

    def segment_healer(self, partition: ReplicatedPartition, /) -> SegmentHealer:
        """Return who heals its segments: for readers that fall over damage."""


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
        """The state of its replicas that all directories agree on. Changed by the controller, under `lock`."""
        self.troubles: dict[ReplicaId, str] = {}
        self._controller = controller
        self._in_step: tuple[LogParts, ...] = ()
        """What the log that leads and its followers in sync are made of, the leader first."""
        self._high_watermark, self._served_epoch = Offset(0), NO_LEADER_EPOCH
        self.gone = False
        """True once its topic is being deleted: another one of its name is another partition. Set under `lock`."""
        self._appending = False
        self._cancel: Cancel = lambda: None

    # Roles.

    def take_roles(self, logs: Mapping[ReplicaId, Log]) -> tuple[ReplicaId, ...]:
        """Give logs the roles that `state` says, and let those in sync catch up; return failed replicas (blocking)."""
        with self.lock:
            state = self.state
            self._go_on_with(())
            leader = None if state.leader is None else logs.get(state.leader)
            if state.leader is None or leader is None:
                self._serve(None)
                return () if state.leader is None else (state.leader,)
            try:
                self._lead(leader, state)
            except (*_FAILURES, StorageError):
                return (state.leader,)
            shared = leader.epochs.end_offset_for(self._served_epoch, leader.log_end_offset)
            if shared is not None and shared.end_offset < self._high_watermark:
                self.cuts = (*self.cuts, shared.end_offset)
                self._rewrites += 1
            # It falls where the leader was not in sync: what comes now is not replicated because others had its offsets.
            self._high_watermark, self._served_epoch = leader.high_watermark, state.leader_epoch
            failed = [number for number in state.in_sync if number not in logs]
            followers = []
            for number, log in logs.items():
                if log is leader:
                    continue
                try:
                    log.roles.follow(min(self._high_watermark, log.log_end_offset))
                    if number in state.in_sync:
                        catch_up(leader, log, max_bytes=FETCH_BYTES)
                        match_segments(leader, log)
                        followers.append(Replica(number, log))
                except (*_FAILURES, SegmentDeletedError):
                    failed.append(number)
            self._go_on_with(tuple(followers))
            self._serve(Replica(state.leader, leader))
            self._advance(leader)
            return tuple(failed)

    def show(self, leader: Replica | None, followers: tuple[Replica, ...] = ()) -> None:
        """Serve reads of directories that are opened read-only: the logs stay as they are."""
        with self.lock:
            self._followers = followers or self._followers
            self._serve(leader)

    def _lead(self, leader: Log, state: ReplicaState) -> None:
        if len(state.assigned) == 1:
            leader.roles.lead_alone(state.leader_epoch)
        else:
            leader.roles.lead(
                state.leader_epoch,
                max(
                    self._high_watermark,
                    Offset(0) if leader.parts.life.role is Role.FOLLOWER else leader.high_watermark,
                ),
            )

    def _serve(self, leader: Replica | None) -> None:
        before, start = self._leader, self.log_start_offset
        self._cancel()
        self._cancel = lambda: None
        if before is not None and before != leader and self._config().compacts:
            # What was counted over its bytes may be others in the next one.
            self._rewrites += before.log.rewrites + 1
        self._leader = leader
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
            () if self._leader is None else tuple(one.log.parts for one in (self._leader, *followers))
        )

    def _reason(self) -> str:
        last = ", ".join(map(str, self.state.in_sync))
        return f"no replica that was in sync is there: {last}; bring back its disk"

    def join(self, number: ReplicaId, log: Log) -> bool:
        """Have a follower catch up to the end, on disk, while appends wait; return whether it could (blocking)."""
        leader = self._leader
        if leader is None:
            return False
        catch_up(leader.log, log, max_bytes=FETCH_BYTES)
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
            if self._leader is not None:
                self._advance(self._leader.log)

    @property
    def in_sync_replicas(self) -> int:
        return len(self._followers) + (self._leader is not None)

    def ends(self) -> dict[ReplicaId, LogEnd]:
        leader = [] if self._leader is None else [self._leader]
        return {one.number: log_end(one.log) for one in (*leader, *self._followers)}

    def follow_high_watermark(self) -> None:
        """Tell the followers the high watermark: they need it for their retention, and if they lead next."""
        with self.lock:
            for follower in self._followers:
                follower.log.roles.follow_high_watermark(self._high_watermark)

    # Appends.

    def check_in_sync(self) -> None:
        self._leading()
        too_few = self._too_few()
        if too_few:
            raise NotEnoughReplicasError(too_few)

    def _too_few(self) -> str:
        """Return why what is on disk is not on enough disks, or ""; no topic needs more replicas than it has."""
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
    ) -> Appended:
        with self.lock:
            in_step, appended = self._in_step, None
            if encoded_here and 1 < len(in_step) == len(self.state.assigned):
                appended = append_in_step(in_step[0], in_step[1:], batches)
            if appended is None:
                appended = self._append(batches, encoded_here, accepted=accepted)
            elif in_step[0].state.replicated == appended[1] + 1:
                self._high_watermark = Offset(appended[1] + 1)
                self.listeners.notify()
            elif not self._complete(self._leading(), appended.base_offset, batches):
                _unstamp(batches)
                appended = self._append(batches, encoded_here=False)
        # Counted only where the setting is set: its default means never.
        flush_messages = in_step[0].config.flush_messages
        if durable or (flush_messages <= appended[1] + 1 and self._unflushed_records() >= flush_messages):
            self._flush()
        if durable and (too_few := self._too_few()):
            raise NotEnoughReplicasAfterAppendError(
                f"{too_few}: the records are in the log all the same, and show when enough are back"
            )
        return appended

    def _unflushed_records(self) -> int:
        return max([parts.unflushed_records for parts in self._in_step], default=0)

    def _append(self, batches: bytearray, encoded_here: bool, *, accepted: bool = False) -> Appended:
        while True:
            leader = self._leading()
            state = leader.log.parts.state
            before, active = state.end_offset, state.chain.segments[-1]
            at, size = active.base_offset, active.size
            try:
                appended = self._append_to(leader.log, batches, encoded_here, accepted)
            except _FAILURES as error:
                self._lose(leader, error)
            else:
                now_active = leader.log.parts.state.chain.segments[-1]
                grown = now_active.size - (size if now_active.base_offset == at else 0)
                as_given = encoded_here and grown == len(batches) and leader.log.parts.rules.codec is None
                if self._complete(leader, before, batches if as_given else None):
                    return appended
            _unstamp(batches)
            encoded_here = False

    def _complete(self, leader: Replica, before: Offset, batches: bytearray | None) -> bool:
        """Hand on what was appended from `before` on; False where it is appended again, for no replica in sync has it."""
        return self._hand_on(leader, before, batches) or self._leading().log.log_end_offset > before

    def _append_to(self, log: Log, batches: bytearray, encoded_here: bool, accepted: bool) -> Appended:
        """Append to the log that leads; listeners are told once, when the followers have it, too."""
        self._appending = True
        try:
            appended = log.append(batches, encoded_here=encoded_here, accepted=accepted)
        except BaseException:
            self._appending = False  # First: what comes while listeners are called is told, too.
            self.listeners.notify()  # What was held back may have been about something else.
            raise
        self._appending = False
        return appended

    def _changed(self) -> None:
        if not self._appending:
            self.listeners.notify()

    def _leading(self) -> Replica:
        leader = self._leader
        if leader is None:
            raise PartitionOfflineError(f"{self.name}: {self._reason()}")
        return leader

    def _hand_on(self, leader: Replica, start_offset: Offset, batches: bytearray | None) -> bool:
        """Have followers fetch from an offset on; `batches`: what is there, if known. False if another one leads now."""
        log = leader.log
        if batches is not None and _BASE_OFFSET.unpack_from(batches, BASE_OFFSET_POSITION)[0] == start_offset:
            self._give(batches, start_offset, log)
        # From where the last one is: an error nobody expected may have come between an earlier append and a follower.
        while self._followers and (offset := self._least_end()) < log.parts.state.end_offset:
            try:
                fetched = log.read_as_follower(offset, max_bytes=FETCH_BYTES)
            except (*_FAILURES, SegmentDeletedError) as error:
                self._lose(leader, error)
                return False
            for follower in self._followers:
                try:
                    append_fetched(follower.log, fetched)
                except (*_FAILURES, StorageError) as error:
                    self._lose(follower, error)
        if not self._advance(log):
            self.listeners.notify()
        return True

    def _give(self, batches: bytearray, start_offset: Offset, leader: Log) -> None:
        """Have the followers that end at `start_offset` append what the leader has just written there."""
        segment_base_offset = leader.parts.state.chain.segments[-1].base_offset
        for follower in self._followers:
            if follower.log.log_end_offset != start_offset:
                continue
            try:
                if not follower.log.roles.extend_as_follower(batches, segment_base_offset):
                    data, end = memoryview(batches), leader.log_end_offset
                    append_fetched(follower.log, Fetched(data, Position(0), segment_base_offset, end))
            except (*_FAILURES, StorageError) as error:
                self._lose(follower, error)

    def _least_end(self) -> Offset:
        """Return how far the follower in sync goes that goes least far."""
        return min([one.log.parts.state.end_offset for one in self._followers])

    def _advance(self, leader: Log) -> bool:
        """Move the high watermark where it may move; return whether listeners were told of it."""
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
        """Go on without a replica that failed. Raises the error where that leaves none, or its topic is deleted."""
        if self.gone or (replica is self._leader and not self._followers):
            raise error
        self._controller.lost(self, replica.number, error)

    def sync(self) -> None:
        self._flush()
        self.check_in_sync()  # Afterwards: a disk may have failed in it. Each one in sync has everything on disk now.

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
        """Those that are there, the one that leads first; none while it is offline."""
        leader = self._leader
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

    # Looking.

    def producers(self) -> list[ProducerEntry]:
        return self._leading().log.producers()

    @property
    def leader(self) -> Replica | None:
        return self._leader

    def status(self) -> PartitionStatus:
        serving = self._serving
        replicas = self._controller.replicas(self)
        lacking = [one for number, one in self.lacking.items() if number in self.state.in_sync]
        missing = "; ".join(f"{one.path}: {one.cause}" for one in lacking)
        return serving.status()._replace(replicas=replicas, missing=missing or None)

    def glance(self) -> PartitionGlance:
        missing = max(len(self.state.assigned) - self.in_sync_replicas, 0)
        return self._serving.glance()._replace(missing_replicas=missing)

    def _segment_healer(self) -> SegmentHealer:
        return self._controller.segment_healer(self)


def _unstamp(batches: bytearray) -> None:
    """Take back the offsets and the epoch that a leader gave: the next one gives others."""
    for batch in scan(batches):
        assign_offsets(batches, batch.position, base_offset=0, leader_epoch=NO_LEADER_EPOCH)
