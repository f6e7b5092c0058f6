"""The topics, partitions, offsets and times to which a query's filters narrow the read.

A read never gets too few records. It may get too many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from topicfs.storage.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The conditions of a query's filters that limit what is read. A record must meet all of them."""

    topics: frozenset[str] | None = None
    """Names of topics; None: any topic."""
    partitions: frozenset[int] | None = None
    start_partition: int | None = None
    end_partition: int | None = None
    start_offset: int = 0
    end_offset: int | None = None
    """Exclusive end offset; None: the read has no end."""
    start_timestamp: int | None = None
    """Earliest time in milliseconds. There is no end time, because timestamps need not ascend along a log."""

    def admits(self, partition: TopicPartition) -> bool:
        """Return whether records of `partition` can meet the conditions."""
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
    if column in {"topic", "partition"}:
        name, found = f"{column}s", frozenset(present)
        known = getattr(narrowing, name)
        narrower: dict[str, Any] = {name: found if known is None else known & found}
        return replace(narrowing, **narrower)
    if not present:
        return replace(narrowing, topics=frozenset())
    return below(at_least(narrowing, column, min(present)), column, max(present) + 1)


def at_least(narrowing: Narrowing, column: str, value: int) -> Narrowing:
    """Narrow to rows whose `column` is `value` or more: a number, or a timestamp in milliseconds, rounded down."""
    return _bounded(narrowing, f"start_{column}", value, max)


def below(narrowing: Narrowing, column: str, value: int) -> Narrowing:
    """Narrow to rows whose `column` is less than `value`."""
    return narrowing if column == "timestamp" else _bounded(narrowing, f"end_{column}", value, min)


def _bounded(narrowing: Narrowing, name: str, value: int, choose: Callable[[int, int], int]) -> Narrowing:
    known = getattr(narrowing, name)
    narrower: dict[str, Any] = {name: value if known is None else choose(known, value)}
    return replace(narrowing, **narrower)
