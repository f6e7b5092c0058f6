"""Tests of messages for users: each is one line without control characters, and repeats become rare."""

from __future__ import annotations

import logging
import sys

import pytest

from tests.doubles.manual_clock import ManualClock
from topicfs.storage.messages import PrintableFormatter, Repeats, WarningBook, printable

FORGED = "t\n2026-11-22T00:00:00.000Z error t/0/log: all is lost\r\x1b[2J\x9b31m\x7f\u2028\u202e\udcff"
ESCAPED = r"t\n2026-11-22T00:00:00.000Z error t/0/log: all is lost\r\x1b[2J\x9b31m\x7f\u2028\u202e\udcff"


def test_unprintable_characters_are_escaped() -> None:
    """Line ends, escape sequences, direction marks and bytes that are not UTF-8 are escaped."""
    assert ESCAPED == printable(FORGED)


@pytest.mark.parametrize("text", ["", "orders/0/log: line 2: no JSON", "größer: 注文 🙂", r"a\nb"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    """Words of any language and backslashes are not escaped."""
    assert printable(text) == text


def test_a_line_of_the_log_is_one_line() -> None:
    """A logged message is one line, whatever its arguments are. A traceback keeps its lines."""
    formatter = PrintableFormatter("%(levelname)s %(message)s")
    try:
        int(FORGED)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f.py", 1, "%s: unexpected", (FORGED,), sys.exc_info())
    first, *traceback = formatter.format(record).split("\n")
    assert f"ERROR {ESCAPED}: unexpected" == first
    assert "Traceback (most recent call last):" == traceback[0]
    assert all(line.isprintable() for line in traceback)


@pytest.mark.parametrize(
    ("pause_ms", "expected"),
    [
        pytest.param(60_000, [0, 1, 3, 7, 15, 31], id="each minute"),
        pytest.param(3_600_000, [*range(60)], id="each hour"),
    ],
)
def test_the_same_line_is_reported_less_and_less_often(pause_ms: int, expected: list[int]) -> None:
    """A repeated line is reported immediately, after a minute, and then after pauses that double each time.

    The pauses are an hour at most.
    """
    repeats = Repeats(kept=10)
    told = [
        number
        for number in range(60)
        if repeats.count_repeat("full", ManualClock(number * pause_ms)(), newest_last=False)[1]
    ]
    assert expected == told


def test_the_oldest_lines_go() -> None:
    """The newest lines are kept, each with its count and its last time."""
    repeats = Repeats(kept=2)
    for moment, line in enumerate("abbc"):
        repeats.count_repeat(line, ManualClock(moment)(), newest_last=False)
    assert [("b", 2, 2), ("c", 1, 3)] == repeats.lines()


def test_a_warning_each_second_is_one_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """A warning repeated each second is one line with a count. A name in the warning cannot forge a line."""
    clock = ManualClock()
    book = WarningBook(clock)
    for _ in range(100):
        book.add(f"{FORGED}: no room")
        clock.advance(1000)
    assert book.lines == (f"{ESCAPED}: no room (100 times)",)
    assert [record.getMessage() for record in caplog.records] == [
        f"{ESCAPED}: no room",
        f"{ESCAPED}: no room (61 times)",
    ]
