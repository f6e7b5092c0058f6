"""The numbers of the sound batches of each segment that was checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from topicfs.storage.codec.binary.fields import CODEC_MASK
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.headers import Codec
from topicfs.storage.model import NO_TIMESTAMP, Offset, Timestamp


@dataclass(slots=True)
class SegmentFacts:
    """Numbers of a segment's sound batches; they grow while the check runs."""

    log_bytes: int = 0
    """Size of the `.log`, damaged batches and a torn end included."""
    batches: int = 0
    records: int = 0
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
