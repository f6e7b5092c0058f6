"""The results of a scrub: what was damaged, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from topicfs.storage.errors import Finding


class ScrubFinding(NamedTuple):
    finding: Finding
    healed_from: str | None
    """From where it was written again; None where it was not, and is as it was."""

    def __str__(self) -> str:
        at = "" if self.finding.position is None else f" position {self.finding.position}:"
        healed = "" if self.healed_from is None else f" (healed from {self.healed_from})"
        return f"{self.finding.file}:{at} {self.finding.cause}{healed}"


@dataclass(slots=True)
class ScrubCounts:
    read_bytes: int = 0
    """Bytes of logs that were read, those of each replica."""
    batches_healed: int = 0
    files_healed: int = 0
    """Indexes and small files that were written again."""
    damaged: int = 0

    def add(self, found: ScrubFinding, *, batch: bool) -> None:
        if found.healed_from is None:
            self.damaged += 1
        elif batch:
            self.batches_healed += 1
        else:
            self.files_healed += 1
