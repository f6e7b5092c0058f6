"""The frames of Confluent's serializers, which name the schema of a payload.

    in front of the payload      in the record's header `__key_schema_id` or `__value_schema_id`
    ┌───┬─────────┬─────────     ┌───┬─────────┬─────      ┌───┬─────────────────┬─────
    │ 0 │ id  u32 │ message      │ 0 │ id  u32 │           │ 1 │ GUID, 16 bytes  │
    └───┴─────────┴─────────     └───┴─────────┴─────      └───┴─────────────────┴─────
      5 bytes, big-endian          the payload is the message, with nothing in front

A frame in the header takes precedence. For Protobuf, the path to the message's type in its file follows the id: in
front of the message, or in the header. The path is the number of its steps, then the steps, as zigzag varints; a
single 0 means the first type
(https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format, and
`SchemaId` in confluent-kafka-python's schema_registry/common/serde.py).
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from topicfs.schemas.schema import SchemaId

KEY_HEADER, VALUE_HEADER = b"__key_schema_id", b"__value_schema_id"

_NUMBER, _GUID = 0, 1
_NUMBER_SIZE, _GUID_SIZE = 5, 17


class FramedMessage(NamedTuple):
    """A payload divided into schema id and message."""

    schema_id: SchemaId
    message: bytes
    """The message. If `path` is None, a Protobuf message begins with the path to its type."""
    path: bytes | None = None
    """The bytes after the schema id in the record's header, which are the path for Protobuf; None if the frame is in
    the payload.
    """


def frame_of(payload: bytes, header: bytes | None) -> FramedMessage | None:
    """Divide a payload; None if it has no frame. `header` is the value of the record header with a frame, or None."""
    if header is not None and (found := _in_header(payload, header)) is not None:
        return found
    if len(payload) >= _NUMBER_SIZE and payload[0] == _NUMBER:
        return FramedMessage(int.from_bytes(payload[1:_NUMBER_SIZE], "big"), payload[_NUMBER_SIZE:])
    return None


def _in_header(payload: bytes, header: bytes) -> FramedMessage | None:
    if len(header) >= _NUMBER_SIZE and header[0] == _NUMBER:
        return FramedMessage(int.from_bytes(header[1:_NUMBER_SIZE], "big"), payload, header[_NUMBER_SIZE:])
    if len(header) >= _GUID_SIZE and header[0] == _GUID:
        return FramedMessage(UUID(bytes=header[1:_GUID_SIZE]), payload, header[_GUID_SIZE:])
    return None


def framed(number: int, message: bytes) -> bytes:
    """Put a frame with the schema id `number` in front of a message."""
    return bytes([_NUMBER]) + number.to_bytes(4, "big") + message


def read_path(data: bytes, most: int) -> tuple[tuple[int, ...], int]:
    """Parse the path to a Protobuf type; return path and end. Raises ValueError if cut off, or over `most` steps."""
    size, at = _zigzag(data, 0)
    if not 0 <= size <= most:
        raise ValueError(f"the path to the type has {size} steps")
    if not size:
        return (0,), at
    steps = []
    for _ in range(size):
        step, at = _zigzag(data, at)
        steps.append(step)
    return tuple(steps), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ValueError("the path to the type is cut off")
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        shift += 7
        if not octet & 0x80:
            return (value >> 1) ^ -(value & 1), at
