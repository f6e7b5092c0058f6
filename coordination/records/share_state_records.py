"""Records of `__share_group_state`: the states of share groups (kafka-coordinators.md#share-state-records).

A snapshot contains the whole state of a group in a partition, an update the changes since the snapshot. A null
snapshot deletes the state.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from topicfs.coordination.records.group_records import number_and_rest, version_and_rest, with_number
from topicfs.storage.wire import Schema, parse_fields

NO_START = -1
"""Start offset of a group that has had no session in the partition yet. In an update, -1 leaves the start offset
unchanged.
"""
NO_COUNT = -1

VERSION = 0


class RecordType(IntEnum):
    """The record types; a key begins with its type."""

    SNAPSHOT = 0
    UPDATE = 1


STATE_KEY = Schema(
    name="ShareSnapshotKey",
    versions=range(1),
    fields=parse_fields("groupId string, topicId uuid, partition int32"),
)
"""Keys never use the flexible encoding, even if their values do."""
_BATCH = "firstOffset int64, lastOffset int64, deliveryState int8, deliveryCount int16"
_BATCH_NAMES = tuple(each.name for each in parse_fields(_BATCH))

SNAPSHOT_VALUE = Schema(
    name="ShareSnapshotValue",
    versions=range(1),
    flexible_since=0,
    fields=parse_fields(f"""
        snapshotEpoch int32, stateEpoch int32, leaderEpoch int32, startOffset int64, createTimestamp int64, writeTimestamp int64,
        stateBatches [{_BATCH}],
        deliveryCompleteCount int32 @0 =-1"""),
)
UPDATE_VALUE = Schema(
    name="ShareUpdateValue",
    versions=range(1),
    flexible_since=0,
    fields=parse_fields(f"""
        snapshotEpoch int32, leaderEpoch int32, startOffset int64,
        stateBatches [{_BATCH}],
        deliveryCompleteCount int32 @0 =-1"""),
)


class SharePartitionKey(NamedTuple):
    """Identifies the state of a group in a partition."""

    group: str
    topic_id: uuid.UUID
    partition: int


class StateBatch(NamedTuple):
    """Adjacent records in the same state.

    The order of these tuples is not Kafka's order, which compares the delivery count before the state.
    """

    first: int
    last: int
    """The last offset, inclusive."""
    state: int
    deliveries: int


class ShareState(NamedTuple):
    """The whole state of a group in a partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_timestamp: int
    write_timestamp: int
    """When the snapshot was written. A later time than `create_timestamp` shows that this snapshot replaced an old
    snapshot of the same state.
    """
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = NO_COUNT
    """Number of finished records at or after the start offset."""


class ShareUpdate(NamedTuple):
    """The changes of a group's state in a partition."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = NO_COUNT


@lru_cache(maxsize=4096)  # A queue writes the same key many times.
def write_state_key(key: SharePartitionKey, record_type: RecordType) -> bytes:
    fields = {"groupId": key.group, "topicId": key.topic_id, "partition": key.partition}
    return with_number(record_type, STATE_KEY.write(fields, VERSION))


def read_state_key(key: bytes) -> tuple[RecordType, SharePartitionKey] | None:
    """Return the type and the key's fields; None for a record of another type. Raises CorruptBatchError."""
    number, rest = number_and_rest(key)
    if number not in RecordType._value2member_map_:
        return None
    fields = STATE_KEY.read(rest, VERSION)
    return RecordType(number), SharePartitionKey(fields["groupId"], fields["topicId"], fields["partition"])


def write_snapshot(state: ShareState) -> bytes:
    return _write(SNAPSHOT_VALUE, state)


def write_update(update: ShareUpdate) -> bytes:
    return _write(UPDATE_VALUE, update)


def read_snapshot(value: bytes) -> ShareState:
    """Return the state in a snapshot. Raises CorruptBatchError, including for an unknown version."""
    return ShareState(*_read(SNAPSHOT_VALUE, value))


def read_update(value: bytes) -> ShareUpdate:
    """Return the changes in an update. Raises CorruptBatchError, including for an unknown version."""
    return ShareUpdate(*_read(UPDATE_VALUE, value))


def _write(schema: Schema, one: ShareState | ShareUpdate) -> bytes:
    """Encode `one`, a state or an update, whose fields and batches are in the order of `schema`."""
    fields = dict(zip(_names(schema), one, strict=True))
    fields["stateBatches"] = [dict(zip(_BATCH_NAMES, batch, strict=True)) for batch in one.batches]
    return with_number(VERSION, schema.write(fields, VERSION))


def _read(schema: Schema, value: bytes) -> Iterator[Any]:
    fields = schema.read(version_and_rest(value, schema)[1], VERSION)
    fields["stateBatches"] = tuple(StateBatch(*one.values()) for one in fields["stateBatches"])
    return map(fields.__getitem__, _names(schema))


def _names(schema: Schema) -> Iterator[str]:
    return (each.name for each in schema.fields)
