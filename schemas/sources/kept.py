"""Schemas kept in memory: those of a topic as they were at one moment, to be taken elsewhere."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from uuid import UUID

from topicfs.schemas.schema import PayloadSchema, SchemaId, SchemaReference, context_of, of_contexts


@dataclass(slots=True)
class KeptSchemas:
    """Schemas by their ids and versions. See `SchemaSource`."""

    by_ids: dict[SchemaId, dict[str, PayloadSchema]] = field(default_factory=dict)
    """By their contexts."""
    by_versions: dict[tuple[str, int], PayloadSchema] = field(default_factory=dict)
    deleted: set[tuple[str, int]] = field(default_factory=set)

    def add(
        self, version: tuple[str, int], schema: PayloadSchema, guid: UUID | None, *, deleted: bool
    ) -> None:
        """Keep a version of a subject, which is found by its ids, too."""
        self.by_versions[version] = schema
        for schema_id in (schema.number, guid):
            if schema_id is not None:
                context = context_of(version[0]) if isinstance(schema_id, int) else ""
                self.by_ids.setdefault(schema_id, {})[context] = schema
        if deleted:
            self.deleted.add(version)

    def stamp(self) -> Hashable:
        """See `SchemaSource`: nothing is added."""
        return None

    def by_id(self, schema_id: SchemaId, subject: str = "") -> PayloadSchema | None:
        """See `SchemaSource`."""

        def has(name: str) -> bool:
            return any(one.number == schema_id for place, one in self.by_versions.items() if place[0] == name)

        return of_contexts(self.by_ids.get(schema_id, {}), subject, has)

    def referenced(self, reference: SchemaReference) -> PayloadSchema | None:
        """See `SchemaSource`."""
        return self.by_versions.get((reference.subject, reference.version))

    def newest(self, subject: str) -> PayloadSchema | None:
        """See `SchemaSource`."""
        versions = [place for place in self.by_versions if place[0] == subject and place not in self.deleted]
        return self.by_versions[max(versions)] if versions else None
