"""A finding: something in a file that is not as it must be; and the scrub that looks for some on demand."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

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


class ScrubOnDemand(Protocol):
    """A scrub that can be asked for while the engine serves."""

    def start(self) -> None:
        """Scrub everything from the front, in a thread, unless one that was asked for goes on."""
        ...

    def report(self) -> list[str]:
        """Return `state running` or `state idle`, how much was read and healed, and what was found since it was asked for."""
        ...
