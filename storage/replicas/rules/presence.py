"""The comparison of the logs of a partition's replicas by what each lacks: nothing is deleted from one because another one lost it.

    agreed     ├──────────────┬──────────────┬─────────── …     the least log start of those in sync
    replica 1  ├──────────────┼──────────────┼────── …
    replica 2                 ├──────────────┼────── …          lacks its first segment
    replica 3  ├──────────────┼──────┤       ├────── …          lacks offsets before its third segment

Compared are the log starts and the base offset and size of closed segments; only where they differ the ends of the segments
are looked up. What retention would remove now is missing nowhere. Logs that compaction has been through differ without any
damage: of these only the log starts are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from storage.errors import CorruptionError
from storage.log.log import Log
from storage.log.soundness import TornSegment, replace_epochs, torn_segments, true_epochs
from storage.messages import Say
from storage.model import Offset
from storage.replicas.rules.state import ReplicaId
from storage.retention.deletion import due_start


class Holding(NamedTuple):
    """The offsets and bytes of a log, as far as they are known without reading it."""

    start_offset: Offset
    end_offset: Offset
    closed: Mapping[Offset, tuple[Offset, int]]
    """Of each closed segment, by its base offset, where the next one begins, and its bytes; empty after compaction."""


class Absence(NamedTuple):
    """Something that a replica lacks, or has beside its batches."""

    path: Path
    """The file about which it is."""
    cause: str
    elsewhere: bool
    """True if another replica in sync lacks nothing: it is copied from that one."""


def holding_of(log: Log) -> Holding:
    """Return what a log has."""
    state = log.parts.state
    bases, closed = state.chain.base_offsets, {}
    if not log.config.compacts and log.parts.first_dirty_offset is None:
        for segment, stop in zip(state.chain.segments, bases[1:], strict=False):
            if stop > state.start_offset:
                closed[segment.base_offset] = stop, segment.size
    return Holding(state.start_offset, state.end_offset, closed)


def are_alike(holdings: Sequence[Holding]) -> bool:
    """Return whether the logs begin alike and have the same closed segments, up to the end of the shortest."""
    end = min(one.end_offset for one in holdings)
    known = [
        (start, {base: part for base, part in closed.items() if start < part[0] <= end})
        for start, _, closed in holdings
    ]
    return all(one == other for one, other in combinations(known, 2))


def lacking(
    holdings: Mapping[ReplicaId, Holding], torn: Mapping[ReplicaId, Sequence[TornSegment]]
) -> dict[ReplicaId, str]:
    """Return what each replica lacks that another one has."""
    least = min(one.start_offset for one in holdings.values())
    found = {
        number: f"offsets {least} to {one.start_offset - 1} are missing"
        for number, one in holdings.items()
        if one.start_offset > least
    }
    for number, segments in torn.items():
        for segment in segments:
            if any(
                one.start_offset <= max(segment.base_offset, least)
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
    """Return what the logs of replicas in sync lack; of one alone what it shows by itself (CorruptionError, OSError)."""
    holdings = {number: holding_of(log) for number, log in logs.items()}
    if len({one.start_offset for one in holdings.values()}) > 1:
        holdings = {
            number: one._replace(start_offset=due_start(logs[number])) for number, one in holdings.items()
        }
    if len(logs) > 1 and are_alike(list(holdings.values())):
        return {}
    torn = {number: torn_segments(log) for number, log in logs.items()}
    causes = lacking(holdings, torn) if logs else {}
    for number, segments in torn.items():
        for segment in segments:
            causes.setdefault(number, segment.cause)
    whole = len(causes) < len(logs)
    return {
        number: Absence(_path(logs[number], torn[number]), cause, whole) for number, cause in causes.items()
    }


def mend_epochs(logs: Iterable[Log], warn: Say) -> None:
    """Give logs the leader epochs of their batches where they have others, before anyone goes by them (StorageError, OSError).

    Logs with the same ones are not looked into. CorruptionError is raised in the end, of one that is damaged.
    """
    damaged: CorruptionError | None = None
    different = list(logs)
    if len(different) > 1 and len({log.epochs.entries for log in different}) == 1:
        return
    for log in different:
        try:
            entries = true_epochs(log)
        except CorruptionError as error:
            damaged = error
            continue
        if entries is not None and not log.parts.files.read_only:
            warn(f"{log.directory}: its leader epochs were not those of its batches: made again of them")
            replace_epochs(log, entries)
    if damaged is not None:
        raise damaged


def _path(log: Log, torn: Sequence[TornSegment]) -> Path:
    return torn[0].path if torn else log.chain.segments[0].log.path
