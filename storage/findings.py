"""A finding: something in a file that is not as it must be."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Position


class Finding(NamedTuple):
    """Something that is not as it must be."""

    file: Path
    position: Position | None
    """Byte in the file; None where the whole file is meant."""
    cause: str

    @classmethod
    def of(cls, error: CorruptionError) -> Finding:
        """Return the finding of an error that a reader raised."""
        return cls(error.file, Position(error.position), error.cause)
