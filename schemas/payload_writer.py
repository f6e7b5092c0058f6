"""A writer of payloads: values of JSON encoded by the newest schema of their topic, and framed."""

from __future__ import annotations

from topicfs.schemas.catalog import SchemaCatalog
from topicfs.schemas.codecs.codec import SchemaCodec
from topicfs.schemas.frame import framed
from topicfs.schemas.schema import Kind, SchemaError


class PayloadWriter:
    """A writer of one language for one request, whose lines all follow the same schemas. Encoding may wait for long (blocking)."""

    def __init__(self, kind: Kind, catalog: SchemaCatalog) -> None:
        self._kind = kind
        self._catalog = catalog
        self._found: dict[str, tuple[int, SchemaCodec] | None] = {}

    def has_schema(self, subject: str) -> bool:
        """Return whether a subject has a schema. Raises SchemaError where it has one of another language, or a bad one."""
        return self._newest(subject) is not None

    def encode(self, subject: str, value: object) -> bytes:
        """Return a payload. Raises SchemaError for a value that does not follow the schema, and where there is none."""
        found = self._newest(subject)
        if found is None:
            raise SchemaError(f"subject {subject} has no schema")
        number, codec = found
        return framed(number, codec.encode(value))

    def _newest(self, subject: str) -> tuple[int, SchemaCodec] | None:
        if subject not in self._found:
            self._found[subject] = self._catalog.newest(self._kind, subject)
        return self._found[subject]
