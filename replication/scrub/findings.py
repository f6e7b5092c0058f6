"""The results of a scrub: damage, and whether it was repaired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from topicfs.storage.errors import Finding, StorageError
from topicfs.storage.messages import reason_of


class ScrubFinding(NamedTuple):
    finding: Finding
    healed_from: str | None
    """Where the replacement came from; None if the damage is not repaired."""

    def __str__(self) -> str:
        at = "" if self.finding.position is None else f" position {self.finding.position}:"
        healed = "" if self.healed_from is None else f" (healed from {self.healed_from})"
        return f"{self.finding.file}:{at} {self.finding.cause}{healed}"


def healed(finding: Finding, write: Callable[[], None], source: str | None) -> ScrubFinding:
    """Rewrite a file if there is a source for it. Return the finding with the result."""
    if source is None:
        return ScrubFinding(finding, None)
    try:
        write()
    except (OSError, StorageError) as error:
        return ScrubFinding(
            finding._replace(cause=f"{finding.cause}; rewriting it failed: {reason_of(error)}"), None
        )
    return ScrubFinding(finding, source)


@dataclass(slots=True)
class ScrubCounts:
    read_bytes: int = 0
    """Bytes read from the logs of all replicas."""
    batches_healed: int = 0
    files_healed: int = 0
    """Number of repaired indexes and small files."""
    damaged: int = 0

    def add(self, found: ScrubFinding, *, batch: bool) -> None:
        if found.healed_from is None:
            self.damaged += 1
        elif batch:
            self.batches_healed += 1
        else:
            self.files_healed += 1
