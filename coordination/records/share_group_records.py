"""Records of share groups in `__consumer_offsets`. Source: kafka-coordinators.md#share-group-records.

topicfs does not write the records of members (types 10, 13 and 14), because a member here is an open file of this
process and ends with the process. A broker's records of members are deleted together with the group.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from topicfs.coordination.records.group_records import number_and_rest, version_and_rest, with_number
from topicfs.storage.wire import Schema, parse_fields

VERSION = 0


class GroupRecord(IntEnum):
    """The types of share groups' records; a key begins with its type."""

    MEMBER = 10
    EPOCH = 11
    ASSIGNMENT_EPOCH = 12
    MEMBER_TARGET = 13
    MEMBER_CURRENT = 14
    TOPICS = 15


OTHER_GROUPS = frozenset({0, 1, 2, 3, 17})
"""Record types of other kinds of groups. A share group cannot have the name of a group with such a record."""

_OF_MEMBERS = frozenset({GroupRecord.MEMBER, GroupRecord.MEMBER_TARGET, GroupRecord.MEMBER_CURRENT})

GROUP_KEY = Schema(name="ShareGroupKey", versions=range(1), fields=parse_fields("groupId string"))
MEMBER_KEY = Schema(
    name="ShareGroupMemberKey", versions=range(1), fields=parse_fields("groupId string, memberId string")
)
EPOCH_VALUE = Schema(
    name="ShareGroupMetadataValue",
    versions=range(1),
    flexible_since=0,
    fields=parse_fields("epoch int32, metadataHash int64"),
)
TOPICS_VALUE = Schema(
    name="ShareGroupStatePartitionMetadataValue",
    versions=range(1),
    flexible_since=0,
    fields=parse_fields("""
        initializingTopics [topicId uuid, topicName string, partitions [int32]],
        initializedTopics [topicId uuid, topicName string, partitions [int32]],
        deletingTopics [topicId uuid, topicName string]"""),
)


class GroupTopic(NamedTuple):
    """The partitions of a topic in which a group has a state, or is about to get one."""

    name: str
    partitions: frozenset[int]


class GroupTopics(NamedTuple):
    """The topics of a group, by topic id."""

    initializing: Mapping[uuid.UUID, GroupTopic] = {}
    initialized: Mapping[uuid.UUID, GroupTopic] = {}
    deleting: Mapping[uuid.UUID, str] = {}


class GroupRecordKey(NamedTuple):
    record: GroupRecord
    group: str
    member_id: str = ""


def write_group_key(key: GroupRecordKey) -> bytes:
    fields = {"groupId": key.group}
    if key.record in _OF_MEMBERS:
        return with_number(key.record, MEMBER_KEY.write({**fields, "memberId": key.member_id}, VERSION))
    return with_number(key.record, GROUP_KEY.write(fields, VERSION))


def read_group_key(key: bytes) -> GroupRecordKey | None:
    """Return the key's fields; None if the key belongs to another kind of group. Raises CorruptBatchError."""
    number, rest = number_and_rest(key)
    if number not in GroupRecord._value2member_map_:
        return None
    record = GroupRecord(number)
    if record in _OF_MEMBERS:
        fields = MEMBER_KEY.read(rest, VERSION)
        return GroupRecordKey(record, fields["groupId"], fields["memberId"])
    return GroupRecordKey(record, GROUP_KEY.read(rest, VERSION)["groupId"])


def write_epoch(epoch: int, metadata_hash: int) -> bytes:
    return with_number(VERSION, EPOCH_VALUE.write({"epoch": epoch, "metadataHash": metadata_hash}, VERSION))


def read_epoch(value: bytes) -> tuple[int, int]:
    """Parse `value`: return its epoch and its hash. Raises CorruptBatchError for damaged bytes and unknown versions."""
    fields = EPOCH_VALUE.read(version_and_rest(value, EPOCH_VALUE)[1], VERSION)
    return fields["epoch"], fields["metadataHash"]


def write_topics(topics: GroupTopics) -> bytes:
    """Return the encoded topics of a group, in the order of their ids."""
    fields = {
        "initializingTopics": _partition_fields(topics.initializing),
        "initializedTopics": _partition_fields(topics.initialized),
        "deletingTopics": [
            {"topicId": one, "topicName": name}
            for one, name in sorted(topics.deleting.items(), key=lambda item: item[0].bytes)
        ],
    }
    return with_number(VERSION, TOPICS_VALUE.write(fields, VERSION))


def read_topics(value: bytes) -> GroupTopics:
    """Return the topics in a record's value. Raises CorruptBatchError, including for an unknown version."""
    fields = TOPICS_VALUE.read(version_and_rest(value, TOPICS_VALUE)[1], VERSION)
    return GroupTopics(
        _topics_of(fields["initializingTopics"]),
        _topics_of(fields["initializedTopics"]),
        {one["topicId"]: one["topicName"] for one in fields["deletingTopics"]},
    )


def _partition_fields(topics: Mapping[uuid.UUID, GroupTopic]) -> list[dict[str, Any]]:
    return [
        {"topicId": one, "topicName": topic.name, "partitions": sorted(topic.partitions)}
        for one, topic in sorted(topics.items(), key=lambda item: item[0].bytes)
    ]


def _topics_of(fields: list[dict[str, Any]]) -> dict[uuid.UUID, GroupTopic]:
    return {one["topicId"]: GroupTopic(one["topicName"], frozenset(one["partitions"])) for one in fields}
