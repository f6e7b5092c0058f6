"""The positions of groups: commits, also in transactions, what is fetched, deletion and expiry (kafka-coordinators.md#positions).

What is to be written is decided here first, and takes effect when it is in the log: nobody is told a position that a
crash could take back, and an append that fails changes nothing.
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
from topicfs.storage.model import NO_PRODUCER_ID, Offset, ProducerId, Timestamp, TopicPartition

NO_TOPIC_ID = uuid.UUID(int=0)
NEVER = -1
VERSION_WITHOUT_GROUP = 9
"""From this version of the request on a generation of an unknown group is told that there is no such group."""

TopicIds = Callable[[TopicPartition], uuid.UUID | None]
"""Returns the id of a partition's topic, 0 where it has none; None: there is no such partition."""


class StoredOffset(NamedTuple):
    """A position as it was committed, and where its record is."""

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

    # What there is.

    def committed(self, group: str) -> Mapping[TopicPartition, StoredOffset]:
        """Return a group's positions, those in a former topic of the same name left out."""
        return self._of_present_topics(self._committed.get(group, {}))

    def _of_present_topics(self, own: Own) -> Own:
        return {
            place: one
            for place, one in own.items()
            if _same_topic(one.position.topic_id, self._topic_ids(place))
        }

    def known(self) -> dict[str, dict[TopicPartition, Offset]]:
        """Return all positions as they are at this moment, from any thread: each copy below is made in one step."""
        found = {group: own.copy() for group, own in self._committed.copy().items()}
        return {
            group: {
                place: Offset(stored.position.offset)
                for place, stored in self._of_present_topics(own).items()
            }
            for group, own in found.items()
        }

    def groups(self) -> Collection[str]:
        """The groups with positions, those of open transactions too."""
        return self._committed.keys() | {group for own in self._pending.values() for group in own}

    def pending(self, group: str) -> Iterator[tuple[ProducerId, TopicPartition, StoredOffset]]:
        """Yield the positions of open transactions."""
        for producer_id, groups in self._pending.items():
            for partition, stored in groups.get(group, {}).items():
                yield producer_id, partition, stored

    def fetch(self, group: str, partition: TopicPartition, *, require_stable: bool) -> StoredOffset | None:
        """Return a group's position; None: it has none, or has one in a former topic of that name.

        Raises RequestError (UNSTABLE_OFFSET_COMMIT) with `require_stable` while a transaction may move it.
        """
        if require_stable and self._is_pending(group, partition):
            raise RequestError(Code.UNSTABLE_OFFSET_COMMIT)
        stored = self._committed.get(group, {}).get(partition)
        if stored is None or not _same_topic(stored.position.topic_id, self._topic_ids(partition)):
            return None
        return stored

    def _is_pending(self, group: str, partition: TopicPartition) -> bool:
        return any(partition in groups.get(group, {}) for groups in self._pending.values())

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
        """Commit positions, in the transaction of a producer if one is given."""
        try:
            check_commit(group, request, transactional=producer_id != NO_PRODUCER_ID)
        except RequestError as error:
            reply(error.code)
            return None
        codes: dict[TopicPartition, Code] = {}
        positions: list[CommittedOffset] = []
        for partition, position in request.positions.items():
            topic_id = self._topic_ids(partition)
            if topic_id is None:
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
                        else now + request.retention_ms,
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
        """Take a position that is in the log."""
        if producer_id == NO_PRODUCER_ID:
            own = self._committed.setdefault(position.group, {})
        else:
            own = self._pending.setdefault(producer_id, {}).setdefault(position.group, {})
        own[TopicPartition(position.topic, position.partition)] = StoredOffset(position, record_offset)

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> list[str]:
        """Take what a producer's transaction committed, unless a newer record says otherwise; return its groups."""
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
        """Delete positions; those that there are not are passed over."""
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
        """Return the partitions in which a group has a position, be it of an open transaction."""
        return sorted(
            {*self._committed.get(group, ()), *(partition for _, partition, _ in self.pending(group))}
        )

    def forget(self, group: str, partition: TopicPartition | None = None) -> None:
        """Take a tombstone that is in the log, or of a whole group all of them."""
        for own in (self._committed, *self._pending.values()):
            if partition is None:
                own.pop(group, None)
            elif group in own:
                own[group].pop(partition, None)
                if not own[group]:
                    del own[group]
        self._pending = {pid: groups for pid, groups in self._pending.items() if groups}

    def topics_deleted(self, topics: Mapping[str, uuid.UUID]) -> list[Write]:
        """Delete the positions in topics that were deleted, given with their ids."""
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
        """Return the positions of groups that name this topic without its id, those of open transactions too."""
        found: dict[str, set[TopicPartition]] = {}
        for groups in (self._committed, *self._pending.values()):
            for group, own in groups.items():
                for place, stored in own.items():
                    if place.topic == topic and stored.position.topic_id == NO_TOPIC_ID:
                        found.setdefault(group, set()).add(place)
        return {group: sorted(places) for group, places in found.items()}

    def expired(self, group: Group, now: Timestamp) -> tuple[list[TopicPartition], bool]:
        """Return the positions of a group that have expired, and whether it has none left then."""
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
        """Delete positions whatever the state of the group."""
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
    """Raise RequestError where a group does not take a commit (kafka-coordinators.md#positions)."""
    if group is None:
        if request.generation < 0:
            return  # A consumer that keeps its positions in a group, and is no member: it makes the group.
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
    """Return whether a position is in the topic of that id; records of old brokers, and of transactions, do not say."""
    return now is None or NO_TOPIC_ID in (known, now) or known == now
