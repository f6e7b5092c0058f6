"""The topics and partitions with a plot of their own, and the span of time that the plots show.

A page with hundreds of panels is hard to read, so only the largest topics have panels, and all others are combined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from topicfs.pipeline.report.histograms import WIDTHS, Amount, TimeHistogram
from topicfs.pipeline.report.numbers import PartitionNumbers
from topicfs.storage.model import TopicPartition

MAX_SERIES = 8
"""Maximum number of shades in a panel; more shades would look alike."""
MAX_TIME_BUCKETS = 300
"""Maximum number of buckets on a time axis; more buckets would be narrower than a line."""
MIN_BUCKETS = 30
MIN_WIDTH_MS = 1000
"""Smallest width of a bucket, because nobody needs a plot finer than seconds."""
MAX_TIME = 253_402_300_800_000
"""The end of the year 9999. Times later than this or before 1970 are mistakes that would flatten every plot."""
STRAY_SHARE = 0.001
"""Largest share of a topic's records that a plot may leave out at each end, because these records lie far away in
time.
"""


@dataclass(frozen=True, slots=True)
class TopicNumbers:
    """A topic, or several topics combined, with the numbers of each partition."""

    name: str
    partitions: tuple[PartitionNumbers, ...]
    total: PartitionNumbers
    """Sum of the numbers of all partitions."""

    @classmethod
    def of(cls, name: str, partitions: Iterable[PartitionNumbers]) -> TopicNumbers:
        everything = tuple(sorted(partitions, key=lambda one: one.partition))
        return cls(name, everything, combined(everything))


class PageTopics(NamedTuple):
    shown: list[TopicNumbers]
    """The topics with plots, the largest first."""
    others: list[TopicNumbers]
    """The topics without plots, the largest first."""


class Series(NamedTuple):
    label: str
    numbers: PartitionNumbers


class TimeAxis(NamedTuple):
    """The span of time of all plots over time, and its buckets."""

    start_ms: int
    end_ms: int
    """Exclusive end. The start and the end are boundaries of buckets."""
    level: int
    left_out: int
    """Number of records outside of the span."""

    @property
    def width_ms(self) -> int:
        return WIDTHS[self.level]

    def amounts(self, times: TimeHistogram) -> list[Amount]:
        """Return the contents of each bucket of the axis; the buckets of `times` may be narrower."""
        wide = TimeHistogram()
        wide.merge(times)
        wide.widen(self.level)
        numbers = range(self.start_ms // self.width_ms, self.end_ms // self.width_ms)
        return [wide.buckets.get(number, Amount(0, 0)) for number in numbers]


def combined(parts: Iterable[PartitionNumbers]) -> PartitionNumbers:
    total = PartitionNumbers(TopicPartition("", -1))
    for part in parts:
        total.merge(part)
    return total


def _largest_first(numbers: PartitionNumbers) -> tuple[int, int]:
    """Return a key that sorts by bytes on disk or, if they are unknown, by bytes of keys and values."""
    return -numbers.log_bytes, -(numbers.keys.total + numbers.values.total)


def choose(numbers: Iterable[PartitionNumbers], *, top: int) -> PageTopics:
    """Choose the `top` topics with the most bytes. If only one topic would be left out, choose it too."""
    by_topic: dict[str, list[PartitionNumbers]] = {}
    for one in numbers:
        by_topic.setdefault(one.partition.topic, []).append(one)
    topics = [TopicNumbers.of(name, partitions) for name, partitions in by_topic.items()]
    topics.sort(key=lambda topic: (*_largest_first(topic.total), topic.name))
    shown = len(topics) if len(topics) <= top + 1 else top
    return PageTopics(topics[:shown], topics[shown:])


def series_of(topic: TopicNumbers) -> list[Series]:
    """Return the partitions of a topic by number. If there are too many, combine all but the largest."""
    if len(topic.partitions) <= MAX_SERIES:
        return [Series(f"partition {one.partition.partition}", one) for one in topic.partitions]
    by_size = sorted(topic.partitions, key=lambda one: (*_largest_first(one), one.partition))
    kept = sorted(by_size[: MAX_SERIES - 1], key=lambda one: one.partition)
    others = by_size[MAX_SERIES - 1 :]
    return [
        *(Series(f"partition {one.partition.partition}", one) for one in kept),
        Series(f"{len(others)} others", combined(others)),
    ]


def time_axis(topics: Sequence[TopicNumbers]) -> TimeAxis | None:
    """Return the span that has nearly all of each topic's records; None if no record has a time."""
    spans = [span for topic in topics for span in _span(topic.total.times)]
    if not spans:
        return None
    start, end = min(first for first, _ in spans), max(last for _, last in spans)
    level = max(WIDTHS.index(MIN_WIDTH_MS), *(topic.total.times.level for topic in topics))
    while level + 1 < len(WIDTHS) and (end - start) / WIDTHS[level] > MAX_TIME_BUCKETS:
        level += 1
    width = WIDTHS[level]
    # A short burst of records is drawn as a peak, with time on both sides of it.
    lacking = max(0, MIN_BUCKETS - -(-(end - start) // width)) // 2 * width
    start, end = max(0, (start - lacking) // width * width), -(-(end + lacking) // width) * width
    axis = TimeAxis(start, end, level, 0)
    there = sum(sum(one.records for one in topic.total.times.buckets.values()) for topic in topics)
    drawn = sum(sum(one.records for one in axis.amounts(topic.total.times)) for topic in topics)
    return axis._replace(left_out=there - drawn)


def _span(times: TimeHistogram) -> Iterator[tuple[int, int]]:
    """Yield the span of time in which a topic is drawn; nothing if no record has a time that can be drawn.

    The span covers all records, unless a few records at its ends would more than double it.
    """
    width = times.width_ms
    buckets = [
        (number * width, amount.records)
        for number, amount in sorted(times.buckets.items())
        if 0 <= number * width < MAX_TIME
    ]
    if not buckets:
        return
    allowed = STRAY_SHARE * sum(records for _, records in buckets)
    first, last = _inner(buckets, allowed), _inner(buckets[::-1], allowed) + width
    whole_first, whole_last = buckets[0][0], buckets[-1][0] + width
    if whole_last - whole_first <= 2 * (last - first):
        first, last = whole_first, whole_last
    yield first, last


def _inner(buckets: Iterable[tuple[int, int]], allowed: float) -> int:
    """Return the start of the first bucket that is drawn.

    The buckets before it have at most `allowed` records in total.
    """
    passed = 0
    for start, records in buckets:
        passed += records
        if passed > allowed:
            return start
    raise AssertionError("the buckets have no more records than `allowed`, which is a share of all records")
