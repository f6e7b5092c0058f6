"""The protocol of a source of schemas."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from topicfs.schemas.schema import PayloadSchema, SchemaId, SchemaReference


class SchemaSource(Protocol):
    """A place where schemas are kept. Safe from any thread; but for `stamp`, every call may wait for long (blocking)."""

    def stamp(self) -> Hashable:
        """Return what changes when there may be schemas that there were not before. Never waits, raises nothing."""
        ...

    def by_id(self, schema_id: SchemaId, subject: str = "") -> PayloadSchema | None:
        """Return a schema, or None if there is none or it is not available now. Raises SchemaError for a bad one.

        Contexts of a registry may have different schemas with one id: `subject` selects one of them.
        """
        ...

    def referenced(self, reference: SchemaReference) -> PayloadSchema | None:
        """Return the schema that another one of this source needs; as `by_id`."""
        ...

    def newest(self, subject: str) -> PayloadSchema | None:
        """Return the newest schema of a subject that was not deleted, with its number; as `by_id`."""
        ...
