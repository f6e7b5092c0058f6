"""Avro, by fastavro: messages in Avro's binary encoding, without the header of a container file.

Values become JSON: a union as its value; bytes and fixed as characters from U+0000 to U+00FF, as in Avro's JSON
encoding; a decimal as a string of its digits; any other logical type as its underlying number or string.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from topicfs.schemas.codecs.avro_decimals import make_known
from topicfs.schemas.codecs.avro_types import MemoryBound, Normalizer
from topicfs.schemas.codecs.avro_values import AvroValue
from topicfs.schemas.codecs.codec import check_memory, guarded, json_text, library
from topicfs.schemas.schema import PayloadSchema, SchemaError

_LIBRARY = ("fastavro", "fastavro")


class AvroCodec:
    """The codec of an Avro schema. See `SchemaCodec`."""

    def __init__(self, schema: PayloadSchema, needed: Mapping[str, PayloadSchema]) -> None:
        """Compile a schema after the schemas that it needs (`needed`). Raises SchemaError, MissingLibraryError."""
        fastavro = library(*_LIBRARY)
        make_known()
        self._names: dict[str, Any] = {}
        for one in needed.values():
            self._parse(fastavro, one.text)
        self._type = self._defined(self._parse(fastavro, schema.text))
        self._bound: MemoryBound = guarded(lambda: MemoryBound(self._type, self._names), "not an Avro schema")
        # fastavro's reader in C recurses without a limit, so types of unlimited depth are read by its reader
        # in Python.
        reader = library("fastavro._read_py", "fastavro") if self._bound.recursive else fastavro
        self._read = reader.schemaless_reader
        self._write = fastavro.schemaless_writer

    def _defined(self, avro_type: Any) -> Any:
        """Return a type, or a union's branches, with names replaced by definitions: fastavro is not given the names."""
        if isinstance(avro_type, list):
            return [self._defined(branch) for branch in avro_type]
        return self._names.get(avro_type, avro_type) if isinstance(avro_type, str) else avro_type

    def _parse(self, fastavro: Any, text: str) -> Any:
        said = guarded(lambda: json.loads(text), "not JSON")
        plain = guarded(lambda: Normalizer().type_of(said), "not an Avro schema")
        return guarded(lambda: fastavro.parse_schema(plain, named_schemas=self._names), "not an Avro schema")

    def decode(self, message: bytes, path: bytes | None) -> bytes:
        del path
        check_memory(self._bound.bytes_of(len(message)))
        stream = BytesIO(message)
        value = guarded(lambda: self._read(stream, self._type, None), "does not follow its schema")
        if stream.tell() != len(message):
            raise SchemaError(f"{len(message) - stream.tell()} bytes after the message")
        return json_text(value)

    def encode(self, value: object) -> bytes:
        stream = BytesIO()
        datum = guarded(lambda: AvroValue(self._names).of(self._type, value), "does not follow its schema")
        guarded(lambda: self._write(stream, self._type, datum), "does not follow its schema")
        return stream.getvalue()
