"""One partition of `__consumer_offsets`, and the coordinator of its groups.

The shard appends the coordinator's writes as the partition's leader. A write takes effect only after its append. If
an append fails, the shard passes the error to each write, which then undoes its change in memory. All calls come from
one thread.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from enum import Enum
from functools import partial
from typing import Any

from topicfs.coordination.groups.coordinator import GroupCoordinator, group_tombstone
from topicfs.coordination.groups.group import EMPTY, Group
from topicfs.coordination.groups.offsets import OffsetStore, TopicIds
from topicfs.coordination.groups.rebalance import GroupLimits
from topicfs.coordination.groups.requests import Code, CommitReply, OffsetCommitRequest, Write
from topicfs.coordination.groups.runtime.loader import GroupLoader
from topicfs.coordination.groups.timers import Timers
from topicfs.coordination.records.group_records import KeysOfGroups
from topicfs.coordination.records.share_group_records import GroupRecord
from topicfs.storage import errors
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.engine import Partition
from topicfs.storage.messages import reason_of
from topicfs.storage.model import (
    NO_PRODUCER_ID,
    Appended,
    Offset,
    ProducerId,
    Record,
    Timestamp,
    TopicPartition,
)
from topicfs.storage.producers.append import Origin, VerificationGuard
from topicfs.storage.producers.progress import own

_LOGGER = logging.getLogger(__name__)

MAX_APPEND_BYTES = 512 << 10
"""Approximate maximum size of one append, well below the topic's max.message.bytes."""
MAX_TOMBSTONES = 1_000

OWN = BatchStamp(base_sequence=0)
"""The stamp of the coordinator's batches: sequence 0 without a producer id (kafka-coordinators.md#group-records)."""


class ShardState(Enum):
    """Whether a shard is loading, serving, failed or closed."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    CLOSED = "Closed"


class _Named(logging.LoggerAdapter[logging.Logger]):
    """Adds to each log line the prefix that a broker uses."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        place: Any = self.extra
        return f"[GroupCoordinator topic={place['topic']} partition={place['partition']}] {msg}", kwargs


class Shard:
    """A partition of `__consumer_offsets`, with its groups, their positions and their coordinator."""

    def __init__(
        self,
        partition: Partition,
        *,
        clock: Clock,
        limits: GroupLimits,
        topic_ids: TopicIds,
        changed: Callable[[Group], None],
    ) -> None:
        self.partition = partition
        self.place = TopicPartition(partition.topic, partition.number)
        self.clock = clock
        self.state = ShardState.LOADING
        self.reason = ""
        """Why the shard is not serving; empty if it is."""
        self.cause: Exception | None = None
        """The error of the last failed append."""
        self.log = _Named(_LOGGER, {"topic": partition.topic, "partition": partition.number})
        self.timers = Timers(clock)
        self.coordinator = GroupCoordinator(
            self.timers, limits=limits, log=self.log, new_id=lambda: str(uuid.uuid4()), changed=changed
        )
        self.offsets = OffsetStore(limits, topic_ids, self.log)
        self.others = KeysOfGroups()
        """The groups that use newer protocols. Queues are excluded: see `Runner.is_other`."""

    # Loading and unloading.

    def load(self, stop: Callable[[], bool]) -> None:
        """Load the partition (blocking). If it cannot be read, the shard is marked as failed and keeps the reason."""
        begun = self.clock()
        try:
            loaded = GroupLoader(self.coordinator, self.offsets, self.others, stop).load(self.partition)
        except (errors.StorageError, OSError, ValueError, AssertionError) as error:
            self.fail(f"cannot be loaded: {reason_of(error)}")
            return
        for kind in sorted(
            loaded.unknown_types.difference(GroupRecord)
        ):  # The records of queues are read elsewhere.
            self.log.warning(
                "Unknown record type %d while loading offsets and group metadata from %s. Ignoring it. It could be a "
                "left over from an aborted upgrade.",
                kind,
                self.place,
            )
        if loaded.records:
            self.log.info(
                "Finished loading of metadata from %s in %dms. Loaded %d records which total to %d bytes.",
                self.place,
                self.clock() - begun,
                loaded.records,
                loaded.size_bytes,
            )
        self.state = ShardState.ACTIVE

    def begin(self, *, serves_clients: bool) -> None:
        """Start serving the loaded groups. Remove members whose process has ended.

        With `serves_clients`, keep Kafka clients, which run in other processes, and start their session timeouts.
        """
        if self.state is not ShardState.ACTIVE:
            return
        groups, reason = list(self.coordinator.groups), "the process of its members ended"
        self.append(self.coordinator.remove_all(groups, reason, but_clients=serves_clients))
        if serves_clients:
            self.append(self.coordinator.loaded())

    def end(self, *, serves_clients: bool) -> None:
        """Remove all members. With `serves_clients`, do not change groups that have Kafka clients."""
        groups = [
            name
            for name, group in self.coordinator.groups.items()
            if not (serves_clients and any(one.heartbeats for one in group.members.values()))
        ]
        self.append(self.coordinator.remove_all(groups, "its coordinator ends"))

    def fail(self, reason: str) -> None:
        self.unload(ShardState.FAILED)
        self.reason = reason
        self.log.error("%s: %s; its groups are not served", self.place, reason)

    def unload(self, state: ShardState = ShardState.CLOSED) -> None:
        """Stop serving."""
        self.coordinator.unload()
        self.state = state

    def check(self) -> None:
        """Raise GroupError if the shard does not serve."""
        if self.state is not ShardState.ACTIVE:
            raise errors.GroupError(f"{self.place}: {self.reason or 'its groups are not served now'}")

    def holds(self, group: str) -> bool:
        """Return whether the partition has records of a group."""
        return group in self.coordinator.groups or group in self.offsets.groups() or group in self.others

    # Writing.

    def append(
        self,
        writes: Iterable[Write | None],
        stamp: BatchStamp = OWN,
        guard: VerificationGuard | None = None,
    ) -> None:
        """Append the records of `writes` in as few batches as possible, and pass each write the result."""
        batch: list[Write] = []
        size = 0
        for write in writes:
            if write is None:
                continue
            own = sum(len(key) + len(value or b"") + 32 for key, value in write.records)
            if batch and size + own > MAX_APPEND_BYTES:
                self._append(batch, stamp, guard)
                batch, size = [], 0
            batch.append(write)
            size += own
        if batch:
            self._append(batch, stamp, guard)

    def _append(self, writes: list[Write], stamp: BatchStamp, guard: VerificationGuard | None) -> None:
        now = Timestamp(max(self.clock(), 0))
        records = [one for write in writes for one in write.records]
        batch = [Record(Offset(at), now, key, value) for at, (key, value) in enumerate(records)]
        try:
            appended = self._append_batch(encode(batch, stamp), stamp, guard)
        except (errors.StorageError, OSError) as error:
            self.cause = error
            self.log.warning("%s: append failed: %s", self.place, reason_of(error))
            code = code_of(error)
            for write in reversed(writes):
                write.written(code, Offset(-1))
            return
        offset = appended.base_offset
        for write in writes:
            write.written(Code.NONE, offset)
            offset = Offset(offset + len(write.records))

    def _append_batch(self, batch: bytearray, stamp: BatchStamp, guard: VerificationGuard | None) -> Appended:
        if not stamp.transactional:
            return self.partition.append(batch, encoded_here=True)
        return own(self.partition).append(batch, durable=True, origin=Origin.COORDINATOR, guard=guard)

    def end_transaction(
        self, producer_id: ProducerId, producer_epoch: int, marker: EndTransactionMarker
    ) -> None:
        """Append a producer's marker, and apply or drop its transaction's positions.

        Raises ProducerFencedError, InvalidTransactionStateError and other StorageError, OSError. Errors change nothing.
        """
        self.check()
        batch = encode_marker(
            marker, timestamp=self.clock(), producer_id=producer_id, producer_epoch=producer_epoch
        )
        self.partition.check_in_sync()  # With too few replicas, each attempt would append another marker.
        own(self.partition).append(batch, durable=True, origin=Origin.COORDINATOR)
        self.offsets.end_transaction(producer_id, committed=marker.type is ControlType.COMMIT)

    def fire_timers(self) -> None:
        now = self.clock()
        while (action := self.timers.take_due(now)) is not None:
            self.append([action()])

    # Requests that need groups and positions.

    def commit(
        self, request: OffsetCommitRequest, reply: CommitReply, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> Write | None:
        """Commit positions. If the commit names no member and the group is missing, create the group."""
        group = self.coordinator.find(request.group)
        write = self.offsets.commit(group, request, self.clock(), reply, producer_id=producer_id)
        if write is None or group is not None:
            return write
        return Write(write.records, partial(self._made_by_commit, request.group, write.written))

    def _made_by_commit(
        self, name: str, written: Callable[[Code, Offset], None], code: Code, offset: Offset
    ) -> None:
        if code is Code.NONE and name not in self.coordinator.groups:
            self.coordinator.new_group(name)
        written(code, offset)

    def delete_group(self, name: str) -> Code:
        """Delete an empty group: first all its positions, then its own record. Raises RequestError."""
        self.coordinator.check_deletable(name)
        codes: list[Code] = []
        for chunk in _chunks(self.offsets.places(name)):
            self.append([self.offsets.tombstones(name, chunk, codes.append)])
            if codes[-1] is not Code.NONE:
                return codes[-1]
        self.append([self._group_gone(name, codes.append)])
        return codes[-1]

    def expire(self, now: Timestamp) -> None:
        """Delete expired positions, and groups that then have neither members nor positions."""
        for group in list(self.coordinator.groups.values()):
            gone, none_left = self.offsets.expired(group, now)
            if gone:
                self.log.info("[GroupId %s] Expiring offsets of partitions: %s", group.name, _names(gone))
                for chunk in _chunks(gone):
                    self.append([self.offsets.tombstones(group.name, chunk, lambda _: None)])
            if none_left and self._may_go(group, now) and not self.offsets.committed(group.name):
                self.append([self._group_gone(group.name, lambda _: None)])

    def _may_go(self, group: Group, now: Timestamp) -> bool:
        """Return whether a group without positions may be deleted.

        A group that was created without members stays for the retention time.
        """
        if group.state is not EMPTY or group.members or group.pending:
            return False
        made = group.protocol_type is None and group.generation == 0
        return not made or now - group.state_since >= self.coordinator.limits.retention_ms

    def _group_gone(self, name: str, done: Callable[[Code], None]) -> Write:
        def written(code: Code, _offset: Offset) -> None:
            if code is Code.NONE:
                self.coordinator.deleted(name)
            done(code)

        return Write((group_tombstone(name),), written)


def code_of(error: Exception) -> Code:
    """Return the error code with which a broker answers a request after this append error."""
    if isinstance(error, errors.ProducerFencedError):
        return Code.INVALID_PRODUCER_EPOCH
    if isinstance(error, errors.InvalidTransactionStateError):
        return Code.INVALID_TXN_STATE
    if isinstance(error, errors.RecordTooLargeError):
        return Code.UNKNOWN_SERVER_ERROR
    if isinstance(error, errors.NotEnoughReplicasError | errors.UnknownTopicError):
        return Code.COORDINATOR_NOT_AVAILABLE
    return Code.NOT_COORDINATOR


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))


def _chunks(partitions: list[TopicPartition]) -> Iterator[list[TopicPartition]]:
    for at in range(0, len(partitions), MAX_TOMBSTONES):
        yield partitions[at : at + MAX_TOMBSTONES]
