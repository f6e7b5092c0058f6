"""Compares the logs of replicas by what each log lacks, so that records lost in one replica are not deleted in others.

    agreed     ├──────────────┬──────────────┬─────────── …     the lowest log start of replicas in sync
    replica 1  ├──────────────┼──────────────┼────── …
    replica 2                 ├──────────────┼────── …          lacks its first segment
    replica 3  ├──────────────┼──────┤       ├────── …          lacks offsets before its third segment

It compares log starts, and the end of each closed segment with the base offset of the next segment. Records that
retention would remove now do not count as missing. Compacted logs differ anyway, so only their log starts are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.log import Log
from topicfs.storage.log.soundness import TornSegment, replace_epochs, torn_segments, true_epochs
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import Offset
from topicfs.storage.retention import due_start


class Holding(NamedTuple):
    start_offset: Offset
    end_offset: Offset

    def present(self, torn: Iterable[TornSegment]) -> int:
        start, end = self
        return end - start - sum(max(start, one.next_offset) - max(start, one.end_offset) for one in torn)


class Absence(NamedTuple):
    """What a replica lacks, or which bytes its log has that it should not have."""

    path: Path
    cause: str
    elsewhere: bool
    """True if another replica in sync is complete and at least as long, so that this replica can be copied from it."""
    present: int


def lacking(
    holdings: Mapping[ReplicaId, Holding], torn: Mapping[ReplicaId, Sequence[TornSegment]]
) -> dict[ReplicaId, str]:
    """Return what each replica lacks that another replica has."""
    least = min(one.start_offset for one in holdings.values())
    found = {
        number: f"offsets {least} to {one.start_offset - 1} are missing"
        for number, one in holdings.items()
        if one.start_offset > least
    }
    for number, segments in torn.items():
        for segment in segments:
            if any(
                one.start_offset <= max(segment.base_offset, least) < segment.next_offset
                and one.end_offset >= segment.next_offset
                and not any(_overlap(segment, theirs) for theirs in torn[other])
                for other, one in holdings.items()
                if other != number
            ):
                found.setdefault(number, segment.cause)
    return found


def _overlap(one: TornSegment, other: TornSegment) -> bool:
    return one.base_offset < other.next_offset and other.base_offset < one.next_offset


def absences(logs: Mapping[ReplicaId, Log]) -> dict[ReplicaId, Absence]:
    """Return what each log lacks. The logs are those of replicas that are or were in sync.

    Raises CorruptionError, OSError.
    """
    starts, due = {number: log.log_start_offset for number, log in logs.items()}, 0
    if len(set(starts.values())) > 1:
        starts = {number: due_start(log) for number, log in logs.items()}
        due = min(starts.values())
    holdings = {number: Holding(starts[number], log.log_end_offset) for number, log in logs.items()}
    torn = {
        number: [one for one in torn_segments(log) if one.next_offset > due] for number, log in logs.items()
    }
    present = {number: one.present(torn[number]) for number, one in holdings.items()}
    found, causes = lacking(holdings, torn) if logs else {}, {}
    for number, segments in torn.items():
        if number in found or segments:
            each = [*filter(None, [found.get(number)]), *(one.cause for one in segments)]
            causes[number] = ", ".join(dict.fromkeys(each))
    # Copying a replica from a shorter log would lose the replica's last records.
    reach = max((one.end_offset for number, one in holdings.items() if number not in causes), default=-1)
    copied = {number for number in found if holdings[number].end_offset <= reach}
    return {
        number: Absence(_path(logs[number], torn[number]), cause, number in copied, present[number])
        for number, cause in causes.items()
    }


Span = tuple[int, int]
"""A range of offsets: the first offset, and the offset after the last."""


def missing_in_all(logs: Sequence[Log], start: Offset) -> list[Span]:
    """Return the offsets at or after `start` that are in no log. Raises CorruptionError, OSError."""
    missing = [(int(start), int(max(log.log_end_offset for log in logs)))]
    for log in logs:
        missing = _subtract(missing, _present(log, log.log_start_offset))
    return missing


def held_of(missing: list[Span], log: Log) -> list[Span]:
    """Return the missing offsets that a log has and that retention would keep. Raises CorruptionError, OSError."""
    return _subtract(missing, _subtract(missing, _present(log, due_start(log)))) if missing else []


def _present(log: Log, start: Offset) -> list[Span]:
    found, begin = [], int(start)
    for torn in torn_segments(log):
        if torn.next_offset > begin:
            found.append((begin, int(torn.end_offset)))
            begin = torn.next_offset
    return [*(one for one in found if one[0] < one[1]), (begin, int(log.log_end_offset))]


def _subtract(spans: list[Span], others: list[Span]) -> list[Span]:
    for start, stop in others:
        pieces = [
            piece for one in spans for piece in ((one[0], min(one[1], start)), (max(one[0], stop), one[1]))
        ]
        spans = [one for one in pieces if one[0] < one[1]]
    return spans


def mend_epochs(logs: Iterable[Log], warn: ReportLine) -> None:
    """Correct logs whose leader epochs contradict their batches. Raises CorruptionError, StorageError, OSError."""
    damaged: CorruptionError | None = None
    different = list(logs)
    if len(different) > 1 and len({log.epochs.entries or log for log in different}) == 1:
        return
    for log in different:
        try:
            entries = true_epochs(log)
        except CorruptionError as error:
            damaged = error
            continue
        if entries is not None and not log.parts.files.read_only:
            warn(f"{log.directory}: its leader epochs contradicted its batches, and were rebuilt from them")
            replace_epochs(log, entries)
    if damaged is not None:
        raise damaged


def _path(log: Log, torn: Sequence[TornSegment]) -> Path:
    return torn[0].path if torn else log.chain.segments[0].log.path
