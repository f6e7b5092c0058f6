"""Decodes payloads, each always to the same text, and encodes values by the newest schema of a subject."""

from __future__ import annotations

from typing import NamedTuple

from topicfs.schemas.catalog import SchemaCatalog
from topicfs.schemas.codecs.codec import SchemaCodec
from topicfs.schemas.codecs.json_schema import decode_json
from topicfs.schemas.frame import FramedMessage, framed
from topicfs.schemas.schema import Kind, SchemaError, SchemaId

MAX_UNKNOWN = 1000
"""Maximum number of ids that are remembered as unknown. After that, each further new id counts as unknown without a
lookup.
"""


class Decoded(NamedTuple):
    """A decoded message: `text` is JSON on one line, or None if the message cannot be decoded."""

    text: bytes | None
    schema_id: SchemaId


class PayloadReader:
    """Decodes messages with the schemas of one schema language. Thread-safe. Decoding may block for long."""

    def __init__(self, kind: Kind, catalog: SchemaCatalog, *, lasting: bool = True) -> None:
        """Decode with a catalog. Pass `lasting=False` if the reader makes only one pass over the messages.

        Such a reader also uses schemas that appear during the pass. A lasting reader always decodes a message to the
        same text.
        """
        self._kind = kind
        self._catalog = catalog
        self._lasting = lasting
        self._known: set[tuple[SchemaId, str]] = set()
        self._unknown: set[tuple[SchemaId, str]] = set()
        self._stamp = catalog.stamp()
        self._outdated = False

    @property
    def outdated(self) -> bool:
        """True once a lookup could find schemas that this reader did not find. Stays True; never blocks."""
        if self._lasting and not self._outdated and self._unknown:
            self._outdated = self._catalog.stamp() != self._stamp
        return self._outdated

    def decode(self, frame: FramedMessage, subject: str = "") -> Decoded:
        """Decode a message; `subject` selects among schemas with the same id. Raises MissingLibraryError."""
        schema_id = frame.schema_id
        asked = schema_id, subject
        try:
            if self._kind is Kind.JSON:
                return Decoded(decode_json(frame.message), schema_id)
            if not self._is_unknown(asked):
                codec = self._catalog.codec(self._kind, schema_id, subject)
                if codec is not None:
                    self._known.add(asked)
                    return Decoded(codec.decode(frame.message, frame.path), schema_id)
                self._unknown.add(asked)
        except SchemaError:
            pass
        return Decoded(None, schema_id)

    def _is_unknown(self, asked: tuple[SchemaId, str]) -> bool:
        if not self._lasting and self._unknown:
            stamp = self._catalog.stamp()
            if stamp != self._stamp:
                self._stamp = stamp
                self._unknown.clear()
        if asked in self._known:
            return False
        return asked in self._unknown or len(self._unknown) >= MAX_UNKNOWN


class PayloadWriter:
    """Encodes the lines of one request, all with the same schemas. Encoding may block for long."""

    def __init__(self, kind: Kind, catalog: SchemaCatalog) -> None:
        self._kind = kind
        self._catalog = catalog
        self._found: dict[str, tuple[int, SchemaCodec] | None] = {}

    def has_schema(self, subject: str) -> bool:
        """Return whether a subject has a schema. Raises SchemaError if the schema is bad, or in another language."""
        return self._newest(subject) is not None

    def encode(self, subject: str, value: object) -> bytes:
        """Return a framed payload. Raises SchemaError if the value does not fit the schema, or there is no schema."""
        found = self._newest(subject)
        if found is None:
            raise SchemaError(f"subject {subject} has no schema")
        number, codec = found
        return framed(number, codec.encode(value))

    def _newest(self, subject: str) -> tuple[int, SchemaCodec] | None:
        if subject not in self._found:
            self._found[subject] = self._catalog.newest(self._kind, subject)
        return self._found[subject]
