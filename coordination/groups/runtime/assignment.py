"""The subscriptions and assignments of members (kafka-coordinators.md#consumer-protocol)."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from topicfs.coordination.groups.requests import JoinedMember
from topicfs.coordination.records import assignors
from topicfs.coordination.records.assignors import Assignment
from topicfs.coordination.records.consumer_protocol import (
    ASSIGNMENT,
    SUBSCRIPTION,
    read_versioned,
    write_versioned,
)
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import TopicPartition
from topicfs.storage.wire import Field, Schema

COOPERATIVE = "cooperative-sticky"
STICKY = "sticky"

_ASSIGNORS = {
    COOPERATIVE: assignors.assign_cooperative,
    STICKY: assignors.assign_sticky,
    "range": assignors.assign_ranges,
    "roundrobin": assignors.assign_round_robin,
}

_STICKY_DATA = Schema(
    name="StickyAssignorUserData",
    versions=range(1),
    fields=(
        Field(
            name="previous",
            kind="array",
            of=(Field(name="topic", kind="string"), Field(name="partitions", kind="array", of="int32")),
        ),
        Field(name="generation", kind="int32"),
    ),
)


def subscription(
    assignor: str, topics: Collection[str], owned: Collection[TopicPartition], generation: int
) -> bytes:
    """Return a member's JoinGroup metadata.

    The metadata has the wanted `topics`, and the partitions `owned` that were assigned to the member in `generation`.
    """
    eager = assignor != COOPERATIVE
    user_data = None
    if assignor == COOPERATIVE:
        user_data = struct.pack(">i", generation)
    elif assignor == STICKY and owned:
        user_data = _STICKY_DATA.write({"previous": _by_topic(owned), "generation": generation}, 0)
    fields: dict[str, Any] = {
        "topics": sorted(topics),
        "userData": user_data,
        "ownedPartitions": [] if eager else _by_topic(owned),
        "generationId": generation,
    }
    return write_versioned(SUBSCRIPTION, fields)


def assign(
    assignor: str, members: Iterable[JoinedMember], partitions: Mapping[str, int]
) -> tuple[dict[str, bytes], frozenset[str]]:
    """Return members' encoded assignments for SyncGroup, and all topics that members want. Raises CorruptBatchError."""
    known = [_member(assignor, one) for one in members]
    assigned: Assignment = _ASSIGNORS[assignor](known, partitions)
    data = {
        member_id: write_versioned(ASSIGNMENT, {"assignedPartitions": _by_topic(own)})
        for member_id, own in assigned.items()
    }
    return data, frozenset().union(*(one.topics for one in known))


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Return the partitions of an encoded assignment; none if `data` is empty. Raises CorruptBatchError."""
    if not data:
        return frozenset()
    return frozenset(_flat(read_versioned(ASSIGNMENT, data)["assignedPartitions"]))


def read_topics(data: bytes) -> tuple[str, ...]:
    """Return the topics of an encoded subscription, ascending; empty if the subscription cannot be decoded."""
    try:
        return tuple(sorted(read_versioned(SUBSCRIPTION, data)["topics"]))
    except CorruptBatchError:
        return ()


def _member(assignor: str, joined: JoinedMember) -> assignors.SubscribedMember:
    fields = read_versioned(SUBSCRIPTION, joined.metadata)
    owned = _flat(fields.get("ownedPartitions", []))
    generation = fields.get("generationId", -1)
    if assignor == STICKY and not owned and fields["userData"]:
        previous = _STICKY_DATA.read(fields["userData"], 0)
        owned, generation = _flat(previous["previous"]), previous["generation"]
    return assignors.SubscribedMember(
        member_id=joined.member_id,
        topics=frozenset(fields["topics"]),
        instance_id=joined.instance_id,
        owned=tuple(owned),
        generation=generation,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for one in sorted(partitions):
        numbers[one.topic].append(one.partition)
    return [{"topic": topic, "partitions": own} for topic, own in numbers.items()]


def _flat(topics: Iterable[Mapping[str, Any]]) -> list[TopicPartition]:
    return [TopicPartition(one["topic"], number) for one in topics for number in one["partitions"]]
