"""The results of a check: what is wrong, and the numbers of the sound batches of each segment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from storage.codec.binary.fields import CODEC_MASK
from storage.codec.columns import Columns
from storage.codec.headers import Codec
from storage.errors import CorruptionError
from storage.model import NO_TIMESTAMP, Offset, Position, Timestamp


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


@dataclass(slots=True)
class SegmentFacts:
    """Numbers of a segment's sound batches; they grow while the check runs."""

    log_bytes: int = 0
    """Size of the `.log`, damaged batches and a torn end included."""
    batches: int = 0
    records: int = 0
    """Number of records, those of control batches too."""
    first_offset: Offset | None = None
    """None where there is no sound batch."""
    last_offset: Offset | None = None
    largest_timestamp: Timestamp = NO_TIMESTAMP
    codecs: set[Codec] = field(default_factory=set)

    def add(self, columns: Columns) -> None:
        """Count sound batches that follow each other."""
        batches = columns.batches
        self.batches += len(batches)
        self.records += len(columns)
        first, last = batches[0].base_offset, Offset(max(batches.column("last_offset")))
        self.first_offset = first if self.first_offset is None else min(self.first_offset, first)
        self.last_offset = last if self.last_offset is None else max(self.last_offset, last)
        self.largest_timestamp = Timestamp(max(self.largest_timestamp, *batches.column("max_timestamp")))
        self.codecs.update(
            Codec(number) for number in {one & CODEC_MASK for one in batches.column("attributes")}
        )
