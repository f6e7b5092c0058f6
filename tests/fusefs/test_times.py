"""Times as people write them: their spellings, and the timestamp of each time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicfs.fusefs.times import TimeError, is_relative, parse_time, written
from topicfs.storage.disk.native import system_clock
from topicfs.storage.model import Timestamp

NOW = 1_795_230_000_123  # 2026-11-21T03:00:00.123Z
TODAY = 1_795_219_200_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


def read(text: str) -> int:
    return parse_time(text, lambda: Timestamp(NOW))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("0005", 5),
        ("2026", 2026),
        ("99999999999999999999", 2**63 - 1),
        ("1970-01-01", 0),
        ("1970-01-01Z", 0),
        ("1970-01-02", 86_400_000),
        ("2024-02-29T23:59", 1_709_251_140_000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T00:00:00.5", 500),
        ("1970-01-01T00:00:00.001", 1),
        ("1970-01-01T00:00:00.0010", 1),
        ("1970-01-01T00:00:00.001000001", 2),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1969-12-31T23:59:59.9999", 0),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01+01:00", -3_600_000),
        ("1969-12-31T19:00-05:00", 0),
        ("1969-12-31", -86_400_000),
        ("0001-01-01+23:59", -62_135_683_140_000),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000),
    ],
)
def test_times_are_milliseconds_rounded_up(text: str, expected: int) -> None:
    """Digits alone are milliseconds; a calendar time without a zone is UTC; fractions of a millisecond round up."""
    assert expected == parse_time(text)


REFUSED = {
    "no time": ["", "then", "-1", "1.5"],
    "a date in part or with fewer digits": ["2026-11", "2026-1-1"],
    "an impossible date": ["2026-13-01", "2026-02-29", "2026-11-31", "0000-01-01"],
    "another separator": ["2026-11-21 03:00", "2026-11-21t03:00", "2026-11-21T03:00:00z"],
    "a time of day in part": ["2026-11-21T", "2026-11-21T03", "2026-11-21T03:00:00."],
    "an impossible time of day": ["2026-11-21T24:00", "2026-11-21T03:60", "2026-11-21T03:00:60"],
    "another fraction": ["2026-11-21T03:00:00.1234567890", "2026-11-21T03:00.5"],
    "another spelling of a zone": ["2026-11-21T03:00:00+1:00", "2026-11-21T03:00:00+0100"],
    "an impossible zone": ["2026-11-21T03:00:00+24:00", "2026-11-21T03:00:00+01:60"],
    "Arabic and full-width digits": ["\u0662026-11-21", "\uff12026"],
}


@pytest.mark.parametrize("text", [text for texts in REFUSED.values() for text in texts])
def test_other_spellings_of_times_are_refused(text: str) -> None:
    """Other spellings of ISO 8601, non-ASCII digits and impossible dates are refused."""
    with pytest.raises(TimeError):
        parse_time(text)


@given(
    moment=st.datetimes(
        min_value=datetime(1, 1, 2),  # noqa: DTZ001 - the zone is drawn on its own
        max_value=datetime(9999, 12, 30),  # noqa: DTZ001
        timezones=st.integers(-23 * 60 - 59, 23 * 60 + 59).map(
            lambda minutes: timezone(timedelta(minutes=minutes))
        ),
    )
)
def test_written_out_times_are_read_back(moment: datetime) -> None:
    """A moment in any zone, written to the microsecond, is parsed as the same moment rounded up to a millisecond."""
    exact = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    text = moment.isoformat(timespec="microseconds")
    assert -(-exact // 1000) == parse_time(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("0s", NOW),
        ("10m", NOW - 10 * MINUTE),
        ("2h", NOW - 2 * HOUR),
        ("90s", NOW - 90 * SECOND),
        ("500ms", NOW - 500),
        ("1d", NOW - DAY),
        ("2w", NOW - 14 * DAY),
        ("1h30m", NOW - 90 * MINUTE),
        ("1w1d1h1m1s1ms", NOW - 8 * DAY - HOUR - MINUTE - SECOND - 1),
        ("99999w", NOW - 99_999 * 7 * DAY),
        ("999999999999999999w", -(2**63) + 1),
        ("today", TODAY),
        ("todayZ", TODAY),
        ("yesterday", TODAY - DAY),
        # At NOW it is still the previous day in the first zone. In the second zone the day began at 22:00
        # UTC.
        ("today-05:00", TODAY - DAY + 5 * HOUR),
        ("today+02:00", TODAY - 2 * HOUR),
        ("yesterday+02:00", TODAY - DAY - 2 * HOUR),
    ],
)
def test_times_are_counted_back_from_now(text: str, expected: int) -> None:
    """`now`, times before now, and the start of a day depend on the clock. Days without a zone are UTC days."""
    assert expected == read(text)
    assert is_relative(text)


NEAR_SPANS = {
    "a part": ["m", "10M", "10 m", "1.5h", "10y", "\u0661m"],
    "a sign": ["-10m", "+10m"],
    "another order": ["10m1h", "1m1m"],
    "a day": ["Today", "tomorrow", "todayT03:00", "now-1h"],
}


@pytest.mark.parametrize("text", [text for texts in NEAR_SPANS.values() for text in texts])
def test_near_spellings_of_a_span_or_day_mean_nothing(text: str) -> None:
    """A duration such as 1d2h names its units from the longest to the shortest, in lower case."""
    with pytest.raises(TimeError, match="10m"):
        read(text)


@pytest.mark.parametrize("text", ["0", "1795230000000", "2026-11-21", "2026-11-21T03:00+02:00"])
def test_what_the_calendar_says_is_the_same_whenever_it_is_read(text: str) -> None:
    """A calendar time does not depend on the current time."""
    assert not is_relative(text)
    assert read(text) == parse_time(text, lambda: Timestamp(0))


def test_now_is_the_clock_of_the_machine() -> None:
    """Without another clock, `now` is the machine's time."""
    before = system_clock()
    assert before <= parse_time("now") <= system_clock()


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (NOW, "2026-11-21T03:00:00.123Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (2**63 - 1, str(2**63 - 1)),
    ],
)
def test_a_time_is_written_as_the_calendar_has_it(timestamp: int, expected: str) -> None:
    """A timestamp is written as a calendar time with milliseconds, or as a number if it is after the year 9999."""
    assert expected == written(Timestamp(timestamp))
