"""The protocol of a source of schemas."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from schemas.schema import PayloadSchema, SchemaId, SchemaReference


class SchemaSource(Protocol):
    """A place where schemas are kept. Safe from any thread; but for `stamp`, every call may wait for long (blocking)."""

    def stamp(self) -> Hashable:
        """Return what changes when there may be schemas that there were not before. Never waits, raises nothing."""
        ...

    def by_id(self, schema_id: SchemaId, subject: str = "") -> PayloadSchema | None:
        """Return a schema. Where contexts of a registry have several with that id, `subject` says which one. None where there is none, or where it cannot be had at present. Raises SchemaError for a bad one."""
        ...

    def referenced(self, reference: SchemaReference) -> PayloadSchema | None:
        """Return the schema that another one of this source needs; as `by_id`."""
        ...

    def newest(self, subject: str) -> PayloadSchema | None:
        """Return the newest schema of a subject that was not deleted, with its number; as `by_id`."""
        ...
