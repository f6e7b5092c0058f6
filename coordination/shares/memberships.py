"""The records of share groups in `__consumer_offsets`, as in a broker (kafka-coordinators.md#share-group-records).

Only epochs and topics are stored. Members are not, because they end with this process.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import RLock

from topicfs.coordination.records.group_records import KeysOfGroups, number_and_rest
from topicfs.coordination.records.share_group_records import (
    OTHER_GROUPS,
    GroupRecord,
    GroupRecordKey,
    GroupTopic,
    GroupTopics,
    read_epoch,
    read_group_key,
    read_topics,
    write_epoch,
    write_group_key,
    write_topics,
)
from topicfs.coordination.shares.coordinator_topic import CoordinatorTopic, TopicRecord, append, replay
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.engine import Partition
from topicfs.storage.model import Offset

TOPIC = names.CONSUMER_OFFSETS


@dataclass(slots=True)
class KnownGroup:
    """A share group, as its records describe it."""

    epoch: int = 0
    metadata_hash: int = 0
    """The hash of the topics' metadata; 0 makes a broker compute it."""
    topics: GroupTopics = field(default_factory=GroupTopics)
    keys: set[GroupRecordKey] = field(default_factory=set)
    """The keys of the group's records, needed to delete the group."""


class GroupRecords:
    """The groups whose records are in one partition."""

    def __init__(self) -> None:
        self.groups: dict[str, KnownGroup] = {}
        self._others = KeysOfGroups()
        """The groups of other kinds."""

    def is_other(self, group: str) -> bool:
        return group in self._others

    def replay(self, record: TopicRecord, offset: Offset) -> None:
        """Apply a record of the log. Raises CorruptBatchError."""
        del offset
        key = read_group_key(record.key)
        if key is None:
            if number_and_rest(record.key)[0] in OTHER_GROUPS:
                self._others.take(record.key, record.value)
        elif record.value is None:
            self._delete(key)
        else:
            self._put(key, record.value)

    def _put(self, key: GroupRecordKey, value: bytes) -> None:
        known = self.groups.setdefault(key.group, KnownGroup())
        known.keys.add(key)
        if key.record is GroupRecord.EPOCH:
            known.epoch, known.metadata_hash = read_epoch(value)
        elif key.record is GroupRecord.TOPICS:
            known.topics = read_topics(value)

    def _delete(self, key: GroupRecordKey) -> None:
        known = self.groups.get(key.group)
        if known is None:
            return
        known.keys.discard(key)
        if key.record is GroupRecord.TOPICS:
            known.topics = GroupTopics()
        if not known.keys:
            del self.groups[key.group]


class _Shard(GroupRecords):
    def __init__(self, partition: Partition) -> None:
        super().__init__()
        self.partition = partition
        replay(partition, self.replay)


class Memberships:
    """The stored share groups of all partitions of `__consumer_offsets`. Safe from any thread."""

    def __init__(self, topic: CoordinatorTopic, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._shards: dict[int, _Shard] = {}
        self._lock = RLock()

    def groups(self) -> Mapping[str, KnownGroup]:
        """Return a snapshot of all stored share groups. Raises CorruptionError, PartitionOfflineError."""
        with self._lock:
            found: dict[str, KnownGroup] = {}
            for number in self._topic.numbers():
                found.update(self._shard(number).groups)
            return found

    def find(self, group: str) -> KnownGroup | None:
        """Return a stored group, if any. Raises CorruptionError, PartitionOfflineError."""
        with self._lock:
            return self._of(group).groups.get(group) if self._topic.exists else None

    def is_other(self, group: str) -> bool:
        """Return whether the log now has a group of another kind with the name. Raises the errors of `find`."""
        with self._lock:
            if not self._topic.exists:
                return False
            number = self._number_of(group)
            shard = self._shard(number)
            if group not in shard.groups:
                # Other coordinators write to this partition as well: read it again.
                shard = self._shards[number] = _Shard(shard.partition)
            return shard.is_other(group)

    def put(self, group: str, epoch: int, topics: GroupTopics | None = None) -> None:
        """Append a group's epoch and, if given, its topics. Raises PartitionOfflineError, ReadOnlyError, OSError."""
        with self._lock:
            self._topic.make()
            shard = self._of(group)
            known = shard.groups.get(group, KnownGroup())
            records = []
            if GroupRecordKey(GroupRecord.EPOCH, group) not in known.keys or epoch != known.epoch:
                value = write_epoch(epoch, known.metadata_hash)
                records.append(TopicRecord(write_group_key(GroupRecordKey(GroupRecord.EPOCH, group)), value))
            if topics is not None and topics != known.topics:
                key = write_group_key(GroupRecordKey(GroupRecord.TOPICS, group))
                records.append(TopicRecord(key, write_topics(topics)))
            self._append(shard, records)

    def delete(self, group: str) -> None:
        """Delete all records of a group, those of its members first, as a broker does. Raises the errors of `put`."""
        with self._lock:
            known = self.find(group)
            if known is not None:
                order = [
                    GroupRecord.MEMBER_CURRENT,
                    GroupRecord.MEMBER_TARGET,
                    GroupRecord.ASSIGNMENT_EPOCH,
                    GroupRecord.MEMBER,
                    GroupRecord.TOPICS,
                    GroupRecord.EPOCH,
                ]
                keys = sorted(known.keys, key=lambda key: (order.index(key.record), key.member_id))
                self._append(self._of(group), [TopicRecord(write_group_key(key), None) for key in keys])

    def _append(self, shard: _Shard, records: list[TopicRecord]) -> None:
        if not records:
            return
        first = append(shard.partition, records, self._clock())
        for at, record in enumerate(records):
            shard.replay(record, Offset(first + at))

    def _of(self, group: str) -> _Shard:
        return self._shard(self._number_of(group))

    def _number_of(self, group: str) -> int:
        return self._topic.number_of(group, lambda number: group in self._shard(number).groups)

    def _shard(self, number: int) -> _Shard:
        partition = self._topic.partition(number)
        shard = self._shards.get(number)
        if shard is None or shard.partition is not partition:
            shard = self._shards[number] = _Shard(partition)
        return shard


def with_initialized(
    topics: GroupTopics, topic_id: uuid.UUID, name: str, partitions: frozenset[int]
) -> GroupTopics:
    known = topics.initialized.get(topic_id, GroupTopic(name, frozenset()))
    initialized = {**topics.initialized, topic_id: GroupTopic(name, known.partitions | partitions)}
    initializing = dict(topics.initializing)
    left = initializing.pop(topic_id, None)
    if left is not None and left.partitions - partitions:
        initializing[topic_id] = GroupTopic(name, left.partitions - partitions)
    deleting = {one: title for one, title in topics.deleting.items() if one != topic_id}
    return GroupTopics(initializing, initialized, deleting)


def without_topics(topics: GroupTopics, gone: frozenset[uuid.UUID]) -> GroupTopics:
    return GroupTopics(
        {one: topic for one, topic in topics.initializing.items() if one not in gone},
        {one: topic for one, topic in topics.initialized.items() if one not in gone},
        {one: name for one, name in topics.deleting.items() if one not in gone},
    )
