"""The positions of groups: commits and transactions, fetches, deletion, expiry (kafka-coordinators.md#positions).

Each change returns the records to write. The change takes effect in memory only after these records are in the log.
Therefore a reader never gets a position that a crash could undo, and a failed append changes nothing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from topicfs.coordination.groups.group import COMPLETING, DEAD, EMPTY, STABLE, Group
from topicfs.coordination.groups.rebalance import GroupLimits
from topicfs.coordination.groups.requests import Code, CommitReply, OffsetCommitRequest, RequestError, Write
from topicfs.coordination.records.group_records import (
    CommittedOffset,
    write_committed_offset,
    write_offset_key,
)
from topicfs.storage.checkpoints.identifiers import encode_id
from topicfs.storage.model import (
    LATEST_TIMESTAMP,
    NO_PRODUCER_ID,
    Offset,
    ProducerId,
    Timestamp,
    TopicPartition,
)

NO_TOPIC_ID = uuid.UUID(int=0)
NEVER = -1
VERSION_WITHOUT_GROUP = 9
"""From this version on, a commit to an unknown group fails with GROUP_ID_NOT_FOUND, not ILLEGAL_GENERATION."""

TopicIds = Callable[[TopicPartition], uuid.UUID | None]
"""Returns the id of a partition's topic: 0 if the topic has no id, None if the partition does not exist."""


class StoredOffset(NamedTuple):
    """A committed position, and the offset of the record that stores it."""

    position: CommittedOffset
    record_offset: Offset


Own = dict[TopicPartition, StoredOffset]


class OffsetStore:
    """The positions of the groups of one partition of `__consumer_offsets`."""

    def __init__(
        self, limits: GroupLimits, topic_ids: TopicIds, log: logging.Logger | logging.LoggerAdapter[Any]
    ) -> None:
        self._limits = limits
        self._topic_ids = topic_ids
        self._log = log
        self._committed: dict[str, Own] = {}
        self._pending: dict[ProducerId, dict[str, Own]] = {}

    # Queries.

    def committed(self, group: str) -> Mapping[TopicPartition, StoredOffset]:
        """Return a group's positions.

        Positions in a deleted topic are left out if a new topic has the same name.
        """
        return self._of_present_topics(self._committed.get(group, {}))

    def _of_present_topics(self, own: Own) -> Own:
        return {
            place: one
            for place, one in own.items()
            if _same_topic(one.position.topic_id, self._topic_ids(place))
        }

    def known(self) -> dict[str, dict[TopicPartition, Offset]]:
        """Return the present positions of all groups. Safe from any thread, because each copy is one atomic step."""
        found = {group: own.copy() for group, own in self._committed.copy().items()}
        return {
            group: {
                place: Offset(stored.position.offset)
                for place, stored in self._of_present_topics(own).items()
            }
            for group, own in found.items()
        }

    def groups(self) -> Collection[str]:
        """The groups that have positions, including positions in open transactions."""
        return self._committed.keys() | {group for own in self._pending.values() for group in own}

    def pending(self, group: str) -> Iterator[tuple[ProducerId, TopicPartition, StoredOffset]]:
        """Yield a group's positions in open transactions, each with the id of its producer."""
        for producer_id, groups in self._pending.items():
            for partition, stored in groups.get(group, {}).items():
                yield producer_id, partition, stored

    def fetch(self, group: str, partition: TopicPartition, *, require_stable: bool) -> StoredOffset | None:
        """Return a group's position. None if the group has no position in the partition's present topic.

        If `require_stable` is set and an open transaction may still change the position, raises RequestError
        (UNSTABLE_OFFSET_COMMIT).
        """
        if require_stable and any(partition in one.get(group, {}) for one in self._pending.values()):
            raise RequestError(Code.UNSTABLE_OFFSET_COMMIT)
        stored = self._committed.get(group, {}).get(partition)
        if stored is None or not _same_topic(stored.position.topic_id, self._topic_ids(partition)):
            return None
        return stored

    # Commits.

    def commit(
        self,
        group: Group | None,
        request: OffsetCommitRequest,
        now: Timestamp,
        reply: CommitReply,
        *,
        producer_id: ProducerId = NO_PRODUCER_ID,
    ) -> Write | None:
        """Commit positions. If `producer_id` is given, the commit is part of that producer's open transaction."""
        try:
            check_commit(group, request, transactional=producer_id != NO_PRODUCER_ID)
        except RequestError as error:
            reply(error.code)
            return None
        codes: dict[TopicPartition, Code] = {}
        positions: list[CommittedOffset] = []
        for partition, position in request.positions.items():
            topic_id = self._topic_ids(partition)
            if topic_id is None or position.topic_id not in ("", encode_id(topic_id)):
                codes[partition] = Code.UNKNOWN_TOPIC_OR_PARTITION
            elif len(position.metadata.encode("utf-16-le")) // 2 > self._limits.metadata_max_bytes:
                codes[partition] = Code.OFFSET_METADATA_TOO_LARGE
            else:
                codes[partition] = Code.NONE
                positions.append(
                    CommittedOffset(
                        group=request.group,
                        topic=partition.topic,
                        partition=partition.partition,
                        offset=position.offset,
                        leader_epoch=position.leader_epoch,
                        metadata=position.metadata,
                        commit_timestamp=now,
                        expire_timestamp=NEVER
                        if request.retention_ms is None
                        else min(now + request.retention_ms, LATEST_TIMESTAMP),
                        topic_id=topic_id if producer_id == NO_PRODUCER_ID else NO_TOPIC_ID,
                    )
                )
        if not positions:
            reply(codes)
            return None

        def written(code: Code, first: Offset) -> None:
            if code is not Code.NONE:
                reply(code)
                return
            for place, position in enumerate(positions):
                self.take(position, Offset(first + place), producer_id)
            reply(codes)

        return Write(tuple(map(write_committed_offset, positions)), written)

    def take(
        self, position: CommittedOffset, record_offset: Offset, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        """Apply a position whose record is in the log."""
        if producer_id == NO_PRODUCER_ID:
            own = self._committed.setdefault(position.group, {})
        else:
            own = self._pending.setdefault(producer_id, {}).setdefault(position.group, {})
        own[TopicPartition(position.topic, position.partition)] = StoredOffset(position, record_offset)

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> list[str]:
        """End a producer's transaction; return the groups of its positions.

        If `committed`, the positions are applied, except where a newer position exists.
        """
        groups = self._pending.pop(producer_id, {})
        if committed:
            for group, positions in groups.items():
                own = self._committed.setdefault(group, {})
                for partition, stored in positions.items():
                    present = own.get(partition)
                    if present is None or stored.record_offset > present.record_offset:
                        own[partition] = stored
        return list(groups)

    # Deletion and expiry.

    def delete(
        self, group: Group | None, partitions: Collection[TopicPartition], reply: CommitReply
    ) -> Write | None:
        """Delete positions; partitions without a position are skipped."""
        if group is None or group.state is DEAD:
            reply(Code.GROUP_ID_NOT_FOUND)
            return None
        if group.state is not EMPTY and group.protocol_type != "consumer":
            reply(Code.NON_EMPTY_GROUP)
            return None
        codes = {
            one: Code.GROUP_SUBSCRIBED_TO_TOPIC
            if group.state is not EMPTY and (group.subscribed is None or group.subscribes_to(one.topic))
            else Code.NONE
            for one in partitions
        }
        own = self._committed.get(group.name, {})
        gone = [one for one, code in codes.items() if code is Code.NONE and one in own]
        return self._tombstones([(group.name, one) for one in gone], lambda: reply(codes), reply)

    def places(self, group: str) -> list[TopicPartition]:
        """Return the partitions in which a group has a position, including positions in open transactions."""
        return sorted(
            {*self._committed.get(group, ()), *(partition for _, partition, _ in self.pending(group))}
        )

    def forget(self, group: str, partition: TopicPartition | None = None) -> None:
        """Drop a position whose tombstone is in the log. Without `partition`, drop all positions of the group."""
        for own in (self._committed, *self._pending.values()):
            if partition is None:
                own.pop(group, None)
            elif group in own:
                own[group].pop(partition, None)
                if not own[group]:
                    del own[group]
        self._pending = {pid: groups for pid, groups in self._pending.items() if groups}

    def topics_deleted(self, topics: Mapping[str, uuid.UUID]) -> list[Write]:
        """Delete the positions in deleted topics. `topics` maps the topics' names to their ids."""
        gone: dict[str, list[TopicPartition]] = {}
        for group in self.groups():
            for partition in self.places(group):
                stored = self._committed.get(group, {}).get(partition)
                known = NO_TOPIC_ID if stored is None else stored.position.topic_id
                if partition.topic in topics and _same_topic(known, topics[partition.topic]):
                    gone.setdefault(group, []).append(partition)
        writes = [self.tombstones(group, places, lambda _: None) for group, places in gone.items()]
        return [write for write in writes if write is not None]

    def without_topic_id(self, topic: str) -> dict[str, list[TopicPartition]]:
        """Return, by group, the partitions of `topic` in which the group's position has no topic id.

        Positions in open transactions are included.
        """
        found: dict[str, set[TopicPartition]] = {}
        for groups in (self._committed, *self._pending.values()):
            for group, own in groups.items():
                for place, stored in own.items():
                    if place.topic == topic and stored.position.topic_id == NO_TOPIC_ID:
                        found.setdefault(group, set()).add(place)
        return {group: sorted(places) for group, places in found.items()}

    def expired(self, group: Group, now: Timestamp) -> tuple[list[TopicPartition], bool]:
        """Return the partitions whose positions have expired, and whether these are all positions of the group."""
        own = self._committed.get(group.name, {})
        pending = {partition for _, partition, _ in self.pending(group.name)}
        if not own:
            return [], not pending
        gone = [
            partition
            for partition, stored in own.items()
            if partition not in pending
            and not group.subscribes_to(partition.topic)
            and self._is_expired(group, stored.position, now)
        ]
        return gone, len(gone) == len(own) and not pending

    def tombstones(
        self, group: str, partitions: Collection[TopicPartition], done: Callable[[Code], None]
    ) -> Write | None:
        """Delete positions, whatever state the group is in."""
        return self._tombstones([(group, one) for one in partitions], lambda: done(Code.NONE), done)

    def _is_expired(self, group: Group, position: CommittedOffset, now: Timestamp) -> bool:
        if group.protocol_type is None:
            base = position.commit_timestamp
        elif group.state is EMPTY:
            base = group.state_since if group.state_since >= 0 else position.commit_timestamp
        elif group.state is STABLE and group.protocol_type == "consumer" and group.subscribed is not None:
            base = position.commit_timestamp
        else:
            return False
        if position.expire_timestamp >= 0:
            return now >= position.expire_timestamp
        return now - base >= self._limits.retention_ms

    def _tombstones(
        self,
        places: Collection[tuple[str, TopicPartition]],
        done: Callable[[], None],
        failed: Callable[[Code], None],
    ) -> Write | None:
        if not places:
            done()
            return None

        def written(code: Code, _offset: Offset) -> None:
            if code is not Code.NONE:
                failed(code)
                return
            for group, partition in places:
                self.forget(group, partition)
            done()

        return Write(tuple((write_offset_key(group, *place), None) for group, place in places), written)


def check_commit(group: Group | None, request: OffsetCommitRequest, *, transactional: bool) -> None:
    """Raise RequestError if a group does not accept a commit (kafka-coordinators.md#positions)."""
    if group is None:
        if request.generation < 0:
            return  # A consumer that is not a member stores its positions in the group.
        raise RequestError(
            Code.GROUP_ID_NOT_FOUND if request.version >= VERSION_WITHOUT_GROUP else Code.ILLEGAL_GENERATION
        )
    if group.state is DEAD:
        raise RequestError(Code.COORDINATOR_NOT_AVAILABLE)
    if request.generation < 0 and group.state is EMPTY:
        return
    if request.generation >= 0 or request.member_id or request.instance_id is not None:
        group.check_member(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise RequestError(Code.ILLEGAL_GENERATION)
    elif not transactional and group.state is not EMPTY:
        raise RequestError(Code.UNKNOWN_MEMBER_ID)
    if not transactional and group.state is COMPLETING:
        raise RequestError(Code.REBALANCE_IN_PROGRESS)


def _same_topic(known: uuid.UUID, now: uuid.UUID | None) -> bool:
    """Return whether two topic ids may belong to the same topic.

    Records of old brokers and of transactions lack an id. A missing id therefore counts as equal to any id.
    """
    return now is None or NO_TOPIC_ID in (known, now) or known == now
