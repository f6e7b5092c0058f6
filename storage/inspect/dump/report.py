"""The findings of a dump: collected by kind and file while it runs, printed when it is done.

Kafka keeps these in hash maps keyed by absolute path; so do we, for the sake of the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from storage.inspect.dump.java import hash_map_order
from storage.model import Offset, Timestamp

T = TypeVar("T")


class OffsetMismatch(NamedTuple):
    """An offset index entry and the last offset of the batch that it leads to."""

    index_offset: Offset
    log_offset: Offset


class TimestampMismatch(NamedTuple):
    """A time index entry's timestamp and what contradicts it: the batch's, or the entry's before."""

    index_timestamp: Timestamp
    other_timestamp: Timestamp


@dataclass(frozen=True, slots=True)
class DumpReport:
    """Findings by file (absolute path as text)."""

    index_mismatches: dict[str, dict[Offset, Offset]] = field(default_factory=dict)
    """Index offset to log offset."""
    time_mismatches: dict[str, list[TimestampMismatch]] = field(default_factory=dict)
    times_out_of_order: dict[str, list[TimestampMismatch]] = field(default_factory=dict)
    offsets_not_found: dict[str, list[OffsetMismatch]] = field(default_factory=dict)
    gaps: dict[str, dict[Offset, Offset]] = field(default_factory=dict)
    """Record offset to the one that follows it."""

    def index_mismatch(self, file: Path, mismatch: OffsetMismatch) -> None:
        """Note an entry of an offset index that leads to another batch than it says."""
        self.index_mismatches.setdefault(str(file), {})[mismatch.index_offset] = mismatch.log_offset

    def time_mismatch(self, file: Path, mismatch: TimestampMismatch) -> None:
        """Note an entry of a time index whose batch has another largest timestamp."""
        self.time_mismatches.setdefault(str(file), []).append(mismatch)

    def time_out_of_order(self, file: Path, mismatch: TimestampMismatch) -> None:
        """Note an entry of a time index that is not later than the one before."""
        self.times_out_of_order.setdefault(str(file), []).append(mismatch)

    def offset_not_found(self, file: Path, mismatch: OffsetMismatch) -> None:
        """Note an entry of a time index whose offset ends no batch."""
        self.offsets_not_found.setdefault(str(file), []).append(mismatch)

    def gap(self, file: Path, offset: Offset, next_offset: Offset) -> None:
        """Note two records that follow each other without adjacent offsets."""
        self.gaps.setdefault(str(file), {})[offset] = next_offset

    def lines(self) -> Iterator[str]:
        """Yield Kafka's lines to standard error, in its order."""
        for file, offsets in _walk(self.index_mismatches):
            yield f"Mismatches in :{file}"
            for index_offset in sorted(offsets, reverse=True):
                yield f"  Index offset: {index_offset}, log offset: {offsets[index_offset]}"
        yield from _times(self.time_mismatches, "Found timestamp mismatch in", "log timestamp")
        yield from _times(
            self.times_out_of_order, "Found out of order timestamp in", "Previously indexed timestamp"
        )
        for file, missing in _walk(self.offsets_not_found):
            yield f"The following indexed offsets are not found in :{file}"
            for entry in missing:
                yield f"Indexed offset: {entry.index_offset}, found log offset: {entry.log_offset}"
        for file, offsets in _walk(self.gaps):
            yield f"Non-consecutive offsets in {file}"
            for offset in sorted(offsets):
                yield f"  {offset} is followed by {offsets[offset]}"


def _times(findings: Mapping[str, list[TimestampMismatch]], title: str, other: str) -> Iterator[str]:
    for file, mismatches in _walk(findings):
        yield f"{title} :{file}"
        for mismatch in mismatches:
            yield f"  Index timestamp: {mismatch.index_timestamp}, {other}: {mismatch.other_timestamp}"


def _walk(findings: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    return ((file, findings[file]) for file in hash_map_order(findings))
