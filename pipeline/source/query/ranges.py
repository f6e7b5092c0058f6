"""Ranges of offsets by the rules of spark.sql.kafka010: splitting into tasks, limits per trigger, and a query's lag."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from topicfs.pipeline.source.query.offsets import decode_stream_offset
from topicfs.storage.model import TopicPartition


class OffsetRange(NamedTuple):
    """Offsets [start_offset, end_offset) of a partition, for one task."""

    partition: TopicPartition
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Split ranges (one per partition) into ranges for one task each; empty ranges are dropped.

    No task has more than `max_records` offsets. To get about `min_partitions` tasks, larger ranges are split by size.
    """
    parts = [one for one in ranges if one.size > 0]
    if max_records is not None:
        parts = [part for one in parts for part in divide(one, -(-one.size // max_records))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(one.size for one in parts)
    small = {one for one in parts if _share(one.size, total, min_partitions) == 1}
    large_total = sum(one.size for one in parts if one not in small)
    left = max(1, min_partitions - len(small))
    return [
        part
        for one in parts
        for part in ([one] if one in small else divide(one, _share(one.size, large_total, left)))
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Return how many of `parts` a range of `size` gets, in proportion to `total`: rounded, but at least one part."""
    return max(1, (2 * size * parts + total) // (2 * total))


def divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Divide `whole` into adjacent, nonempty ranges whose sizes differ by at most one; smaller ranges come first."""
    parts = max(1, min(parts, whole.size))
    small, larger = divmod(whole.size, parts)
    cuts = [whole.start_offset + small * part + max(0, part - parts + larger) for part in range(parts + 1)]
    return [OffsetRange(whole.partition, cuts[part], cuts[part + 1]) for part in range(parts)]


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Return where a batch of about `limit` offsets ends. Each partition's share is in proportion to its new offsets.

    A share below one offset is rounded up to one, so that each partition with new offsets makes progress.
    """
    sizes = {one: end[one] - start.get(one, end[one]) for one in end}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:  # If both were equal, the formula below would also return `end`.
        return dict(end)
    return {
        one: start[one] + max(1, size * limit // total) if size > 0 else end[one]
        for one, size in sizes.items()
    }


def count_new(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Return the number of new offsets between two states of a stream."""
    return sum(max(0, end[one] - start.get(one, end[one])) for one in end)


def must_wait(*, new_offsets: int, min_offsets: int | None, waited_ms: int, max_delay_ms: int) -> bool:
    """Return whether a trigger should wait for more offsets (minOffsetsPerTrigger, maxTriggerDelay)."""
    return min_offsets is not None and new_offsets < min_offsets and waited_ms < max_delay_ms


def lag(end: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition a query has not read: all offsets, if the partition is new to it."""
    return {one: max(0, latest[one] - end.get(one, 0)) for one in sorted(latest)}


_NAME = "PythonMicroBatchStream"
"""Part of the description of every stream from a Python data source."""


def lag_by_partition(progress: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return how many offsets are left to read, by partition, over all sources of a query that have this format.

    `progress` is the parsed `StreamingQueryProgress.json`. Each source reports the end of its batch and the ends of the
    partitions (`reportLatestOffset`). Sources that do not report them, or report them in another form, are ignored.
    """
    found: dict[TopicPartition, int] = {}
    for source in progress.get("sources", []):
        if _NAME in source.get("description", ""):
            end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
            found.update(lag(end, latest))
    return found


def _offsets(reported: Any) -> dict[TopicPartition, int]:
    """Parse offsets from an object or its JSON. Return none before the first batch, or for another source's form."""
    try:
        return decode_stream_offset(json.loads(reported) if isinstance(reported, str) else reported).offsets
    except (AttributeError, TypeError, ValueError):
        return {}
