"""The findings of a dump, collected by kind and file, and printed in the order of Kafka's hash maps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias, TypeVar

from topicfs.storage.model import Offset, Timestamp
from topicfs.storage.partitioning import hash_map_order

T = TypeVar("T")


TimestampMismatch: TypeAlias = tuple[Timestamp, Timestamp]
"""A time index entry's timestamp, and the timestamp that it contradicts: the batch's or the previous entry's."""


class DumpReport:
    """The findings of a dump; each mapping's key is the absolute path of a file."""

    def __init__(self) -> None:
        self.index_mismatches: defaultdict[str, dict[Offset, Offset]] = defaultdict(dict)
        """The index entries that point to a wrong batch: each entry's offset, and the last offset of that batch."""
        self.time_mismatches: defaultdict[str, list[TimestampMismatch]] = defaultdict(list)
        """Time index entries whose timestamp is not the timestamp of their batch."""
        self.times_out_of_order: defaultdict[str, list[TimestampMismatch]] = defaultdict(list)
        """Time index entries that are not later than the previous entry."""
        self.offsets_not_found: defaultdict[str, list[tuple[Offset, Offset]]] = defaultdict(list)
        """Time index entries whose offset is not the last of a batch: this offset, and the last offset of the batch."""
        self.gaps: defaultdict[str, dict[Offset, Offset]] = defaultdict(dict)
        """Pairs of a record's offset and the next record's offset, if the second is not the first plus 1."""

    def lines(self) -> Iterator[str]:
        """Yield Kafka's lines for standard error, in its order."""
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
            for indexed, found in missing:
                yield f"Indexed offset: {indexed}, found log offset: {found}"
        for file, offsets in _walk(self.gaps):
            yield f"Non-consecutive offsets in {file}"
            for offset in sorted(offsets):
                yield f"  {offset} is followed by {offsets[offset]}"


def _times(findings: Mapping[str, list[TimestampMismatch]], title: str, other: str) -> Iterator[str]:
    for file, mismatches in _walk(findings):
        yield f"{title} :{file}"
        for indexed, contradicted in mismatches:
            yield f"  Index timestamp: {indexed}, {other}: {contradicted}"


def _walk(findings: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    return ((file, findings[file]) for file in hash_map_order(findings))


def optional_long(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
