"""The places of schemas that a user names, and a catalog of these places and of the topic `_schemas`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from topicfs.schemas.catalog import SchemaCatalog
    from topicfs.schemas.schema import SchemaSource
    from topicfs.storage.engine import LogEngine


class SchemaPlaces(NamedTuple):
    """Where to look for schemas, in addition to the topic `_schemas`."""

    directory: Path | None = None
    """A directory of files (`schemas.sources.directory`), searched first."""
    registry: str | None = None
    """The URL of a registry, queried last."""
    credentials: str | None = None
    """`USER:PASSWORD` for the registry."""

    def __repr__(self) -> str:
        """Return the places without the credentials."""
        return f"SchemaPlaces(directory={self.directory!r}, registry={self.registry!r})"

    def catalog(self, engine: LogEngine | None, *others: SchemaSource) -> SchemaCatalog:
        """Make the catalog, including `others`; nothing is read yet. Raises InvalidConfigError for an invalid URL."""
        from topicfs.schemas.catalog import SchemaCatalog
        from topicfs.schemas.sources.directory import DirectorySource
        from topicfs.schemas.sources.registry import RegistrySource
        from topicfs.schemas.sources.topic import SchemasTopic

        sources: list[SchemaSource] = []
        if self.directory is not None:
            sources.append(DirectorySource(self.directory))
        if engine is not None:
            sources.append(SchemasTopic(engine))
        sources.extend(others)
        if self.registry is not None:
            sources.append(RegistrySource(self.registry, self.credentials))
        return SchemaCatalog(sources)
