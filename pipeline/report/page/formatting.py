"""Formats numbers, sizes, times and durations, short enough for the ticks of an axis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATIONS = (
    (86_400_000, "day", "d"),
    (3_600_000, "hour", "h"),
    (60_000, "minute", "min"),
    (1000, "second", "s"),
    (1, "millisecond", "ms"),
)


def whole(number: int) -> str:
    """Format 1234567 as `1,234,567`."""
    return f"{number:,}"


def short(number: float) -> str:
    """Format 1234567 as `1.2 M`, with at most three digits."""
    return _scaled(number, ("", " k", " M", " G", " T", " P"))


def size(octets: float) -> str:
    """Format 1234567 bytes as `1.2 MB`."""
    return _scaled(octets, (" B", " kB", " MB", " GB", " TB", " PB"))


def _scaled(number: float, units: tuple[str, ...]) -> str:
    at = 0
    while abs(number) >= 999.5 and at + 1 < len(units):
        number, at = number / 1000, at + 1
    digits = 1 if at and abs(number) < 9.95 else 0
    text = f"{number:.{digits}f}" if at or number == int(number) else f"{number:.1f}"
    return text.removesuffix(".0") + units[at]


def duration(milliseconds: float) -> str:
    """Format 5400000 milliseconds as `1.5 h`."""
    for unit, _, name in _DURATIONS:
        if abs(milliseconds) >= unit:
            return f"{milliseconds / unit:.1f}".removesuffix(".0") + f" {name}"
    return "0 ms"


def each(width_ms: int) -> str:
    """Format the width of a bucket: 3600000 as `hour`, 21600000 as `6 hours`."""
    for unit, name, _ in _DURATIONS:
        if width_ms % unit == 0:
            count = width_ms // unit
            return name if count == 1 else f"{count:,} {name}s"
    raise ValueError(f"{width_ms} ms is not a whole number of any unit")


def moment(milliseconds: int | None) -> str:
    """Format a time as `2026-01-02 03:04`, in UTC; a time outside of the calendar as a number."""
    if milliseconds is None:
        return "none"
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return time.strftime("%Y-%m-%d %H:%M")


def plural(count: int, name: str) -> str:
    """Format a count with its noun: `1 topic`, `2 topics`."""
    return f"{count:,} {name}{'s' * (count != 1)}"
