"""JSON lines with payloads decoded by their schemas: `log.avro.json`, `log.proto.json`, `log.jsonschema.json`.

    {"topic":…,"partition":…,"offset":…,…,"key":…,"key_schema_id":7,"payload":{"id":1},"payload_schema_id":8}

A key or payload framed for a schema registry (`schemas.frame`) is shown as the decoded JSON value, followed by the
schema ID. A framed payload that cannot be decoded is shown whole in base64 as `payload_base64`, also with the ID. A
key or payload without a frame is shown as in `log.json`, without an ID.

Written lines are encoded by the newest schemas of the topic's subjects, TOPIC-value and TOPIC-key
(TopicNameStrategy). Schema IDs in the lines are ignored, and `payload_base64` is stored as it is. A null payload is a
tombstone. If TOPIC-key has no schema, a string key is stored as it is.
"""

from __future__ import annotations

from array import array
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from topicfs.fusefs.forms.json_lines import JSON
from topicfs.fusefs.forms.json_parser import IGNORED, RefusedLineError, parse_records, plain_octets
from topicfs.schemas.frame import KEY_HEADER, VALUE_HEADER, FramedMessage, frame_of
from topicfs.schemas.payload_reader import PayloadReader, PayloadWriter
from topicfs.schemas.schema import Kind, SchemaError
from topicfs.storage.codec.records import Columns, columns_of, encode_columns
from topicfs.storage.model import Buffer, TopicPartition

KINDS = {".avro.json": Kind.AVRO, ".proto.json": Kind.PROTOBUF, ".jsonschema.json": Kind.JSON}
"""The schema language of each form."""

_RUN_BYTES = 2**18
"""Size of the keys and values that are rendered in one step."""
_IGNORED = IGNORED | {"key_schema_id", "payload_schema_id"}
_PAYLOAD = b',"payload'
_KEY = b',"key'


class DecodedForm:
    """See `Form`. Written lines are parsed by `SchemaParser`."""

    def __init__(self, suffix: str, reading: PayloadReader, leave: Callable[[], None] = lambda: None) -> None:
        """Decode payloads with `reading`. `leave` leaves the event loop before each decoding, which may take long."""
        self.suffix = suffix
        self._reading = reading
        self.leave = leave

    @property
    def outdated(self) -> bool:
        return self._reading.outdated

    def render(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> bytes:
        self.leave()
        return b"".join(line for _, line in self._lines(columns, partition, start_offset, end_offset))

    def render_one(self, columns: Columns, index: int, partition: TopicPartition) -> bytes:
        self.leave()
        line = JSON.render_one(columns, index, partition)
        return self._decoded(columns, index, line, partition.topic)

    def measure(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> array[int]:
        self.leave()
        batches = columns.batches
        sizes, batch = array("q", bytes(8 * len(batches))), 0
        ends = batches.column("record_end")
        for index, line in self._lines(columns, partition, start_offset, end_offset):
            while index >= ends[batch]:
                batch += 1
            sizes[batch] += len(line)
        return sizes

    def _lines(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield each record's index and line, rendering several records at a time."""
        first, end = columns.find(start_offset), columns.find(end_offset)
        while first < end:
            last = min(columns.within(first, _RUN_BYTES), end)
            text = JSON.render(columns, partition, columns.offsets[first], columns.offsets[last - 1] + 1)
            for index, line in enumerate(text.splitlines(keepends=True), first):
                yield index, self._decoded(columns, index, line, partition.topic)
            first = last

    def _decoded(self, columns: Columns, index: int, line: bytes, topic: str) -> bytes:
        """Replace the raw key and payload in a line of `log.json` by the decoded key and payload."""
        key, value = columns.key(index), columns.value(index)
        key_header = value_header = None
        if columns.header_lengths[index]:
            for name, header in columns.headers(index):
                if name == KEY_HEADER and key_header is None:
                    key_header = header
                elif name == VALUE_HEADER and value_header is None:
                    value_header = header
        framed_key = None if key is None else frame_of(key, key_header)
        framed_value = None if value is None else frame_of(value, value_header)
        if framed_value is None and framed_key is None:
            return line
        # In a JSON string every `"` is escaped, and no `:` follows the name of a header. So these searches
        # find only names of fields.
        payload_at = line.rfind(_PAYLOAD)
        # The key is the last field before the payload.
        key_at = max(line.rfind(_KEY + b'":', 0, payload_at), line.rfind(_KEY + b'_base64":', 0, payload_at))
        parts = [line[:key_at]]
        parts.append(
            line[key_at:payload_at]
            if framed_key is None
            else self._field(b"key", key, framed_key, f"{topic}-key")
        )
        parts.append(
            line[payload_at:-2]
            if framed_value is None
            else self._field(b"payload", value, framed_value, f"{topic}-value")
        )
        parts.append(b"}\n")
        return b"".join(parts)

    def _field(self, name: bytes, data: bytes | None, frame: FramedMessage, subject: str) -> bytes:
        text, schema_id = self._reading.decode(frame, subject)
        shown = b"%d" % schema_id if isinstance(schema_id, int) else b'"%s"' % str(schema_id).encode()
        if text is None:
            text, plain = b'"' + b64encode(data or b"") + b'"', b"_base64"
        else:
            plain = b""
        return b',"%s%s":%s,"%s_schema_id":%s' % (name, plain, text, name, shown)


class SchemaParser:
    """Parses lines that are written to one topic."""

    tells_times = True

    def __init__(self, suffix: str, topic: str, writer: Callable[[], PayloadWriter]) -> None:
        """`writer` is called once for each text, and returns the PayloadWriter that encodes the text."""
        self.suffix = suffix
        self._topic = topic
        self._writer = writer

    def parse(self, text: Buffer, *, timestamp: int, max_batch_bytes: int) -> list[bytearray]:
        """Encode lines (blocking: may fetch their schema). Raises FormError for a line that violates the schema."""
        records = parse_records(text, timestamp, partial(_octets, self._topic, self._writer()), _IGNORED)
        return encode_columns(columns_of(records), max_batch_bytes=max_batch_bytes, unit="line")


def _octets(topic: str, writer: PayloadWriter, fields: dict[str, Any], name: str) -> bytes | None:
    """Encode the key or the payload of a line with the schema of its subject."""
    value = fields.get(name)
    if value is None or f"{name}_base64" in fields:
        return plain_octets(fields, name)
    subject = f"{topic}-key" if name == "key" else f"{topic}-value"
    try:
        if name == "key" and isinstance(value, str) and not writer.has_schema(subject):
            return plain_octets(fields, name)
        payload = writer.encode(subject, value)
    except SchemaError as error:
        raise RefusedLineError(f"{name}: {error}") from None
    _drop_header(fields, KEY_HEADER if name == "key" else VALUE_HEADER)
    return payload


def _drop_header(fields: dict[str, Any], header: bytes) -> None:
    """Remove `header` from the line's headers if it names a schema that was not used for encoding."""
    for name in ("headers", "headers_base64"):
        flat = fields.get(name)
        if isinstance(flat, list) and not len(flat) % 2:
            kept = [flat[at : at + 2] for at in range(0, len(flat), 2) if flat[at] != header.decode()]
            fields[name] = [part for pair in kept for part in pair]
