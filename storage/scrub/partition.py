"""The scrub of a partition: all segments of its logs, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage.log.log import Log
from storage.model import Offset, TopicPartition
from storage.scrub.archive import PartitionArchive, RecordArchive
from storage.scrub.copies import CopyMovedError, Guard, copy_at
from storage.scrub.findings import ScrubCounts, ScrubFinding
from storage.scrub.segment import Scrubbing, SegmentScrub
from storage.scrub.small_files import scrub_epochs, scrub_small_files


class ScrubbedLog(NamedTuple):
    """A log of the partition, and its data directory for people."""

    place: str
    log: Log


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubbedPartition:
    """A partition to scrub."""

    name: TopicPartition
    replicas: Callable[[], Sequence[ScrubbedLog]]
    """Returns the logs that are in sync now, the one that leads first; none while it is offline."""
    guard: Guard
    heals: bool = True
    is_open: bool = True
    """False where to ask for its logs opens them, for as long as the engine lives."""


Told = Callable[[ScrubFinding], None]


class PartitionScrub:
    """Goes through a partition from the segment that holds an offset on."""

    def __init__(
        self,
        partition: ScrubbedPartition,
        counts: ScrubCounts,
        tell: Told,
        *,
        archive: RecordArchive | None = None,
    ) -> None:
        """Make it; `archive` has records of which batches are made again that no replica has sound."""
        self._partition = partition
        self._archive = archive
        self._counts = counts
        self._tell = tell

    def run(self, start_offset: int = 0) -> Iterator[Offset]:
        """Scrub a chunk at a time; yields after each the base offset of the segment that it is at (OSError)."""
        for one in self._partition.replicas():
            for found in scrub_epochs(one.log, heals=self._partition.heals):
                self._report(found, batch=False)
        offset = start_offset
        while True:
            base = self._next_base(offset)
            if base is None:
                return
            try:
                for _ in self.segment(base):
                    yield base
            except CopyMovedError:
                yield base  # What compaction made of it is scrubbed the next time.
            offset = base + 1

    def segment(self, base_offset: Offset) -> Iterator[int]:
        """Scrub one segment; yields the bytes read (OSError, CopyMovedError)."""
        replicas = self._partition.replicas()
        found = (copy_at(one.place, one.log, base_offset) for one in replicas)
        copies = [copy for copy in found if copy is not None]
        if not copies:
            return
        scrubbing = Scrubbing(
            epochs=replicas[0].log.epochs.entries,
            guard=self._partition.guard,
            report=self._report,
            heals=self._partition.heals,
            archive=None if self._archive is None else PartitionArchive(self._archive, self._partition.name),
            rewritten=replicas[0].log.config.compacts or any(one.log.rewrites for one in replicas),
        )
        for size in SegmentScrub(copies, scrubbing).run():
            self._counts.read_bytes += size
            yield size
        for beside in scrub_small_files(copies, heals=self._partition.heals):
            self._report(beside, batch=False)

    def _report(self, found: ScrubFinding, *, batch: bool) -> None:
        self._counts.add(found, batch=batch)
        self._tell(found)

    def _next_base(self, offset: int) -> Offset | None:
        """Return the first base offset of any log's segments that is not below `offset`."""
        bases = (
            base
            for one in self._partition.replicas()
            for base in one.log.chain.base_offsets
            if base >= offset
        )
        return min(bases, default=None)
