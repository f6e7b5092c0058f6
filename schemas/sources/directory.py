"""A directory of schemas, as files whose names are the ids in payloads.

    12.avsc  12.proto  12.json        the schema of id 12: Avro, Protobuf, JSON Schema
    5a62….avsc                        a schema by its GUID, written as a UUID
    orders-value.avsc → 12.avsc       a symbolic link: the newest schema of subject orders-value
    common/money.proto                the file that `import "common/money.proto"` in 12.proto means

An Avro schema must contain all of its types.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from pathlib import Path, PurePosixPath

from topicfs.schemas import schema
from topicfs.schemas.codecs.protobuf import imports_of

SUFFIXES = {".avsc": schema.Kind.AVRO, ".proto": schema.Kind.PROTOBUF, ".json": schema.Kind.JSON}
"""File suffixes of the languages."""
STAMP_SECONDS = 1.0
"""Seconds between two checks of the directory for changes."""


class DirectorySource:
    """The schemas in a directory. See `SchemaSource`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._looked_at = -STAMP_SECONDS
        self._modified: int | None = None

    def stamp(self) -> Hashable:
        """See `SchemaSource`: the time of the directory's last change, checked once a second."""
        now = time.monotonic()
        if now - self._looked_at >= STAMP_SECONDS:
            self._looked_at = now
            try:
                self._modified = os.stat(self._directory).st_mtime_ns  # noqa: PTH116 - a third of the time
            except OSError:
                self._modified = None
        return self._modified

    def by_id(self, schema_id: schema.SchemaId, subject: str = "") -> schema.PayloadSchema | None:
        """See `SchemaSource`. A directory has only one schema for an id, whatever the subject is."""
        del subject
        for suffix, kind in SUFFIXES.items():
            text = self._text(f"{schema_id}{suffix}")
            if text is not None:
                return _schema(kind, text, schema_id if isinstance(schema_id, int) else None)
        return None

    def referenced(self, reference: schema.SchemaReference) -> schema.PayloadSchema | None:
        """See `SchemaSource`. Only Protobuf schemas are found, by the path of an import."""
        pure = PurePosixPath(reference.name)
        if pure.is_absolute() or ".." in pure.parts or "\0" in reference.name:
            return None
        text = self._text(reference.name)
        return None if text is None else _schema(schema.Kind.PROTOBUF, text, None)

    def newest(self, subject: str) -> schema.PayloadSchema | None:
        if "/" in subject or "\0" in subject:
            return None
        for suffix in SUFFIXES:
            try:
                name = Path(os.readlink(self._directory / f"{subject}{suffix}")).name  # noqa: PTH115 - the target as it is written, of which the name is all that counts
            except OSError:
                continue
            stem = name.removesuffix(suffix)
            if name.endswith(suffix) and stem.isdecimal():
                return self.by_id(int(stem))
        return None

    def _text(self, name: str) -> str | None:
        """Return the text of a file; None if it does not exist. Raises SchemaError if it cannot be read."""
        try:
            with (self._directory / name).open("rb") as file:
                data = file.read(schema.MAX_SCHEMA_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise schema.UnavailableSchemaError(f"{self._directory / name}: {error.strerror}") from None
        if len(data) > schema.MAX_SCHEMA_BYTES:
            raise schema.SchemaError(f"{self._directory / name}: more than {schema.MAX_SCHEMA_BYTES} bytes")
        return data.decode(errors="replace")


def _schema(kind: schema.Kind, text: str, number: int | None) -> schema.PayloadSchema:
    imports = imports_of(text) if kind is schema.Kind.PROTOBUF else []
    return schema.PayloadSchema(
        kind, text, tuple(schema.SchemaReference(path, path, 0) for path in imports), number
    )
