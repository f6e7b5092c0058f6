"""Lock-free reads of a partition with replicas.

The leader's log is read. If its disk fails, another replica leads, and its log is read instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import NamedTuple, TypeVar

from topicfs.replication.replicas.rules.presence import Absence
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.replication.replicas.sound_reads import Asked, SegmentHealer, read_soundly
from topicfs.storage.checkpoints.leader_epochs import LeaderEpochs
from topicfs.storage.codec.records import FoundRecord
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.directories.offline_partition import OfflinePartition
from topicfs.storage.engine import Cancel, Listeners, Partition
from topicfs.storage.errors import CorruptionError, PartitionOfflineError, SegmentDeletedError
from topicfs.storage.log.log import Log
from topicfs.storage.log.soundness import is_compacted
from topicfs.storage.model import (
    Fetched,
    Isolation,
    Offset,
    PartitionOffsets,
    SegmentInfo,
    Timestamp,
    TimestampOffset,
    TopicPartition,
)

T = TypeVar("T")


class Replica(NamedTuple):
    number: ReplicaId
    log: Log


class ServedPartition(ABC):
    """Reads of a partition from the leader's log."""

    def __init__(self, name: TopicPartition, config: Callable[[], TopicConfig]) -> None:
        self.name = name
        self.topic, self.number = name
        self.lock = RLock()
        """Held during appends and changes of roles."""
        self.listeners = Listeners()
        self._config = config
        self.leader: Replica | None = None
        self._followers: tuple[Replica, ...] = ()
        self.lacking: Mapping[ReplicaId, Absence] = {}
        """For each incomplete replica, what it lacks."""
        self._rewrites = 0
        self.cuts: tuple[Offset, ...] = ()
        self._serving: Partition = self._offline("not led by any replica yet", Offset(0))

    @abstractmethod
    def _lose(self, replica: Replica, error: Exception) -> None:
        """Continue without a failed replica. Raises the error if no other replica is left."""

    @abstractmethod
    def _segment_healer(self) -> SegmentHealer:
        """Return the healer of damaged segments."""

    def _offline(self, reason: str, log_start_offset: Offset) -> OfflinePartition:
        return OfflinePartition(
            self.name,
            config=self._config(),
            directory=Path(str(self.name)),
            reason=reason,
            log_start_offset=log_start_offset,
        )

    def _ask(self, ask: Callable[[Partition], T]) -> T:
        """Return the answer of the leader's log. If its disk fails, return the answer of the next leader's log."""
        while True:
            serving, leader = self._serving, self.leader
            try:
                return ask(serving)
            except (OSError, SegmentDeletedError) as error:
                if serving is not self._serving:
                    continue
                if isinstance(error, SegmentDeletedError) or leader is None:
                    raise
                with self.lock:
                    if self.leader is leader:
                        self._lose(leader, error)

    def read(
        self, offset: Offset, *, max_bytes: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> Fetched:
        def read() -> Fetched:
            return self._ask(lambda log: log.read(offset, max_bytes=max_bytes, isolation=isolation))

        leader, followers = self.leader, self._followers
        if leader is None or not followers:
            return read()
        asked = Asked(offset, max_bytes, isolation)
        logs = [one.log for one in followers]
        return read_soundly(read, leader.log, logs, asked, self._segment_healer())

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        def look(log: Partition) -> TimestampOffset | None:
            return log.offset_for_timestamp(timestamp, isolation=isolation, max_bytes=max_bytes)

        found, leader = self._ask(look), self.leader
        if leader is None or leader.number not in self.lacking or is_compacted(leader.log):
            return found
        for follower in self._followers:  # A follower may have a record that the leader lost.
            with suppress(OSError, CorruptionError, SegmentDeletedError):
                other = look(follower.log)
                if other is not None and other.offset >= leader.log.log_start_offset:
                    found = other if found is None else min(found, other, key=lambda one: one.offset)
        return found

    def record_at(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> FoundRecord | TimestampOffset | None:
        if self._followers:  # `record_at` would read a single log; this call compares the replicas.
            return self.offset_for_timestamp(timestamp, isolation=isolation, max_bytes=max_bytes)
        return self._ask(lambda log: log.record_at(timestamp, isolation=isolation, max_bytes=max_bytes))

    def segments(self) -> Sequence[SegmentInfo] | None:
        return self._ask(lambda log: log.segments())

    def segment_of(self, name: str) -> SegmentInfo | None:
        return self._ask(lambda log: log.segment_of(name))

    def open_segment_file(self, name: str) -> memoryview:
        return self._ask(lambda log: log.open_segment_file(name))

    @property
    def unknown(self) -> str | None:
        return self._serving.unknown

    def find_bounds(self) -> None:
        self._serving.find_bounds()

    def offsets(self) -> PartitionOffsets:
        return self._serving.offsets()

    def visible_end(self, isolation: Isolation) -> Offset:
        return self._serving.visible_end(isolation)

    def available_end(self, offset: Offset) -> Offset:
        return self._serving.available_end(offset)

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self.listeners.add(listener)

    @property
    def config(self) -> TopicConfig:
        leader = self.leader
        return self._config() if leader is None else leader.log.parts.config

    @property
    def directory(self) -> Path | None:
        return self._serving.directory

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the leader's log. Raises PartitionOfflineError."""
        leader = self.leader
        if leader is None:
            raise PartitionOfflineError(f"{self.name}: no replica leads")
        return leader.log.epochs

    @property
    def rewrites(self) -> int:
        leader = self.leader
        return self._rewrites + (self._serving.rewrites if leader is None else leader.log.parts.rewrites)

    @property
    def log_start_offset(self) -> Offset:
        leader = self.leader
        return self._serving.log_start_offset if leader is None else leader.log.parts.state.start_offset

    @property
    def newest_timestamp(self) -> Timestamp:
        return self._serving.newest_timestamp
