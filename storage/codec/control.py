"""Control batches: the markers that end transactions (kafka-storage.md#control-batches).

    key    int16 version 0 │ int16 type
    value  int16 version 0 │ int32 coordinator epoch        of the types abort and commit

A control batch is transactional, has one record, is never compressed and has no sequence numbers. Readers treat a
newer version like the newest version that they know.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.errors import InvalidRecordError
from topicfs.storage.model import NO_LEADER_EPOCH, Offset, ProducerId, Record, Timestamp

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """The type of a control record, by the number in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction, as its coordinator decided."""

    type: ControlType
    coordinator_epoch: int


def control_type(key: bytes | None) -> ControlType:
    """Return the type in a control record's key; UNKNOWN for newer types. Raises InvalidRecordError."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError(f"a control record's key takes {_KEY.size} bytes, not {key!r}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"a control record's key has version {version}")
    return ControlType(number) if 0 <= number <= ControlType.KRAFT_VOTERS else ControlType.UNKNOWN


def read_marker(record: Record) -> EndTransactionMarker:
    """Return the marker in a control record of type ABORT or COMMIT. Raises InvalidRecordError for other records."""
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecordError(f"a control record of type {kind.name} does not end a transaction")
    value = record.value
    if value is None or len(value) < _VALUE.size:
        raise InvalidRecordError(f"a marker's value takes {_VALUE.size} bytes, not {value!r}")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"a marker's value has version {version}")
    return EndTransactionMarker(kind, coordinator_epoch)


def encode_marker(
    marker: EndTransactionMarker,
    *,
    timestamp: Timestamp,
    producer_id: ProducerId,
    producer_epoch: int,
    base_offset: Offset = Offset(0),  # noqa: B008 -- a NewType of an int is that int
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Return a marker as a batch of 78 bytes."""
    record = Record(
        base_offset, timestamp, _KEY.pack(0, marker.type), _VALUE.pack(0, marker.coordinator_epoch)
    )
    stamp = BatchStamp(
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    return encode([record], stamp)
