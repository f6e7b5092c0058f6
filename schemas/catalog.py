"""The catalog of a mount's or a command's schemas: all its sources, and what was compiled of their schemas.

What an id means never changes in a registry. So a schema that was compiled stays, whatever its source says later, and
every reader sees the same of a payload. What was not found is asked for again by who asks again: `PayloadReader` decides when.
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
"""Text of schemas that may be compiled in all; further ones are not known."""

CODECS: dict[Kind, Callable[..., SchemaCodec]] = {
    Kind.AVRO: AvroCodec,
    Kind.PROTOBUF: ProtobufCodec,
    Kind.JSON: JsonSchemaCodec,
}


class SchemaCatalog:
    """Schemas and their codecs. Safe from any thread; but for `stamp`, every call may wait for long (blocking)."""

    def __init__(self, sources: Sequence[SchemaSource]) -> None:
        """Look into the sources in their order: the first one that has a schema is believed."""
        self._sources = tuple(sources)
        self._lock = threading.Lock()
        self._compiled: dict[tuple[Kind, SchemaId, str], SchemaCodec | SchemaError] = {}
        """By id and subject: one id may mean different schemas in different contexts of a registry."""
        self._of_schemas: dict[tuple[Kind, SchemaId, bytes], SchemaCodec | SchemaError] = {}
        """Each schema once, by its id and a hash of its text and references."""
        self._bytes = 0
        self._ended = False

    def stamp(self) -> Hashable:
        """Return what changes when there may be schemas that there were not before. Never waits."""
        return tuple(source.stamp() for source in self._sources)

    def end(self) -> None:
        """Ask no source any more: who waits for schemas, or would, gets a StorageError. Never waits."""
        self._ended = True

    def codec(self, kind: Kind, schema_id: SchemaId, subject: str = "") -> SchemaCodec | None:
        """Return the codec of a schema, or None if the schema is not known now; `subject` selects among contexts.

        Raises SchemaError for one of another language, or that is refused; MissingLibraryError, and StorageError after the end.
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
        """Return the newest schema of a subject, by its number, and what encodes by it; None where there is none.

        Raises SchemaError as `codec`, and where a registry does not answer; MissingLibraryError.
        """
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
            raise UnavailableSchemaError(f"schema {schema.number} of {subject} cannot be had at present")
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
            result = _codec_of(schema, kind, source, self._check_goes_on)
        except MissingLibraryError:
            raise
        except (UnavailableSchemaError, StorageError, OSError) as error:
            self._check_goes_on()
            _LOGGER.warning("schema %s cannot be had at present: %s", schema_id, error)
            return None
        except ValueError as error:  # Also names in it that no file and no URL can have.
            result = SchemaError(f"schema {schema_id}: {error}")
        # Of what is kept alone: what a schema needs may be missing for long, and is asked for again and again.
        self._bytes += size
        self._compiled[asked] = self._of_schemas[kind, schema_id, identity] = result
        return result

    def _check_goes_on(self) -> None:
        if self._ended:
            raise StorageError("schemas are asked for no more: the mount ends")

    def _find(
        self, ask: Callable[[SchemaSource], PayloadSchema | None]
    ) -> tuple[PayloadSchema, SchemaSource] | None:
        """Ask the sources by turns; one that fails hides no other. Raises UnavailableSchemaError where that leaves none."""
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


def _codec_of(
    schema: PayloadSchema, kind: Kind, source: SchemaSource, check: Callable[[], None]
) -> SchemaCodec:
    if schema.kind is not kind:
        raise SchemaError(f"it is one of {schema.kind.value}")
    return CODECS[kind](schema, needed_by(schema, source, check))


def needed_by(
    schema: PayloadSchema, source: SchemaSource, check: Callable[[], None] = lambda: None
) -> dict[str, PayloadSchema]:
    """Find all that a schema needs, each behind what it needs itself. `check` is called before each question.

    Raises SchemaError for what needs itself, UnavailableSchemaError for what is missing.
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
                raise UnavailableSchemaError(f"it needs {reference.name!r:.80}, which is not there")
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
"""The libraries that each language needs, and the packages that have them."""


def check_libraries(kind: Kind) -> None:
    """Raise MissingLibraryError where a library is not installed that a language needs."""
    for name, package in _LIBRARIES[kind].items():
        library(name, package)
