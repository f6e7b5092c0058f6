"""The consumers' embedded protocol in a classic group: members' subscriptions and assignments.

    subscription   int16 version · topics[] · user data · v1: owned partitions[] · v2: generation · v3: rack
    assignment     int16 version · {topic, int32 partitions[]}[] · user data

Source: kafka-coordinators.md#consumer-protocol, Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from __future__ import annotations

from topicfs.coordination.records.group_records import number_and_rest, with_number
from topicfs.storage.wire import Schema, Values, parse_fields

NEWEST_VERSION = 3

SUBSCRIPTION = Schema(
    name="ConsumerProtocolSubscription",
    versions=range(NEWEST_VERSION + 1),
    fields=parse_fields("""
        topics [string], userData bytes? =null, ownedPartitions [topic string, partitions [int32]] 1+, generationId int32 2+ =-1,
        rackId string 3+ ?3+ =null"""),
)
ASSIGNMENT = Schema(
    name="ConsumerProtocolAssignment",
    versions=range(NEWEST_VERSION + 1),
    fields=parse_fields("assignedPartitions [topic string, partitions [int32]], userData bytes? =null"),
)


def read_versioned(schema: Schema, data: bytes) -> Values:
    """Return the fields of `data`. An unknown, newer version is read as the newest known one, as Kafka's clients do."""
    version, rest = number_and_rest(data)
    return schema.read(rest, min(version, NEWEST_VERSION))


def write_versioned(schema: Schema, values: Values, version: int = NEWEST_VERSION) -> bytes:
    return with_number(version, schema.write(values, version))
