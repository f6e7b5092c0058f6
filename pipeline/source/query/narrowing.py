"""The topics, partitions, offsets and times to which the filters of a query narrow its read.

Spark keeps every filter and applies it again: a narrowing may admit too much, never too little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from storage.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Conditions that all hold at once."""

    topics: frozenset[str] | None = None
    """None: any."""
    partitions: frozenset[int] | None = None
    start_partition: int | None = None
    end_partition: int | None = None
    start_offset: int = 0
    end_offset: int | None = None
    """Exclusive; None: no end."""
    start_timestamp: int | None = None
    """Milliseconds. Times need not ascend along a log, so that there is no end of this kind."""

    def admits(self, partition: TopicPartition) -> bool:
        """Return whether records of `partition` can pass."""
        topic, number = partition
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or number in self.partitions)
            and (self.start_partition is None or number >= self.start_partition)
            and (self.end_partition is None or number < self.end_partition)
        )


EVERYTHING = Narrowing()


def one_of(narrowing: Narrowing, column: str, values: list[Any]) -> Narrowing:
    """Narrow to rows whose column equals one of `values`."""
    present = [value for value in values if value is not None]
    if column == "topic":
        topics = frozenset(present)
        return replace(narrowing, topics=topics if narrowing.topics is None else narrowing.topics & topics)
    if column == "partition":
        numbers = frozenset(present)
        known = narrowing.partitions
        return replace(narrowing, partitions=numbers if known is None else known & numbers)
    if not present:
        return replace(narrowing, topics=frozenset())
    return below(at_least(narrowing, column, min(present)), column, max(present) + 1)


def at_least(narrowing: Narrowing, column: str, value: int) -> Narrowing:
    """Narrow to rows whose column, a whole number (a timestamp in milliseconds, rounded down), is `value` or more."""
    if column == "offset":
        return replace(narrowing, start_offset=max(narrowing.start_offset, value))
    if column == "timestamp":
        known = narrowing.start_timestamp
        return replace(narrowing, start_timestamp=value if known is None else max(known, value))
    if column == "partition":
        known = narrowing.start_partition
        return replace(narrowing, start_partition=value if known is None else max(known, value))
    return narrowing


def below(narrowing: Narrowing, column: str, value: int) -> Narrowing:
    """Narrow to rows whose column is less than `value`."""
    if column == "offset":
        known = narrowing.end_offset
        return replace(narrowing, end_offset=value if known is None else min(known, value))
    if column == "partition":
        known = narrowing.end_partition
        return replace(narrowing, end_partition=value if known is None else min(known, value))
    return narrowing
