"""A partition with replicas: the engine's `Partition` over the logs of its replicas.

    append ─► leader's log ─► every follower in sync fetches it ─► high watermark ─► readers

An append returns when every replica in sync has it, so that a reader sees it, and whichever of them leads next has it,
too. Where one fails meanwhile the others go on without it: a follower leaves the replicas in sync, a leader is replaced,
in a new epoch, and what it had not handed on yet is appended again, to the new one.

One lock guards appends and changes of roles. Readers hold none: they read the log that leads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from struct import Struct
from threading import RLock
from typing import NamedTuple, Protocol, TypeVar

from storage.codec.batch import assign_offsets, scan
from storage.codec.binary.fields import BASE_OFFSET_POSITION
from storage.config.topic import TopicConfig
from storage.directories.offline_partition import OfflinePartition
from storage.engine import Cancel, Listeners, Partition
from storage.errors import (
    CorruptionError,
    NotEnoughReplicasError,
    NotLeaderError,
    PartitionOfflineError,
    SegmentDeletedError,
    StorageError,
)
from storage.log.log import Log
from storage.model import (
    NO_LEADER_EPOCH,
    Appended,
    Fetched,
    Isolation,
    Offset,
    PartitionGlance,
    PartitionOffsets,
    PartitionStatus,
    Position,
    ReplicaStatus,
    SegmentInfo,
    Timestamp,
    TimestampOffset,
    TopicPartition,
)
from storage.replicas.rules.follower import append_fetched, catch_up, log_end, match_segments
from storage.replicas.rules.state import LogEnd, ReplicaId, ReplicaState, high_watermark
from storage.replicas.sound_reads import Asked, Doctor, read_soundly

FETCH_BYTES = 1 << 20
"""Bytes that a follower in sync fetches at a time."""

T = TypeVar("T")

_BASE_OFFSET = Struct(">q")

_FAILURES = (OSError, PartitionOfflineError, CorruptionError, NotLeaderError)
"""The errors of a log that cannot go on, as opposed to those of what was asked of it."""


class Controller(Protocol):
    """Decides about replicas, and keeps what was decided on every disk."""

    def lost(self, partition: ReplicatedPartition, replica: ReplicaId, error: Exception) -> ReplicaState:
        """Return the state without a replica that failed, on disk already; it may have another leader, or none (blocking)."""
        ...

    def replicas(self, partition: ReplicatedPartition) -> tuple[ReplicaStatus, ...]:
        """Return each assigned replica as it is now."""
        ...

    def doctor(self, partition: ReplicatedPartition) -> Doctor:
        """Return who heals its segments: for readers that fall over damage."""
        ...


class Replica(NamedTuple):
    """A replica whose log is there."""

    number: ReplicaId
    log: Log


class ReplicatedPartition:
    """Implements storage.engine.Partition."""

    def __init__(
        self,
        name: TopicPartition,
        state: ReplicaState,
        config: Callable[[], TopicConfig],
        controller: Controller,
    ) -> None:
        self.name = name
        self.state = state
        """The state of its replicas that all directories agree on. Changed by the controller, under `lock`."""
        self.lock = RLock()
        """Held by appends, and while roles change."""
        self.listeners = Listeners()
        self._config = config
        self._controller = controller
        self._leader: Replica | None = None
        self._followers: tuple[Replica, ...] = ()
        """Those in sync."""
        self._high_watermark = Offset(0)
        self._rewrites = 0
        self.gone = False
        """True once its topic is being deleted: another one of its name is another partition. Set under `lock`."""
        self._appending = False
        """True while the log that leads is appended to."""
        self._cancel: Cancel = lambda: None
        self._serving: Partition = self._offline("not led by any replica yet")

    # Roles.

    def take_roles(self, logs: Mapping[ReplicaId, Log]) -> tuple[ReplicaId, ...]:
        """Give the logs that are there the roles that `state` says, and let those in sync catch up (blocking).

        Returns the replicas that failed in it, the leader among them, and those in sync that are not there: what is appended
        from now on they do not get. The caller decides again.
        """
        with self.lock:
            state = self.state
            self._followers = ()
            leader = None if state.leader is None else logs.get(state.leader)
            if state.leader is None or leader is None:
                self._serve(None)
                return () if state.leader is None else (state.leader,)
            try:
                self._lead(leader, state)
            except (*_FAILURES, StorageError):
                return (state.leader,)
            failed = [number for number in state.in_sync if number not in logs]
            followers = []
            for number, log in logs.items():
                if log is leader:
                    continue
                try:
                    log.follow(min(self._high_watermark, log.log_end_offset))
                    if number in state.in_sync:
                        catch_up(leader, log, max_bytes=FETCH_BYTES)
                        match_segments(leader, log)
                        followers.append(Replica(number, log))
                except (*_FAILURES, SegmentDeletedError):
                    failed.append(number)
            self._followers = tuple(followers)
            self._serve(Replica(state.leader, leader))
            self._advance(leader)
            return tuple(failed)

    def show(self, replica: Replica | None) -> None:
        """Serve reads from a log as it is, without changing anything: of directories that are opened read-only."""
        with self.lock:
            self._serve(replica)

    def _lead(self, leader: Log, state: ReplicaState) -> None:
        if len(state.assigned) == 1:
            leader.lead_alone(state.leader_epoch)
        else:
            leader.lead(
                state.leader_epoch,
                max(self._high_watermark, leader.high_watermark if leader.parts.leads else Offset(0)),
            )

    def _serve(self, leader: Replica | None) -> None:
        """Serve from another log from now on."""
        before = self._leader
        self._cancel()
        self._cancel = lambda: None
        self._leader = leader
        if leader is None:
            self._serving = self._offline(self._reason())
        else:
            if before is not None and before.log is not leader.log and self._config().compacts:
                self._rewrites += (
                    before.log.rewrites + 1
                )  # What was counted over the other's bytes may be others here.
            self._serving = leader.log
            self._cancel = leader.log.listen(self._changed)
        self.listeners.notify()

    def _reason(self) -> str:
        last = ", ".join(map(str, self.state.in_sync))
        return f"no replica that was in sync is there: {last}; bring back its disk"

    def _offline(self, reason: str) -> OfflinePartition:
        return OfflinePartition(
            self.name,
            config=self._config(),
            directory=Path(str(self.name)),
            reason=reason,
            log_start_offset=self._start(),
        )

    def _start(self) -> Offset:
        leader = self._leader
        return Offset(0) if leader is None else leader.log.log_start_offset

    def join(self, number: ReplicaId, log: Log) -> bool:
        """Have a follower catch up to the end, with appends held up meanwhile (blocking); return whether it could.

        It is on disk then, for what was flushed before must be so on every disk in sync. What the follower's log or the
        leader's raises is raised.
        """
        leader = self._leader
        if leader is None:
            return False
        catch_up(leader.log, log, max_bytes=FETCH_BYTES)
        log.sync()
        match_segments(leader.log, log)
        if all(one.number != number for one in self._followers):
            self._followers = (*self._followers, Replica(number, log))
        self._advance(leader.log)
        return True

    def drop(self, numbers: Sequence[ReplicaId]) -> None:
        """Go on without followers."""
        with self.lock:
            self._followers = tuple(one for one in self._followers if one.number not in numbers)
            if self._leader is not None:
                self._advance(self._leader.log)

    @property
    def leader(self) -> Replica | None:
        return self._leader

    @property
    def in_sync_replicas(self) -> int:
        """Number of replicas in sync."""
        return len(self._followers) + (self._leader is not None)

    def ends(self) -> dict[ReplicaId, LogEnd]:
        """Return how far the logs in sync go."""
        leader = [] if self._leader is None else [self._leader]
        return {one.number: log_end(one.log) for one in (*leader, *self._followers)}

    def follow_high_watermark(self) -> None:
        """Tell the followers the high watermark: they need it for their retention, and if they lead next."""
        with self.lock:
            for follower in self._followers:
                follower.log.follow_high_watermark(self._high_watermark)

    # Appends.

    def check_in_sync(self) -> None:
        """Raise NotEnoughReplicasError where acks=all cannot be kept."""
        wanted = min(self._config().min_insync_replicas, max(len(self.state.assigned), 1))
        if self.in_sync_replicas < wanted:
            raise NotEnoughReplicasError(
                f"{self.name}: acks=all with {self.in_sync_replicas} of {len(self.state.assigned)} replicas in sync "
                f"and min.insync.replicas={wanted}"
            )

    def append(self, batches: bytearray, *, durable: bool = False, encoded_here: bool = False) -> Appended:
        with self.lock:
            appended = self._append(batches, encoded_here)
        if durable:
            self.sync()
        return appended

    def _append(self, batches: bytearray, encoded_here: bool) -> Appended:
        while True:
            leader = self._leading()
            state = leader.log.parts.state
            before, active = state.end_offset, state.chain.segments[-1]
            at, size = active.base_offset, active.size
            try:
                appended = self._append_to(leader.log, batches, encoded_here)
            except _FAILURES as error:
                self._lose(leader, error)
                _unstamp(batches)
                encoded_here = False
                continue
            now_active = leader.log.parts.state.chain.segments[-1]
            grown = now_active.size - (size if now_active.base_offset == at else 0)
            as_given = encoded_here and grown == len(batches) and leader.log.parts.rules.codec is None
            if not self._hand_on(leader, before, batches if as_given else None):
                now = self._leading().log
                if now.log_end_offset <= before:  # None of those in sync has it: it is appended again.
                    _unstamp(batches)
                    encoded_here = False
                    continue
            return appended

    def _append_to(self, log: Log, batches: bytearray, encoded_here: bool) -> Appended:
        """Append to the log that leads; listeners are told once, when the followers have it, too."""
        self._appending = True
        try:
            appended = log.append(batches, encoded_here=encoded_here)
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
        """Have the followers in sync fetch what was appended from an offset on; False where another one leads now.

        `batches`: what was appended, with the offsets and the epoch that it got, where that is known without reading it.
        """
        log, offset = leader.log, start_offset
        if batches is not None and _BASE_OFFSET.unpack_from(batches, BASE_OFFSET_POSITION)[0] == start_offset:
            segment_base_offset = log.parts.state.chain.segments[-1].base_offset
            for follower in self._followers:
                try:
                    if not follower.log.extend_as_follower(batches, segment_base_offset):
                        data, end = memoryview(batches), log.log_end_offset
                        append_fetched(follower.log, Fetched(data, Position(0), segment_base_offset, end))
                except (*_FAILURES, StorageError) as error:
                    self._lose(follower, error)
            offset = log.parts.state.end_offset
        while self._followers and offset < log.parts.state.end_offset:
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
            offset = fetched.next_offset
        if not self._advance(log):
            self.listeners.notify()
        return True

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
        return leader.advance_high_watermark(self._high_watermark)

    def _lose(self, replica: Replica, error: Exception) -> None:
        """Go on without a replica that failed. Raises the error where that leaves none, or its topic is deleted."""
        if self.gone or (replica is self._leader and not self._followers):
            raise error
        self._controller.lost(self, replica.number, error)

    def sync(self) -> None:
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
                    follower.log.follow_high_watermark(self._high_watermark)
                    follower.log.follow_start(start)
                except _FAILURES as error:
                    self._lose(follower, error)
        return start

    # Reads.

    def _ask(self, ask: Callable[[Partition], T]) -> T:
        """Ask the log that leads; where its disk fails, the next one."""
        while True:
            serving, leader = self._serving, self._leader
            try:
                return ask(serving)
            except (OSError, SegmentDeletedError) as error:
                if serving is not self._serving:
                    continue
                if isinstance(error, SegmentDeletedError) or leader is None:
                    raise
                with self.lock:
                    if self._leader is leader:
                        self._lose(leader, error)

    def read(
        self, offset: Offset, *, max_bytes: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> Fetched:
        def read() -> Fetched:
            return self._ask(lambda log: log.read(offset, max_bytes=max_bytes, isolation=isolation))

        leader, followers = self._leader, self._followers
        if leader is None or not followers:
            return read()
        asked = Asked(offset, max_bytes, isolation)
        logs = [one.log for one in followers]
        return read_soundly(read, leader.log, logs, asked, self._controller.doctor(self))

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        return self._ask(
            lambda log: log.offset_for_timestamp(timestamp, isolation=isolation, max_bytes=max_bytes)
        )

    def status(self) -> PartitionStatus:
        serving = self._serving
        return replace(serving.status(), replicas=self._controller.replicas(self))

    def segments(self) -> Sequence[SegmentInfo] | None:
        return self._ask(lambda log: log.segments())

    def segment_of(self, name: str) -> SegmentInfo | None:
        return self._ask(lambda log: log.segment_of(name))

    def open_segment_file(self, name: str) -> memoryview:
        return self._ask(lambda log: log.open_segment_file(name))

    def glance(self) -> PartitionGlance:
        missing = max(len(self.state.assigned) - self.in_sync_replicas, 0)
        return self._serving.glance()._replace(missing_replicas=missing)

    def offsets(self) -> PartitionOffsets:
        return self._serving.offsets()

    def visible_end(self, isolation: Isolation) -> Offset:
        return self._serving.visible_end(isolation)

    def end_at_hand(self, offset: Offset) -> Offset:
        return self._serving.end_at_hand(offset)

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self.listeners.add(listener)

    @property
    def topic(self) -> str:
        return self.name.topic

    @property
    def number(self) -> int:
        return self.name.partition

    @property
    def config(self) -> TopicConfig:
        return self._config()

    @property
    def directory(self) -> Path | None:
        return self._serving.directory

    @property
    def rewrites(self) -> int:
        return self._rewrites + self._serving.rewrites

    @property
    def log_start_offset(self) -> Offset:
        return self._serving.log_start_offset

    @property
    def newest_timestamp(self) -> Timestamp:
        return self._serving.newest_timestamp


def _unstamp(batches: bytearray) -> None:
    """Take back the offsets and the epoch that a leader gave: the next one gives others."""
    for batch in scan(batches):
        assign_offsets(batches, batch.position, base_offset=0, leader_epoch=NO_LEADER_EPOCH)
