"""Times as people write them: calendar times, milliseconds, and times relative to now.

    1795230000000                                         milliseconds since 1970
    2026-11-21  2026-11-21T03:00  …T03:00:00.5+02:00      YYYY-MM-DD[THH:MM[:SS[.f{1,9}]]][Z|±HH:MM], UTC without zone
    10m  2h  1d12h  500ms                                 ago: weeks, days, hours, minutes, seconds, milliseconds
    now  today  yesterday  today+02:00                    a day means its beginning, in UTC without zone

A relative time is fixed when it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from topicfs.storage.disk.native import system_clock
from topicfs.storage.model import Timestamp

SPELLINGS = (
    "milliseconds, YYYY-MM-DD[THH:MM[:SS[.f]]][Z|±HH:MM], 10m (ago; w d h m s ms), now, today or yesterday"
)
_MILLISECONDS = re.compile(r"[0-9]{1,255}")
_ZONE = r"(?P<zone>Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?"
_CALENDAR_TIME = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?)?" + _ZONE
)
_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""Number of milliseconds of each unit, the longest unit first. A time combines units in this order."""
_AGO = "(?=[0-9])" + "".join(f"(?:([0-9]{{1,18}}){unit})?" for unit in _UNITS)
_DAY = f"(?P<day>today|yesterday){_ZONE}"
_DAY_MS = _UNITS["d"]
_MAX_TIMESTAMP = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NANOSECONDS_A_MILLISECOND = 1_000_000


class TimeError(ValueError):
    """The text is not a valid time; the message lists the valid spellings."""


def parse_time(text: str, clock: Callable[[], Timestamp] = system_clock) -> Timestamp:
    """Parse a time into milliseconds. Raises TimeError.

    The result is rounded up, negative for a time before 1970, and clamped to 64 bits.
    """
    if _MILLISECONDS.fullmatch(text):
        return Timestamp(min(int(text), _MAX_TIMESTAMP))
    if calendar := re.fullmatch(_CALENDAR_TIME, text):
        return _in_calendar(text, calendar)
    if text == "now":
        return clock()
    if day := re.fullmatch(_DAY, text):
        zone = _zone_milliseconds(day["zone"])
        since = _DAY_MS if day["day"] == "yesterday" else 0
        local = clock() + zone
        return Timestamp(local - local % _DAY_MS - since - zone)
    if ago := re.fullmatch(_AGO, text):
        spans = zip(ago.groups(), _UNITS.values(), strict=True)
        span = sum(int(count) * unit for count, unit in spans if count is not None)
        return Timestamp(max(clock() - span, -_MAX_TIMESTAMP))
    raise TimeError(f"{text}: not a time; write {SPELLINGS}")


def is_relative(text: str) -> bool:
    """Return whether a time depends on when it is parsed."""
    return not (_MILLISECONDS.fullmatch(text) or re.fullmatch(_CALENDAR_TIME, text))


def written(timestamp: Timestamp, *, timespec: str = "milliseconds") -> str:
    """Return a time in UTC in ISO 8601; outside the years 1 to 9999, its milliseconds since 1970."""
    try:
        moment = _EPOCH + timestamp * _MILLISECOND
    except OverflowError:
        return str(timestamp)
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def spelled_time(timestamp: Timestamp) -> str:
    """Return the milliseconds, as in selectors, and the calendar time; `-` for NO_TIMESTAMP."""
    if timestamp < 0:
        return "-"
    calendar = written(timestamp)
    return calendar if calendar == str(timestamp) else f"{timestamp} {calendar}"


def _in_calendar(text: str, match: re.Match[str]) -> Timestamp:
    year, month, day, hour, minute, second = (int(field or 0) for field in match.group(1, 2, 3, 4, 5, 6))
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise TimeError(f"{text}: not a time: {error}") from None
    nanoseconds = int((match["fraction"] or "").ljust(9, "0"))
    milliseconds = (moment - _EPOCH) // _MILLISECOND - _zone_milliseconds(match["zone"])
    return Timestamp(milliseconds - (-nanoseconds // _NANOSECONDS_A_MILLISECOND))


def _zone_milliseconds(zone: str | None) -> int:
    """Return the offset of a zone, positive east of UTC."""
    if zone is None or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    return (-minutes if zone[0] == "-" else minutes) * 60_000
