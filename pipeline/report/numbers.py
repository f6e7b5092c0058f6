"""The numbers of one partition, or of a part of it: those of parts add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from topicfs.pipeline.report.histograms import Integers, SizeHistogram, TimeHistogram
from topicfs.storage.model import TopicPartition


class StoredBytes(NamedTuple):
    """Bytes of batches on disk, and uncompressed."""

    bytes: int
    uncompressed_bytes: int

    def __add__(self, other: StoredBytes) -> StoredBytes:  # type: ignore[override] # amounts add up, they do not join
        return StoredBytes(*(one + another for one, another in zip(self, other, strict=True)))


NOTHING_STORED = StoredBytes(0, 0)


class GroupLag(NamedTuple):
    """The place of a group of readers in a partition."""

    group: str
    position: int
    """Offset of the next record that it reads."""
    lag: int
    """How many offsets lie between that and the last stable offset."""


@dataclass(slots=True)
class PartitionNumbers:
    """Everything that a report shows of a partition; times in milliseconds since the epoch."""

    partition: TopicPartition
    segments: int = 0
    log_bytes: int = 0
    """Size of the `.log` files, as far as they were read."""
    damaged_batches: int = 0
    """Left out of all else."""
    changed_segments: int = 0
    """Removed or rewritten while they were read; left out of all else."""
    codecs: dict[str, StoredBytes] = field(default_factory=dict)
    """Batches with records by their codec."""
    records: int = 0
    stamped_records: int = 0
    """Number of records that got their time by the broker (LogAppendTime)."""
    first_time: int | None = None
    last_time: int | None = None
    times: TimeHistogram = field(default_factory=TimeHistogram)
    """Records by their time; the bytes are those of keys and values."""
    keys: SizeHistogram = field(default_factory=SizeHistogram)
    null_keys: int = 0
    values: SizeHistogram = field(default_factory=SizeHistogram)
    null_values: int = 0
    lags: SizeHistogram = field(default_factory=SizeHistogram)
    """Lags of stamped records, from the producer's time to the broker's."""
    early_records: int = 0
    """Stamped records whose producer's clock was ahead of the broker's."""
    segment_lags: list[int] = field(default_factory=list)
    """Times from a segment's largest timestamp to its last append (its file's time of change), where producers gave the times."""
    groups: tuple[GroupLag, ...] = ()
    """The groups that have a position in it, by name; none in the numbers of a part."""

    @property
    def stored(self) -> StoredBytes:
        return sum(self.codecs.values(), NOTHING_STORED)

    def count_times(self, times: Integers, sizes: Integers) -> None:
        """Count records by time; -1 is none."""
        timed = times != -1
        times, sizes = times[timed], sizes[timed]
        if len(times):
            self.span(int(times.min()), int(times.max()))
            self.times.count(times, sizes)

    def span(self, first_time: int | None, last_time: int | None) -> None:
        """Extend the span from the first to the last time by these times."""
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
        """Count from when to when stamped records were on their way; negative where clocks differ."""
        self.lags.add(lags[lags >= 0])
        self.early_records += int((lags < 0).sum())

    def store(self, codec: str, stored: StoredBytes) -> None:
        self.codecs[codec] = self.codecs.get(codec, NOTHING_STORED) + stored

    def merge(self, other: PartitionNumbers) -> None:
        """Add what was counted of other segments."""
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
"""Fields of a partition's numbers whose sum over its parts is that of the whole."""


def merged(parts: Iterable[PartitionNumbers]) -> list[PartitionNumbers]:
    """Return the numbers of each partition once, by name."""
    found: dict[TopicPartition, PartitionNumbers] = {}
    for part in parts:
        found.setdefault(part.partition, PartitionNumbers(part.partition)).merge(part)
    return [found[partition] for partition in sorted(found)]
