"""A schema as a registry stores it, and the limits for schemas that are accepted."""

from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias, TypeGuard, TypeVar
from uuid import UUID

from topicfs.storage.errors import StorageError

MAX_SCHEMA_BYTES = 2**20
"""Largest text of a schema: the default limit of a record in a registry's topic."""
MAX_REFERENCES = 100
"""Maximum number of schemas that a schema may need, directly or indirectly."""
MAX_DEPTH = 64
"""Maximum number of levels of nested types, and of nested messages."""
MAX_ID = 2**32 - 1

SchemaId: TypeAlias = int | UUID
"""The number that a registry gave to a schema, or the GUID, which is the same in every registry."""


class SchemaError(ValueError):
    """A schema is refused, or a payload or value does not fit its schema; the text has the reason."""


class UnavailableSchemaError(SchemaError):
    """A schema cannot be read at present; a later lookup may find it."""


class MissingLibraryError(StorageError):
    """A library that decoding needs is not installed."""

    def __init__(self, library: str) -> None:
        super().__init__(f"{library} is not installed, and decoding needs it: pip install 'topicfs[schemas]'")


class Kind(Enum):
    """The language of a schema, under the registry's names (`schemaType`)."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class SchemaReference(NamedTuple):
    """A reference to a schema that another schema needs."""

    name: str
    """The name that the referring schema uses: an Avro type, a Protobuf import path, or a JSON Schema URI."""
    subject: str
    version: int


class PayloadSchema(NamedTuple):
    """The text of a schema, and references to the schemas that it needs."""

    kind: Kind
    text: str
    references: tuple[SchemaReference, ...] = ()
    number: int | None = None
    """The id in front of payloads, if it is known."""


def schema_of(fields: Mapping[str, object], *, number: int | None = None) -> PayloadSchema:
    """Parse a schema from a record of `_schemas` or a registry's answer; by default it is Avro. Raises SchemaError."""
    text, kind = fields.get("schema"), fields.get("schemaType") or Kind.AVRO.value
    if not isinstance(text, str) or len(text) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the schema must be a text of at most {MAX_SCHEMA_BYTES} characters")
    if not isinstance(kind, str) or kind not in Kind.__members__:
        raise SchemaError(f"schemaType is {kind!r:.40}, not one of {', '.join(Kind.__members__)}")
    references = fields.get("references") or []
    if not isinstance(references, list) or len(references) > MAX_REFERENCES:
        raise SchemaError(f"references must be a list of at most {MAX_REFERENCES}")
    said = fields.get("id")
    if number is None and is_number(said):
        number = said
    context = context_of(str(fields.get("subject")))
    needed = tuple(_reference(reference, context) for reference in references)
    return PayloadSchema(Kind(kind), text, needed, number)


T = TypeVar("T")


def context_of(subject: str) -> str:
    """Return the registry context of a subject: `.staging` for `:.staging:orders-value`, "" for the default context."""
    context, separator, _ = subject[1:].partition(":") if subject.startswith(":") else ("", "", "")
    return context if separator and context != "." else ""


def in_context(subject: str, context: str) -> str:
    """Return the name of a subject in a context; a subject that already names a context is not changed."""
    return f":{context}:{subject}" if context and not subject.startswith(":") else subject


def of_contexts(found: Mapping[str, T], subject: str, has: Callable[[str], bool]) -> T | None:
    """Choose between the schemas in `found`, which have the same id in different contexts.

    `has` returns whether a subject has a version with that id. If exactly one context has the subject, return its
    schema. If no context has the subject, but there is only one schema, return that schema. In all other cases,
    return the schema of the default context, or None.
    """
    named = {context: one for context, one in found.items() if has(in_context(subject, context))} or found
    return next(iter(named.values())) if len(named) == 1 else found.get("")


def is_number(value: object) -> TypeGuard[int]:
    """Return whether a JSON value is a valid number of a schema."""
    return type(value) is int and 0 <= value <= MAX_ID


def _reference(fields: object, context: str) -> SchemaReference:
    """Parse a reference. The subject of the reference is in the schema's context, unless it names another context."""
    if isinstance(fields, dict):
        name, subject, version = fields.get("name"), fields.get("subject"), fields.get("version")
        if isinstance(name, str) and isinstance(subject, str) and type(version) is int:
            return SchemaReference(name, in_context(subject, context), version)
    raise SchemaError("a reference needs a name, a subject and a version")


class SchemaSource(Protocol):
    """A place that has schemas. Safe from any thread; every call except `stamp` may block for long."""

    def stamp(self) -> Hashable:
        """Return a value that changes when new schemas may be found. Never blocks or raises."""

    def by_id(self, schema_id: SchemaId, subject: str = "") -> PayloadSchema | None:
        """Return a schema; None if it is missing or not available now. Raises SchemaError for an invalid schema.

        Contexts of a registry may have different schemas with the same id; `subject` selects a schema among them.
        """

    def referenced(self, reference: SchemaReference) -> PayloadSchema | None:
        """Return the schema to which a schema of this source refers, with the results and errors of `by_id`."""

    def newest(self, subject: str) -> PayloadSchema | None:
        """Return a subject's newest schema (deleted ones do not count) with its id. Results and errors: see `by_id`."""
