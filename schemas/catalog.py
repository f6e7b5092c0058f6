"""The catalog of schemas of a mount or a command: all of its sources, and the compiled schemas.

The meaning of an id never changes in a registry. So a compiled schema is kept even if its source changes, and every
reader decodes a payload to the same text. The catalog does not remember that a schema was not found: `PayloadReader`
decides when to look it up again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from hashlib import sha256

from topicfs.schemas.codecs.avro import AvroCodec
from topicfs.schemas.codecs.codec import SchemaCodec, library
from topicfs.schemas.codecs.json_schema import JsonSchemaCodec
from topicfs.schemas.codecs.protobuf import ProtobufCodec
from topicfs.schemas.schema import (
    MAX_REFERENCES,
    Kind,
    MissingLibraryError,
    PayloadSchema,
    SchemaError,
    SchemaId,
    SchemaReference,
    SchemaSource,
    UnavailableSchemaError,
)
from topicfs.storage.errors import StorageError

_LOGGER = logging.getLogger("topicfs")

MAX_COMPILED = 10_000
MAX_COMPILED_BYTES = 64 * 2**20
"""Maximum size of the texts of all compiled schemas together; further schemas are treated as unknown."""

CODECS: dict[Kind, Callable[..., SchemaCodec]] = {
    Kind.AVRO: AvroCodec,
    Kind.PROTOBUF: ProtobufCodec,
    Kind.JSON: JsonSchemaCodec,
}


class SchemaCatalog:
    """Schemas and their codecs. Safe from any thread; every call except `stamp` and `end` may block for long."""

    def __init__(self, sources: Sequence[SchemaSource]) -> None:
        """Search `sources` in order. If several sources have a schema, the first source is used."""
        self._sources = tuple(sources)
        self._lock = threading.Lock()
        self._compiled: dict[tuple[Kind, SchemaId, str], SchemaCodec | SchemaError] = {}
        """Codecs by id and subject, because an id may mean different schemas in different contexts of a registry."""
        self._of_schemas: dict[tuple[Kind, SchemaId, bytes], SchemaCodec | SchemaError] = {}
        """Codec of each schema, by id and a hash of the schema's text and references."""
        self._bytes = 0
        self._ended = False

    def stamp(self) -> Hashable:
        """Return a value that changes when new schemas may be found. Never blocks."""
        return tuple(source.stamp() for source in self._sources)

    def end(self) -> None:
        """Query no source any more: calls that look up a schema raise StorageError from now on. Never blocks."""
        self._ended = True

    def codec(self, kind: Kind, schema_id: SchemaId, subject: str = "") -> SchemaCodec | None:
        """Return the codec of a schema, or None if the schema is unknown now; `subject` selects among contexts.

        Raises SchemaError for a refused schema or another language; MissingLibraryError; StorageError after `end`.
        """
        asked = kind, schema_id, subject
        found = self._compiled.get(asked)
        if found is None:
            with self._lock:
                found = self._compiled.get(asked) or self._compile(asked)
        if isinstance(found, SchemaError):
            raise found.with_traceback(None)
        return found

    def newest(self, kind: Kind, subject: str) -> tuple[int, SchemaCodec] | None:
        """Return the newest schema's id and codec, or None. Raises like `codec`, and if a registry does not answer."""
        found = self._find(lambda source: source.newest(subject))
        if found is None:
            return None
        schema, source = found
        if schema.number is None:
            raise SchemaError(f"the schema of {subject} has no id")
        with self._lock:
            asked = kind, schema.number, subject
            codec = self._compiled.get(asked)
            if codec is None:
                codec = self._compile(asked, (schema, source))
        if isinstance(codec, SchemaError):
            raise codec.with_traceback(None)
        if codec is None:
            raise UnavailableSchemaError(f"schema {schema.number} of {subject} is not available at present")
        return schema.number, codec

    def _compile(
        self, asked: tuple[Kind, SchemaId, str], found: tuple[PayloadSchema, SchemaSource] | None = None
    ) -> SchemaCodec | SchemaError | None:
        kind, schema_id, subject = asked
        if (
            len(self._of_schemas) >= MAX_COMPILED
            or len(self._compiled) >= 10 * MAX_COMPILED
            or self._bytes >= MAX_COMPILED_BYTES
        ):
            return None
        result: SchemaCodec | SchemaError
        size, identity = 0, b""
        self._check_goes_on()
        try:
            found = found or self._find(lambda source: source.by_id(schema_id, subject))
            if found is None:
                return None
            schema, source = found
            identity = sha256(repr((schema.text, schema.references)).encode("utf-8", "replace")).digest()
            same = self._of_schemas.get((kind, schema_id, identity))
            if same is not None:
                self._compiled[asked] = same
                return same
            size = len(schema.text)
            if schema.kind is not kind:
                raise SchemaError(f"it is a schema of {schema.kind.value}")
            result = CODECS[kind](schema, needed_by(schema, source, self._check_goes_on))
        except MissingLibraryError:
            raise
        except (UnavailableSchemaError, StorageError, OSError) as error:
            self._check_goes_on()
            _LOGGER.warning("schema %s is not available at present: %s", schema_id, error)
            return None
        except ValueError as error:  # Includes references with names that no file and no URL can have.
            result = SchemaError(f"schema {schema_id}: {error}")
        # Count only schemas that are kept, because a schema with a missing reference may be looked up many
        # times.
        self._bytes += size
        self._compiled[asked] = self._of_schemas[kind, schema_id, identity] = result
        return result

    def _check_goes_on(self) -> None:
        if self._ended:
            raise StorageError("the mount ends, so schemas are no longer looked up")

    def _find(
        self, ask: Callable[[SchemaSource], PayloadSchema | None]
    ) -> tuple[PayloadSchema, SchemaSource] | None:
        """Query the sources in order. Raises UnavailableSchemaError if one failed and no other has the schema."""
        failure: Exception | None = None
        for source in self._sources:
            try:
                schema = ask(source)
            except MissingLibraryError:
                raise
            except (UnavailableSchemaError, StorageError, OSError) as error:
                failure = error
                continue
            if schema is not None:
                return schema, source
        if failure is not None:
            raise UnavailableSchemaError(str(failure)) from None
        return None


def needed_by(
    schema: PayloadSchema, source: SchemaSource, check: Callable[[], None] = lambda: None
) -> dict[str, PayloadSchema]:
    """Return all schemas that `schema` needs, each after its own needs; `check` is called before each lookup.

    Raises SchemaError.
    """
    found: dict[str, PayloadSchema] = {}
    under_way: set[tuple[str, int]] = set()

    def follow(references: tuple[SchemaReference, ...]) -> None:
        for reference in references:
            place = reference.subject, reference.version
            if place in under_way:
                raise SchemaError(f"{reference.name!r:.80} needs itself")
            if reference.name in found:
                continue
            if len(found) + len(under_way) >= MAX_REFERENCES:
                raise SchemaError(f"it needs more than {MAX_REFERENCES} others")
            check()
            one = source.referenced(reference)
            if one is None:
                raise UnavailableSchemaError(f"it needs {reference.name!r:.80}, which does not exist")
            under_way.add(place)
            follow(one.references)
            under_way.discard(place)
            found[reference.name] = one

    follow(schema.references)
    return found


_LIBRARIES = {
    Kind.AVRO: {"fastavro": "fastavro"},
    Kind.PROTOBUF: {"google.protobuf": "protobuf", "grpc_tools": "grpcio-tools"},
    Kind.JSON: dict[str, str](),
}
"""The libraries that each language needs, and the packages that contain them."""


def check_libraries(kind: Kind) -> None:
    """Raise MissingLibraryError if a library that the language needs is not installed."""
    for name, package in _LIBRARIES[kind].items():
        library(name, package)
