"""One scrape: samples, family by family, with pauses in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family

from topicfs.fusefs.metrics.table import Metric, MetricKind
from topicfs.storage.messages import printable

STEP_SECONDS, REST_SECONDS = 0.002, 0.001
"""A scrape works for STEP_SECONDS, then pauses for REST_SECONDS, so that the event loop gets the interpreter."""
STEPS_PER_CLOCK_CHECK = 32
"""Number of small steps between two readings of the clock; a reading takes as long as a step."""

FIRST_BUCKET, LAST_BUCKET = 10, 34
"""The first bucket shown ends at 2^10 ns (1 µs), the last bucket at 2^34 ns (17 s)."""

Item = TypeVar("Item")

Sample: TypeAlias = tuple[Sequence[str], float]
"""The values of a metric's labels, and the metric's value."""


class Pace:
    """The pace of a scrape: alternates work and pauses."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._step = step_seconds
        self._left = STEPS_PER_CLOCK_CHECK
        self._until = clock() + step_seconds

    def rest(self) -> None:
        """Pause if the scrape has worked long enough."""
        if self._clock() >= self._until:
            self._sleep(REST_SECONDS)
            self._until = self._clock() + self._step

    def count_step(self) -> None:
        """Count a small step, and pause if the scrape has worked long enough."""
        self._left -= 1
        if not self._left:
            self._left = STEPS_PER_CLOCK_CHECK
            self.rest()

    def paced(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items, pausing after each time slice."""
        for item in items:
            yield item
            self.rest()


def label_text(name: str) -> str:
    """Return a name as the value of a label. Prometheus' library escapes line ends, quotes and backslashes.

    The text format has no escapes for other unprintable characters, so they are escaped as in Python.
    """
    return "\n".join(map(printable, name.split("\n")))


def family(metric: Metric, samples: Iterable[Sample]) -> Family:
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    found = kind(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in samples:
        found.add_metric(list(labels), value)
    return found


def single(metric: Metric, value: float) -> Family:
    """Return the only sample of a metric without labels."""
    return family(metric, [((), value)])


def histogram(metric: Metric, rows: Iterable[tuple[Sequence[str], Sequence[int], int]]) -> Family:
    """Return the samples of a histogram. A row has labels, the counts of buckets (bucket N ends at 2^N ns), and the sum."""
    found = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for labels, buckets, total_ns in rows:
        shown: list[tuple[str, float]] = []
        below = sum(buckets[:FIRST_BUCKET])
        for number in range(FIRST_BUCKET, LAST_BUCKET + 1):
            below += buckets[number]
            shown.append((repr(2**number / 1e9), below))
        shown.append(("+Inf", sum(buckets)))
        found.add_metric(list(labels), shown, total_ns / 1e9)
    return found
