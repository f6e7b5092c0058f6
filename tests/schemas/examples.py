"""Schemas, payloads with frames, and the records in which a registry stores the schemas."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import fastavro

from topicfs.coordination.engine import Engine
from topicfs.fusefs.forms import JSON
from topicfs.replication import open_engine
from topicfs.schemas.schema import Kind, PayloadSchema
from topicfs.storage.engine import Topic

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ORDER_PROTO = """
syntax = "proto3";
package shop;
message Order {
  message Line { int32 count = 1; }
  int64 id = 1;
  string note = 2;
  repeated Line lines = 3;
}
message Refund { string reason = 1; }
"""


def record(name: str = "R", /, **types: object) -> dict[str, Any]:
    """Return Avro's schema of a record with fields of these types."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in types.items()]}


def avro(schema: object, value: object) -> bytes:
    """Return a value in Avro's binary encoding."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def framed(number: int, message: bytes) -> bytes:
    """Return a message with its frame before it."""
    return b"\x00" + number.to_bytes(4, "big") + message


def of_avro(schema: object, number: int = 7) -> PayloadSchema:
    return PayloadSchema(Kind.AVRO, json.dumps(schema), (), number)


def of_protobuf(text: str, number: int = 8) -> PayloadSchema:
    return PayloadSchema(Kind.PROTOBUF, text, (), number)


def line(payload: bytes | None, key: bytes | None = None, headers: dict[str, bytes] | None = None) -> bytes:
    """Return a record as a line of `log.json`."""
    fields: dict[str, Any] = {"ts": 1}
    if key is not None:
        fields["key_base64"] = base64.b64encode(key).decode()
    fields["payload_base64"] = None if payload is None else base64.b64encode(payload).decode()
    if headers:
        fields["headers_base64"] = [
            part for name, value in headers.items() for part in (name, base64.b64encode(value).decode())
        ]
    return json.dumps(fields).encode() + b"\n"


def registered(
    subject: str, version: int, number: int, schema: object, kind: str | None = None, **fields: object
) -> bytes:
    """Return a record of `_schemas` as a line of `log.json`; `schema` is the schema's text, or an object for JSON."""
    text = str(schema) if kind else json.dumps(schema)
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False, **fields}
    if kind is not None:
        value["schemaType"] = kind
    return line(json.dumps(value).encode(), json.dumps(key).encode())


def appended(topic: Topic, lines: bytes) -> None:
    """Append lines of `log.json` to partition 0."""
    for batch in JSON.parse(lines, timestamp=1, max_batch_bytes=2**20):
        topic.partitions()[0].append(batch)


def engine_with(path: Path, lines: bytes, topic: str = "_schemas") -> Engine:
    """Make an engine with a topic whose records are `lines`."""
    engine = open_engine(path)
    appended(engine.create_topic(topic), lines)
    return engine
