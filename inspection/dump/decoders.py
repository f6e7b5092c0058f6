"""Prints records of coordinators' topics like kafka-dump-log's decoders: Jackson's JSON, fields in the schemas' order.

A tagged field is printed only if it differs from its default. Bytes are base64, topic ids base64url.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from topicfs.coordination.records.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from topicfs.coordination.records.group_records import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
)
from topicfs.coordination.records.transaction_records import TRANSACTION_KEY, TRANSACTION_VALUE, status_name
from topicfs.storage.errors import CorruptBatchError, InvalidRecordError
from topicfs.storage.model import Record
from topicfs.storage.wire import Field, Schema, Values

DELETED = "<DELETE>"
"""Printed for the value of a tombstone."""

_CONSUMER_PROTOCOL = "consumer"
"""The protocol type of groups whose subscriptions and assignments have Kafka's own format."""

_NUMBER = struct.Struct(">h")
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


class RecordDecoder(Enum):
    """The topic whose records to decode, by the flag of kafka-dump-log."""

    OFFSETS = "offsets-decoder"
    TRANSACTIONS = "transaction-log-decoder"


class DecodedRecord(NamedTuple):
    """The texts printed after `key:` and `payload:`; None if that part is not printed."""

    key: str
    payload: str | None


class _RecordType(NamedTuple):
    key: Schema
    value: Schema
    show: Callable[[Values], dict[str, Any]]


def decode_record(record: Record, decoder: RecordDecoder) -> DecodedRecord:
    """Return a record as text. If its content is unreadable, the key is an error text.

    Raises InvalidRecordError if the record has no key.
    """
    if record.key is None:
        raise InvalidRecordError(
            f"Failed to decode message at offset {record.offset} using the specified decoder "
            "(message had a missing key)"
        )
    try:
        return _decoded(record.key, record, _TYPES[decoder])
    except CorruptBatchError as error:
        return DecodedRecord(f"Error at offset {record.offset}, skipping. {error.cause}", None)


def _decoded(key: bytes, record: Record, types: Mapping[int, _RecordType]) -> DecodedRecord:
    number, rest = _number_and_rest(key, "key")
    known = types.get(number)
    if known is None:
        return DecodedRecord(f"Unknown record type {number} at offset {record.offset}, skipping.", None)
    shown_key = _json({"type": str(number), "data": _read(known.key, rest, number, "key")})
    if record.value is None:
        return DecodedRecord(shown_key, DELETED)
    version, rest = _number_and_rest(record.value, "value")
    if version not in known.value.versions:
        raise CorruptBatchError(0, f"Found an unknown record version {version} for {number} type")
    shown = known.show(_read(known.value, rest, version, "value"))
    return DecodedRecord(shown_key, _json({"version": str(version), "data": shown}))


def _number_and_rest(data: bytes, part: str) -> tuple[int, bytes]:
    """Split off the leading number: the record type of a key, or the version of a value."""
    if len(data) < _NUMBER.size:
        raise CorruptBatchError(0, f"Could not read version from {part}'s buffer.")
    return _NUMBER.unpack_from(data)[0], data[_NUMBER.size :]


def _read(schema: Schema, data: bytes, version: int, part: str) -> Values:
    try:
        return schema.read(data, version, lenient=True)
    except CorruptBatchError as error:
        cause = f"Could not read record with version {version} from {part}'s buffer due to: {error.cause}."
        raise CorruptBatchError(error.position, cause) from error


def _position(values: Values) -> dict[str, Any]:
    return _fields(OFFSET_COMMIT_VALUE.fields, values)


def _group(values: Values) -> dict[str, Any]:
    shown = _fields(GROUP_METADATA_VALUE.fields, values)
    if values["protocolType"] == _CONSUMER_PROTOCOL:
        for member in shown["members"]:
            for name, schema in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
                member[name] = _meaning(schema, member[name])
    return shown


def _meaning(schema: Schema, data: bytes) -> dict[str, Any] | bytes:
    """Parse a member's subscription or assignment; return other bytes unchanged."""
    try:
        version, rest = _number_and_rest(data, schema.name)
        if version >= schema.versions.stop:
            return data
        # Like Kafka, read a negative version as version 0.
        return _fields(schema.fields, schema.read(rest, max(version, 0), lenient=True))
    except CorruptBatchError:
        return data


def _transaction(values: Values) -> dict[str, Any]:
    shown = _fields(TRANSACTION_VALUE.fields, values)
    return shown | {"transactionStatus": status_name(values["transactionStatus"])}


_TYPES: Mapping[RecordDecoder, Mapping[int, _RecordType]] = {
    RecordDecoder.OFFSETS: {
        # A key of version 0 always has a value of version 0.
        0: _RecordType(OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE._replace(versions=range(1)), _position),
        1: _RecordType(OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE, _position),
        2: _RecordType(GROUP_METADATA_KEY, GROUP_METADATA_VALUE, _group),
    },
    RecordDecoder.TRANSACTIONS: {0: _RecordType(TRANSACTION_KEY, TRANSACTION_VALUE, _transaction)},
}


def _fields(fields: tuple[Field, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that Kafka prints: all except the tagged fields that have their default."""
    return {
        each.name: _items(each, values[each.name])
        for each in fields
        if each.name in values and (each.tag is None or values[each.name] != each.default_value())
    }


def _items(each: Field, value: Any) -> Any:
    if value is None or not isinstance(each.of, tuple):
        return value
    return [_fields(each.of, item) for item in value]


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return _ESCAPE.sub(_upper_case, text)


def _upper_case(escape: re.Match[str]) -> str:
    text = escape[0]
    return rf"\u{text[2:].upper()}" if text[1] == "u" else text


def _plain(value: bytes | uuid.UUID) -> str:
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return base64.b64encode(value).decode()
