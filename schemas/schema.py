"""A schema as a registry keeps it, and the bounds of what is taken for one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias, TypeGuard, TypeVar
from uuid import UUID

from topicfs.storage.errors import StorageError

MAX_SCHEMA_BYTES = 2**20
"""Largest text of a schema: what a record of a registry's topic holds by default."""
MAX_REFERENCES = 100
"""Most schemas that one may need, those that these need among them."""
MAX_DEPTH = 64
"""Most levels of types within types, and of messages within messages."""
MAX_ID = 2**32 - 1

SchemaId: TypeAlias = int | UUID
"""The number that a registry gave to a schema, or the GUID that is the same in every registry."""


class SchemaError(ValueError):
    """A schema that is refused, or a payload or value that does not follow its schema; the text says why."""


class UnavailableSchemaError(SchemaError):
    """A schema that cannot be had at present: asked for again it may be there."""


class MissingLibraryError(StorageError):
    """A library is not installed that decoding needs."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f"{library} is not installed: pip install 'topicfs[schemas]' brings what decoding needs"
        )


class Kind(Enum):
    """The language of a schema, by the registry's names (`schemaType`)."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class SchemaReference(NamedTuple):
    """A schema that another one needs."""

    name: str
    """By which it is needed: the name of an Avro type, a path of an import of Protobuf, or a URI of JSON Schema."""
    subject: str
    version: int


class PayloadSchema(NamedTuple):
    """The text of a schema, and what it needs."""

    kind: Kind
    text: str
    references: tuple[SchemaReference, ...] = ()
    number: int | None = None
    """The number that payloads have in front, where it is known."""


def schema_of(fields: Mapping[str, object], *, number: int | None = None) -> PayloadSchema:
    """Read what the registry says of a schema, in a record of `_schemas` and in an answer alike.

    `schemaType` is left out for Avro. Raises SchemaError.
    """
    text, kind = fields.get("schema"), fields.get("schemaType") or Kind.AVRO.value
    if not isinstance(text, str) or len(text) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"the schema is no text of at most {MAX_SCHEMA_BYTES} characters")
    if not isinstance(kind, str) or kind not in Kind.__members__:
        raise SchemaError(f"schemaType is {kind!r:.40}, none of {', '.join(Kind.__members__)}")
    references = fields.get("references") or []
    if not isinstance(references, list) or len(references) > MAX_REFERENCES:
        raise SchemaError(f"references are no list of at most {MAX_REFERENCES}")
    said = fields.get("id")
    if number is None and is_number(said):
        number = said
    context = context_of(str(fields.get("subject")))
    needed = tuple(_reference(reference, context) for reference in references)
    return PayloadSchema(Kind(kind), text, needed, number)


T = TypeVar("T")


def context_of(subject: str) -> str:
    """Return the registry's context of a subject: `.staging` for `:.staging:orders-value`, "" for the default one."""
    context, separator, _ = subject[1:].partition(":") if subject.startswith(":") else ("", "", "")
    return context if separator and context != "." else ""


def in_context(subject: str, context: str) -> str:
    """Return the full name of a subject in a context, unless its name has a context already."""
    return f":{context}:{subject}" if context and not subject.startswith(":") else subject


def of_contexts(found: Mapping[str, T], subject: str, has: Callable[[str], bool]) -> T | None:
    """Choose between schemas (by context) with the same id; `has` returns whether a subject has a version with that id.

    Choose the one whose context has the subject. If that is not exactly one, choose the default context, then the only one.
    """
    named = {context: one for context, one in found.items() if has(in_context(subject, context))} or found
    return next(iter(named.values())) if len(named) == 1 else found.get("")


def is_number(value: object) -> TypeGuard[int]:
    """Return whether a value of JSON may be the number of a schema."""
    return type(value) is int and 0 <= value <= MAX_ID


def _reference(fields: object, context: str) -> SchemaReference:
    """Read a reference of a schema. Its subject is in the schema's context unless the reference names another context."""
    if isinstance(fields, dict):
        name, subject, version = fields.get("name"), fields.get("subject"), fields.get("version")
        if isinstance(name, str) and isinstance(subject, str) and type(version) is int:
            return SchemaReference(name, in_context(subject, context), version)
    raise SchemaError("a reference has no name, subject and version")


class SchemaSource(Protocol):
    """A place where schemas are kept. Safe from any thread; but for `stamp`, every call may wait for long (blocking)."""

    def stamp(self) -> Hashable:
        """Return what changes when there may be schemas that there were not before. Never waits, raises nothing."""

    def by_id(self, schema_id: SchemaId, subject: str = "") -> PayloadSchema | None:
        """Return a schema, or None if there is none or it is not available now. Raises SchemaError for a bad one.

        Contexts of a registry may have different schemas with one id: `subject` selects one of them.
        """

    def referenced(self, reference: SchemaReference) -> PayloadSchema | None:
        """Return the schema that another one of this source needs; as `by_id`."""

    def newest(self, subject: str) -> PayloadSchema | None:
        """Return the newest schema of a subject that was not deleted, with its number; as `by_id`."""
