"""The numbers of a partition, or of a part of it. The numbers of all parts add up to those of the partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from topicfs.pipeline.report.histograms import Integers, SizeHistogram, TimeHistogram
from topicfs.storage.model import TopicPartition


class StoredBytes(NamedTuple):
    """Bytes of batches, as stored and uncompressed."""

    bytes: int
    uncompressed_bytes: int

    def __add__(self, other: StoredBytes) -> StoredBytes:  # type: ignore[override] # amounts add up, they do not join
        return StoredBytes(*(one + another for one, another in zip(self, other, strict=True)))


NOTHING_STORED = StoredBytes(0, 0)


class GroupLag(NamedTuple):
    """The position and lag that a group has in a partition."""

    group: str
    position: int
    """Offset of the next record that the group reads."""
    lag: int
    """Number of offsets from `position` to the last stable offset."""


@dataclass(slots=True)
class PartitionNumbers:
    """All numbers of a partition that a report shows; times are in milliseconds since 1970."""

    partition: TopicPartition
    segments: int = 0
    log_bytes: int = 0
    """Bytes of the `.log` files that were read."""
    damaged_batches: int = 0
    """Number of damaged batches; no other number includes them."""
    changed_segments: int = 0
    """Number of segments that were removed or rewritten during the read; no other number includes them."""
    codecs: dict[str, StoredBytes] = field(default_factory=dict)
    """Bytes of the batches that have records, by codec."""
    records: int = 0
    stamped_records: int = 0
    """Number of records whose timestamp was set by the broker (LogAppendTime)."""
    first_time: int | None = None
    last_time: int | None = None
    times: TimeHistogram = field(default_factory=TimeHistogram)
    """Records by time, with the bytes of their keys and values."""
    keys: SizeHistogram = field(default_factory=SizeHistogram)
    null_keys: int = 0
    values: SizeHistogram = field(default_factory=SizeHistogram)
    null_values: int = 0
    lags: SizeHistogram = field(default_factory=SizeHistogram)
    """Lags of stamped records: the broker's time minus the producer's time."""
    early_records: int = 0
    """Number of stamped records with a producer's time later than the broker's time."""
    segment_lags: list[int] = field(default_factory=list)
    """For each segment, the time from its largest timestamp (set by a producer) to its last append (the file's
    mtime).
    """
    groups: tuple[GroupLag, ...] = ()
    """The groups with a position in the partition, sorted by name; empty in the numbers of a part."""

    @property
    def stored(self) -> StoredBytes:
        return sum(self.codecs.values(), NOTHING_STORED)

    def count_times(self, times: Integers, sizes: Integers) -> None:
        """Count records by time. The time -1 means that a record has no time."""
        timed = times != -1
        times, sizes = times[timed], sizes[timed]
        if len(times):
            self.span(int(times.min()), int(times.max()))
            self.times.count(times, sizes)

    def span(self, first_time: int | None, last_time: int | None) -> None:
        """Extend the span of times so that it includes `first_time` and `last_time`."""
        if first_time is not None:
            self.first_time = first_time if self.first_time is None else min(self.first_time, first_time)
        if last_time is not None:
            self.last_time = last_time if self.last_time is None else max(self.last_time, last_time)

    def count_sizes(self, keys: Integers, values: Integers) -> None:
        self.keys.add(keys[keys >= 0])
        self.null_keys += int((keys < 0).sum())
        self.values.add(values[values >= 0])
        self.null_values += int((values < 0).sum())

    def count_lags(self, lags: Integers) -> None:
        """Count lags of stamped records, from the producer's time to the broker's time; negative if clocks differ."""
        self.lags.add(lags[lags >= 0])
        self.early_records += int((lags < 0).sum())

    def store(self, codec: str, stored: StoredBytes) -> None:
        self.codecs[codec] = self.codecs.get(codec, NOTHING_STORED) + stored

    def merge(self, other: PartitionNumbers) -> None:
        """Add the numbers of another part."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for codec, stored in other.codecs.items():
            self.store(codec, stored)
        self.span(other.first_time, other.last_time)
        self.times.merge(other.times)
        self.keys.merge(other.keys)
        self.values.merge(other.values)
        self.lags.merge(other.lags)
        self.segment_lags = sorted([*self.segment_lags, *other.segment_lags])
        self.groups = tuple(sorted({*self.groups, *other.groups}))


COUNTS = (
    "segments",
    "log_bytes",
    "damaged_batches",
    "changed_segments",
    "records",
    "stamped_records",
    "null_keys",
    "null_values",
    "early_records",
)
"""Fields that are summed when the numbers of parts are merged."""


def merged(parts: Iterable[PartitionNumbers]) -> list[PartitionNumbers]:
    found: dict[TopicPartition, PartitionNumbers] = {}
    for part in parts:
        found.setdefault(part.partition, PartitionNumbers(part.partition)).merge(part)
    return [found[partition] for partition in sorted(found)]
