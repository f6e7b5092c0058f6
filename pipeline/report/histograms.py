"""Histograms by time and by size, in bounded memory; merging them in any order gives the same result.

By time, all buckets of a histogram have the same width, which is one of WIDTHS. Each of these widths divides the
next. A histogram with too many buckets changes to the next width. So the width depends only on the counted times, not
on how they were divided into parts.

By size, each of the sizes 0 to 7 has a bin. Above 7, there are four bins from each power of two to the next, so that
the width of a bin is at most a quarter of its smallest size:

    bin    0 1 … 7   8   9   10    11    12    13    14    15    16    …
    sizes  0 1 … 7  8-9 10-11 12-13 14-15 16-19 20-23 24-27 28-31 32-39 …
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
WIDTHS = (
    *(1, 10, 100),
    *(_SECOND, 5 * _SECOND, 15 * _SECOND),
    *(_MINUTE, 5 * _MINUTE, 15 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR),
    *(_DAY, 10 * _DAY, 100 * _DAY, 1000 * _DAY, 10_000 * _DAY, 100_000 * _DAY, 10**9 * _DAY),
)
"""Widths of buckets in milliseconds; a few buckets of the last width span all timestamps."""
MAX_HISTOGRAM_BUCKETS = 1000


class Amount(NamedTuple):
    records: int
    bytes: int

    def __add__(self, other: Amount) -> Amount:  # type: ignore[override] # amounts add up, they do not join
        return Amount(self.records + other.records, self.bytes + other.bytes)


@dataclass(slots=True)
class TimeHistogram:
    """Number and bytes of records by time."""

    level: int = 0
    """The width of the buckets, as an index in WIDTHS."""
    buckets: dict[int, Amount] = field(default_factory=dict)
    """Contents of each bucket, by its number: the time divided by the width."""

    @property
    def width_ms(self) -> int:
        return WIDTHS[self.level]

    def count(self, times: Integers, sizes: Integers) -> None:
        """Count records with these times (milliseconds) and sizes (bytes)."""
        self.widen(_level_for(times, self.level))
        numbers, where = np.unique(times // self.width_ms, return_inverse=True)
        records = np.bincount(where, minlength=len(numbers)).tolist()
        octets = np.bincount(where, weights=sizes, minlength=len(numbers)).astype(np.int64).tolist()
        self._add(zip(numbers.tolist(), map(Amount, records, octets), strict=True))

    def merge(self, other: TimeHistogram) -> None:
        """Add the counts of another histogram."""
        self.widen(other.level)
        self._add(_rebinned(other, self.level).items())

    def widen(self, level: int) -> None:
        if level > self.level:
            self.buckets, self.level = _rebinned(self, level), level

    def _add(self, amounts: Iterable[tuple[int, Amount]]) -> None:
        for number, amount in amounts:
            known = self.buckets.get(number)
            self.buckets[number] = amount if known is None else known + amount
        while len(self.buckets) > MAX_HISTOGRAM_BUCKETS and self.level + 1 < len(WIDTHS):
            self.widen(self.level + 1)


def _level_for(times: Integers, level: int) -> int:
    """Return the first level, from `level` on, at which these times need at most MAX_HISTOGRAM_BUCKETS buckets."""
    numbers = np.unique(times // WIDTHS[level])
    while len(numbers) > MAX_HISTOGRAM_BUCKETS and level + 1 < len(WIDTHS):
        numbers = np.unique(numbers // (WIDTHS[level + 1] // WIDTHS[level]))
        level += 1
    return level


def _rebinned(histogram: TimeHistogram, level: int) -> dict[int, Amount]:
    if level == histogram.level:
        return histogram.buckets
    factor = WIDTHS[level] // WIDTHS[histogram.level]
    found: dict[int, Amount] = {}
    for number, amount in histogram.buckets.items():
        known = found.get(number // factor)
        found[number // factor] = amount if known is None else known + amount
    return found


@dataclass(slots=True)
class SizeHistogram:
    """Number of sizes (integers from 0 on) in each bin."""

    count: int = 0
    total: int = 0
    largest: int = 0
    bins: dict[int, int] = field(default_factory=dict)

    def add(self, sizes: Integers) -> None:
        """Count sizes, none of which may be negative."""
        if not len(sizes):
            return
        numbers, counts = np.unique(bins_of(sizes), return_counts=True)
        one = SizeHistogram(
            len(sizes),
            int(sizes.sum()),
            int(sizes.max()),
            dict(zip(numbers.tolist(), counts.tolist(), strict=True)),
        )
        self.merge(one)

    def merge(self, other: SizeHistogram) -> None:
        """Add the counts of another histogram."""
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        for number, count in other.bins.items():
            self.bins[number] = self.bins.get(number, 0) + count

    def quantile(self, share: float) -> int | None:
        """Return a size that at least `share` of all sizes do not exceed; None if the histogram is empty.

        The returned size may be up to a quarter too large.
        """
        wanted, passed = share * self.count, 0
        for number in sorted(self.bins):
            passed += self.bins[number]
            if passed >= wanted:
                return min(bin_start(number + 1) - 1, self.largest)
        return None


def bins_of(sizes: Integers) -> Integers:
    """Return the bin of each size."""
    # The exponent and the first two fraction bits of a float64, which represents sizes up to 2^53 exactly.
    mantissa, exponent = np.frexp(sizes.astype(np.float64))
    upper = 4 * (exponent.astype(np.int64) - 3) + np.floor(mantissa * 8).astype(np.int64)
    return np.where(sizes < 8, sizes, upper)


def bin_start(number: int) -> int:
    """Return the smallest size in bin `number`."""
    return number if number < 8 else (number % 4 + 4) << (number // 4 - 1)
