"""The scrub of a partition: all segments of its logs, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from topicfs.replication.scrub.findings import ScrubCounts, ScrubFinding
from topicfs.replication.scrub.repair import CopyMovedError, Guard, changed_files, copy_at
from topicfs.replication.scrub.segment import Scrubbing, SegmentScrub
from topicfs.replication.scrub.small_files import scrub_epochs, scrub_small_files, scrub_topic_id
from topicfs.storage.errors import Finding, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.messages import reason_of
from topicfs.storage.model import Offset, TopicPartition


class ScrubbedLog(NamedTuple):
    """A log of the partition, and the log's data directory for display."""

    place: str
    log: Log


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubbedPartition:
    """A partition to scrub."""

    name: TopicPartition
    replicas: Callable[[], Sequence[ScrubbedLog]]
    """Returns the logs in sync, the leader's log first; empty while the partition is offline."""
    guard: Guard
    topic_id: str | None = None
    """The id of the partition's topic, if known."""
    heals: bool = True
    renew: Callable[[str], str] | None = None
    """Copies a damaged replica from a valid replica (blocking). Returns the directory of the valid replica.

    Raises StorageError, OSError.
    """
    absent: Callable[[], Iterable[Finding]] = tuple
    """Returns findings about records that logs lack; each finding names a file of the log. Raises StorageError,
    OSError.
    """
    is_open: bool = True
    """False if a call of `replicas` opens the logs, which then stay open until the engine closes."""


Tell = Callable[[ScrubFinding], None]


class PartitionScrub:
    """Scrubs all segments of a partition, or a single segment."""

    def __init__(self, partition: ScrubbedPartition, counts: ScrubCounts, tell: Tell) -> None:
        self._partition = partition
        self._counts = counts
        self._tell = tell
        self._held: dict[str, list[ScrubFinding]] = {}
        """Damage that may still be repaired by copying a replica, by data directory."""

    def run(self, start_offset: int = 0) -> Iterator[Offset]:
        """Scrub all segments, and yield the segment's base offset after each step.

        In the end, copy the replicas that are still damaged. Raises OSError.
        """
        try:
            yield from self._each_segment(start_offset)
            self.finish()
        finally:
            self.give_up()

    def _each_segment(self, start_offset: int) -> Iterator[Offset]:
        for one in self._partition.replicas():
            if one.log.offline_reason is not None:
                continue  # The log may be offline because its topic was deleted. Then missing files are not damage.
            for found in scrub_epochs(one.log, heals=self._partition.heals):
                self._report(found, batch=False)
            for found in scrub_topic_id(one.log, self._partition.topic_id, heals=self._partition.heals):
                self._report(found, batch=False)
        offset = start_offset
        while (base := self._next_base(offset)) is not None:
            try:
                for _ in self.segment(base):
                    yield base
            except CopyMovedError:
                yield base  # The next scrub reads the compacted segments.
            offset = base + 1
        for missing in self._partition.absent():  # A log may have gone offline meanwhile.
            self._left(ScrubFinding(missing, None))

    def segment(self, base_offset: Offset) -> Iterator[int]:
        """Scrub a segment, yielding bytes read. The caller then calls `finish` or `give_up`.

        Raises OSError, CopyMovedError.
        """
        replicas = self._partition.replicas()
        found = (copy_at(one.place, one.log, base_offset) for one in replicas)
        copies = [copy for copy in found if copy is not None]
        if not copies:
            return
        rewritten = replicas[0].log.config.compacts or any(one.log.rewrites for one in replicas)
        scrubbing = Scrubbing(
            epochs=replicas[0].log.epochs.entries,
            guard=self._partition.guard,
            report=self._hold if self._may_renew else self._report,
            report_left=self._report,
            heals=self._partition.heals,
            rewritten=rewritten,
        )
        for size in SegmentScrub(copies, scrubbing).run():
            self._counts.read_bytes += size
            yield size
        for beside in scrub_small_files(copies, rewritten=rewritten, heals=self._partition.heals):
            self._report(beside, batch=False)
        for copy in copies:
            for changed in changed_files(copy):
                self._left(ScrubFinding(changed, None))

    @property
    def _may_renew(self) -> bool:
        return self._partition.heals and self._partition.renew is not None

    def _left(self, found: ScrubFinding) -> None:
        """Hold back a finding that may be repaired by copying a replica; report any other finding."""
        (self._hold if self._may_renew else self._report)(found, batch=True)

    def _hold(self, found: ScrubFinding, *, batch: bool) -> None:
        if batch and found.healed_from is None:
            self._held.setdefault(str(found.finding.file.parent.parent), []).append(found)
        else:
            self._report(found, batch=batch)

    def report_end(self, reason: str) -> None:
        """Report that the remaining part of the partition was not read."""
        cause = f"not scrubbed to its end: {reason}"
        self._report(ScrubFinding(Finding(Path(str(self._partition.name)), None, cause), None), batch=False)

    @property
    def is_unfinished(self) -> bool:
        """True if some damage may still be repaired by copying a replica."""
        return bool(self._held)

    def finish(self) -> None:
        """Copy the replicas that are still damaged, and report the results (blocking)."""
        if self._partition.renew is not None:
            for place in list(self._held):
                self._renew(self._partition.renew, place)
        self.give_up()

    def _renew(self, renew: Callable[[str], str], place: str) -> None:
        try:
            source = renew(place)
        except (OSError, StorageError) as error:
            reason = f"; not copied again from another replica: {reason_of(error)}"
            self._held[place] = [
                one._replace(finding=one.finding._replace(cause=one.finding.cause + reason))
                for one in self._held[place]
            ]
        else:
            for found in self._held.pop(place):
                self._report(found._replace(healed_from=source), batch=True)

    def give_up(self) -> None:
        """Report the remaining damage, without repairing it."""
        while self._held:
            _, left = self._held.popitem()
            for found in left:
                self._report(found, batch=True)

    def _report(self, found: ScrubFinding, *, batch: bool) -> None:
        self._counts.add(found, batch=batch)
        self._tell(found)

    def _next_base(self, offset: int) -> Offset | None:
        """Return the lowest base offset at or above `offset` among the segments of all logs."""
        bases = (
            base
            for one in self._partition.replicas()
            for base in one.log.chain.base_offsets
            if base >= offset
        )
        return min(bases, default=None)
