"""A directory of schemas, as files that are named by what payloads say.

    12.avsc  12.proto  12.json        the schema of id 12: Avro, Protobuf, JSON Schema
    5a62….avsc                        the same by its GUID, as UUIDs are written
    orders-value.avsc → 12.avsc       a symbolic link: the newest schema of subject orders-value
    common/money.proto                what `import "common/money.proto"` of 12.proto means

A schema of Avro has all its types in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from pathlib import Path, PurePosixPath

from topicfs.schemas.codecs.protobuf import imports_of
from topicfs.schemas.schema import (
    MAX_SCHEMA_BYTES,
    Kind,
    PayloadSchema,
    SchemaError,
    SchemaId,
    SchemaReference,
    UnavailableSchemaError,
)

SUFFIXES = {".avsc": Kind.AVRO, ".proto": Kind.PROTOBUF, ".json": Kind.JSON}
"""Suffixes of the files of each language."""
STAMP_SECONDS = 1.0
"""For so long a directory is not looked at again."""


class DirectorySource:
    """The schemas in a directory. See `SchemaSource`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._looked_at = -STAMP_SECONDS
        self._modified: int | None = None

    def stamp(self) -> Hashable:
        """See `SchemaSource`: the time of the directory's last change, looked at once a second."""
        now = time.monotonic()
        if now - self._looked_at >= STAMP_SECONDS:
            self._looked_at = now
            try:
                self._modified = os.stat(self._directory).st_mtime_ns  # noqa: PTH116 - a third of the time
            except OSError:
                self._modified = None
        return self._modified

    def by_id(self, schema_id: SchemaId, subject: str = "") -> PayloadSchema | None:
        """See `SchemaSource`: a directory has one schema of an id."""
        del subject
        for suffix, kind in SUFFIXES.items():
            text = self._text(f"{schema_id}{suffix}")
            if text is not None:
                return _schema(kind, text, schema_id if isinstance(schema_id, int) else None)
        return None

    def referenced(self, reference: SchemaReference) -> PayloadSchema | None:
        """See `SchemaSource`: of Protobuf alone, by paths of imports."""
        pure = PurePosixPath(reference.name)
        if pure.is_absolute() or ".." in pure.parts or "\0" in reference.name:
            return None
        text = self._text(reference.name)
        return None if text is None else _schema(Kind.PROTOBUF, text, None)

    def newest(self, subject: str) -> PayloadSchema | None:
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
        """Read a file; None where there is none. Raises SchemaError for one that cannot be read."""
        try:
            with (self._directory / name).open("rb") as file:
                data = file.read(MAX_SCHEMA_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnavailableSchemaError(f"{self._directory / name}: {error.strerror}") from None
        if len(data) > MAX_SCHEMA_BYTES:
            raise SchemaError(f"{self._directory / name}: more than {MAX_SCHEMA_BYTES} bytes")
        return data.decode(errors="replace")


def _schema(kind: Kind, text: str, number: int | None) -> PayloadSchema:
    imports = imports_of(text) if kind is Kind.PROTOBUF else []
    return PayloadSchema(kind, text, tuple(SchemaReference(path, path, 0) for path in imports), number)
