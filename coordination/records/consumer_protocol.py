"""The protocol of consumers in a classic group: the subscriptions they send, and the assignments they get back.

    subscription   int16 version · topics[] · user data · v1: owned partitions[] · v2: generation · v3: rack
    assignment     int16 version · {topic, int32 partitions[]}[] · user data

Source: kafka-coordinators.md#consumer-protocol, Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from __future__ import annotations

from topicfs.coordination.records.group_records import number_and_rest, with_number
from topicfs.storage.wire import Field, Schema, Values

NEWEST_VERSION = 3

_TOPIC_PARTITIONS = (
    Field(name="topic", kind="string"),
    Field(name="partitions", kind="array", of="int32"),
)

SUBSCRIPTION = Schema(
    name="ConsumerProtocolSubscription",
    versions=range(NEWEST_VERSION + 1),
    fields=(
        Field(name="topics", kind="array", of="string"),
        Field(name="userData", kind="bytes", nullable_since=0, default=None, has_default=True),
        Field(name="ownedPartitions", kind="array", of=_TOPIC_PARTITIONS, since=1),
        Field(name="generationId", kind="int32", since=2, default=-1, has_default=True),
        Field(name="rackId", kind="string", since=3, nullable_since=3, default=None, has_default=True),
    ),
)

ASSIGNMENT = Schema(
    name="ConsumerProtocolAssignment",
    versions=range(NEWEST_VERSION + 1),
    fields=(
        Field(name="assignedPartitions", kind="array", of=_TOPIC_PARTITIONS),
        Field(name="userData", kind="bytes", nullable_since=0, default=None, has_default=True),
    ),
)


def read_versioned(schema: Schema, data: bytes) -> Values:
    """Return the fields; a version newer than the newest known one is read as that one, as Kafka's clients do."""
    version, rest = number_and_rest(data)
    return schema.read(rest, min(version, NEWEST_VERSION))


def write_versioned(schema: Schema, values: Values, version: int = NEWEST_VERSION) -> bytes:
    """Return the bytes of a version and its fields."""
    return with_number(version, schema.write(values, version))
