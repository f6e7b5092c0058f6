"""Records of `__consumer_offsets`: committed positions (type 1; formerly 0) and classic groups (type 2).

A key is an int16 type and its fields, a value an int16 version and its fields (kafka-coordinators.md#group-records).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from topicfs.storage.errors import CorruptBatchError, InvalidGroupError
from topicfs.storage.wire import Schema, Values, parse_fields

OFFSET_COMMIT_TYPES = (0, 1)
GROUP_TYPE = 2

OFFSET_COMMIT_KEY = Schema(
    name="OffsetCommitKey",
    versions=range(2),
    fields=parse_fields("group string, topic string, partition int32"),
)
OFFSET_COMMIT_VALUE = Schema(
    name="OffsetCommitValue",
    versions=range(5),
    flexible_since=4,
    fields=parse_fields("""
        offset int64, leaderEpoch int32 3+ =-1, metadata string, commitTimestamp int64, expireTimestamp int64 1-1 =-1,
        topicId uuid 4+ @0"""),
)
GROUP_METADATA_KEY = Schema(
    name="GroupMetadataKey", versions=range(2, 3), fields=parse_fields("group string")
)
GROUP_METADATA_VALUE = Schema(
    name="GroupMetadataValue",
    versions=range(5),
    flexible_since=4,
    fields=parse_fields("""
        protocolType string, generation int32, protocol string?, leader string?, currentStateTimestamp int64 2+ =-1,
        members [memberId string, groupInstanceId string 3+ ?3+ =null, clientId string, clientHost string,
                 rebalanceTimeout int32 1+, sessionTimeout int32, subscription bytes, assignment bytes]"""),
)

NEWEST_OFFSET_COMMIT_VERSION = 4
NEWEST_GROUP_VERSION = 3
"""The version that brokers and this module write. Version 4 can be read as well."""

MAX_KEY_STRING_BYTES = 32_767
"""The longest string that a record's key can hold."""


def fits_key(text: str) -> bool:
    """Return whether a string fits into a record's key, or into a field of a group's record."""
    return len(text.encode(errors="surrogatepass")) <= MAX_KEY_STRING_BYTES


def check_group_name(group: str) -> None:
    """Raise InvalidGroupError if a group name does not fit into a record's key."""
    if not group:
        raise InvalidGroupError("the group name is empty")
    if not fits_key(group):
        raise InvalidGroupError(f"{group[:40]}…: the group name is longer than {MAX_KEY_STRING_BYTES} bytes")
    try:
        group.encode()
    except UnicodeEncodeError:
        raise InvalidGroupError(f"{group!r}: the group name is not valid UTF-8") from None


class CommittedOffset(NamedTuple):
    """A group's committed position in a partition: the offset of the next record to read."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1
    topic_id: uuid.UUID = uuid.UUID(int=0)


def write_committed_offset(position: CommittedOffset) -> tuple[bytes, bytes]:
    """Return the record's key and value.

    The value has version 4. A position with an expiry time gets version 1, because later versions cannot store the
    time.
    """
    version = NEWEST_OFFSET_COMMIT_VERSION if position.expire_timestamp < 0 else 1
    value: dict[str, Any] = {
        "offset": position.offset,
        "leaderEpoch": position.leader_epoch,
        "metadata": position.metadata,
        "commitTimestamp": position.commit_timestamp,
        "expireTimestamp": position.expire_timestamp,
        "topicId": position.topic_id,
    }
    return (
        write_offset_key(position.group, position.topic, position.partition),
        with_number(version, OFFSET_COMMIT_VALUE.write(value, version)),
    )


def write_offset_key(group: str, topic: str, partition: int) -> bytes:
    fields = {"group": group, "topic": topic, "partition": partition}
    return with_number(1, OFFSET_COMMIT_KEY.write(fields, 1))


def read_key(key: bytes) -> tuple[int, Values] | None:
    """Return a key's record type and fields; None for a type of another protocol. Raises CorruptBatchError."""
    record_type, rest = number_and_rest(key)
    if record_type in OFFSET_COMMIT_TYPES:
        return record_type, OFFSET_COMMIT_KEY.read(rest, record_type)
    if record_type == GROUP_TYPE:
        return record_type, GROUP_METADATA_KEY.read(rest, record_type)
    return None


def read_value(record_type: int, value: bytes) -> tuple[int, Values]:
    """Return the version and the fields of a value; `record_type` is the type in its key. Raises CorruptBatchError."""
    schema = GROUP_METADATA_VALUE if record_type == GROUP_TYPE else OFFSET_COMMIT_VALUE
    version, rest = version_and_rest(value, schema)
    return version, schema.read(rest, version)


def read_committed_offset(key: bytes, value: bytes) -> CommittedOffset | None:
    """Return a committed position; None if the record has another type. Raises CorruptBatchError."""
    known = read_key(key)
    if known is None or known[0] not in OFFSET_COMMIT_TYPES:
        return None
    _, fields = read_value(known[0], value)
    return CommittedOffset(
        group=known[1]["group"],
        topic=known[1]["topic"],
        partition=known[1]["partition"],
        offset=fields["offset"],
        leader_epoch=fields.get("leaderEpoch", -1),
        metadata=fields["metadata"],
        commit_timestamp=fields["commitTimestamp"],
        expire_timestamp=fields.get("expireTimestamp", -1),
        topic_id=fields.get("topicId", uuid.UUID(int=0)),
    )


def write_group(
    group: str, state: Mapping[str, Any], version: int = NEWEST_GROUP_VERSION
) -> tuple[bytes, bytes]:
    """Return the key and value of a classic group's record; `state` has the fields of GROUP_METADATA_VALUE."""
    return write_group_key(group), with_number(version, GROUP_METADATA_VALUE.write(state, version))


def write_group_key(group: str) -> bytes:
    return with_number(GROUP_TYPE, GROUP_METADATA_KEY.write({"group": group}, GROUP_TYPE))


class KeysOfGroups(dict[str, set[bytes]]):
    """The keys of groups' records, by group."""

    def take(self, key: bytes, value: bytes | None) -> None:
        """Apply a record. The group's name follows the type in `key`; a key without a name is ignored."""
        size = int.from_bytes(key[2:4], "big", signed=True)
        content = key[4 : 4 + size]
        if size < 0 or len(content) < size:
            return
        group = content.decode(errors="replace")
        if value is not None:
            self.setdefault(group, set()).add(key)
        elif group in self:
            self[group].discard(key)
            if not self[group]:
                del self[group]


def number_and_rest(data: bytes) -> tuple[int, bytes]:
    """Return the leading int16 (the type of a key, the version of a value) and the remaining bytes."""
    if len(data) < 2:
        raise CorruptBatchError(0, "the record is shorter than its type or version of two bytes")
    return struct.unpack_from(">h", data)[0], data[2:]


def version_and_rest(value: bytes, schema: Schema) -> tuple[int, bytes]:
    """Return a value's version and the remaining bytes. Raises CorruptBatchError if `schema` lacks the version."""
    version, rest = number_and_rest(value)
    if version not in schema.versions:
        raise CorruptBatchError(0, f"{schema.name} version {version} is unknown")
    return version, rest


def with_number(number: int, rest: bytes) -> bytes:
    """Return `number` as an int16, followed by `rest`."""
    return struct.pack(">h", number) + rest
