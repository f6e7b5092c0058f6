"""Ranges of offsets: split into tasks, limited per trigger, and a query's lag. Arithmetic by spark.sql.kafka010's rules."""

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
    """Split ranges, one a partition, into one a task; empty ones fall away.

    No task has more than `max_records` offsets. To come to about `min_partitions` tasks the larger ranges are
    split in proportion to their sizes.
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
    """Share of `parts` for a range of `size` among `total`: to the nearest, at least one."""
    return max(1, (2 * size * parts + total) // (2 * total))


def divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Divide into adjacent ranges whose sizes differ by one at most, the smaller ones first; never an empty one."""
    parts = max(1, min(parts, whole.size))
    small, larger = divmod(whole.size, parts)
    cuts = [whole.start_offset + small * part + max(0, part - parts + larger) for part in range(parts + 1)]
    return [OffsetRange(whole.partition, cuts[part], cuts[part + 1]) for part in range(parts)]


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Return the ends of a batch of about `limit` offsets: each partition advances by its share of what is there.

    A share below one counts as one, so that no partition starves; partitions without news keep their end.
    """
    sizes = {one: end[one] - start.get(one, end[one]) for one in end}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:  # Where both are equal, the shares below come to the same.
        return dict(end)
    return {
        one: start[one] + max(1, size * limit // total) if size > 0 else end[one]
        for one, size in sizes.items()
    }


def count_new(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets between two states of a stream."""
    return sum(max(0, end[one] - start.get(one, end[one])) for one in end)


def must_wait(*, new_offsets: int, min_offsets: int | None, waited_ms: int, max_delay_ms: int) -> bool:
    """Return whether a trigger should wait because there is too little yet (minOffsetsPerTrigger, maxTriggerDelay)."""
    return min_offsets is not None and new_offsets < min_offsets and waited_ms < max_delay_ms


def lag(end: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the number of offsets of each partition that a query has still to read; one it has not seen yet counts whole."""
    return {one: max(0, latest[one] - end.get(one, 0)) for one in sorted(latest)}


_NAME = "PythonMicroBatchStream"
"""Beginning of Spark's name for every stream of a Python data source, behind its package."""


def lag_by_partition(progress: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the offsets left to read, a partition, over all sources of a query that are of this format.

    `progress` is the parsed `StreamingQueryProgress.json`: each source reports the end of its batch and that of the
    partitions (`reportLatestOffset`). Sources that report neither, or in another form, are ignored.
    """
    found: dict[TopicPartition, int] = {}
    for source in progress.get("sources", []):
        if _NAME in source.get("description", ""):
            end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
            found.update(lag(end, latest))
    return found


def _offsets(reported: Any) -> dict[TopicPartition, int]:
    """Return offsets reported as an object, or as its text; none before the first batch, or in another source's form."""
    try:
        return decode_stream_offset(json.loads(reported) if isinstance(reported, str) else reported).offsets
    except (AttributeError, TypeError, ValueError):
        return {}
