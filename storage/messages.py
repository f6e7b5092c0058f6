"""Messages for people: one line each, without control characters.

The more often a line repeats, the less often it is reported. Everything shown to a person is first passed to
`printable`, because names, settings and errors may quote foreign bytes.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any, TypeAlias

from topicfs.storage.model import Timestamp

_LOGGER = logging.getLogger(__name__)
_WARNINGS_KEPT = 100
NAMED_TOPICS = 10
"""Largest number of topics that an error about another topic lists."""

ReportLine: TypeAlias = Callable[[str], None]
"""Shows one line to a person, on the terminal or as a warning in the log."""

FIRST_PAUSE_MS = 60_000
LONGEST_PAUSE_MS = 3_600_000
"""A repeated line is reported again after a minute, and then after twice the last pause, up to an hour."""


def printable(text: str) -> str:
    r"""Return `text` with unprintable characters escaped as in Python, and non-UTF-8 bytes as `\udc80` to `\udcff`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def reason_of(error: BaseException) -> str:
    """Return an error in plain words; for a system error, the file and the cause without the error number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, UnicodeError) and "idna" in str(error):  # Raised by Python's calls of sockets.
        return "not a host name: a part of it is empty or longer than 63 characters"
    return str(error) or type(error).__name__


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean NAME?" with the most similar of `names`, to end a message; "" if no name is similar."""
    from difflib import get_close_matches

    lowered = {one.lower(): one for one in names}
    close = get_close_matches(name.lower(), lowered, n=1)
    return f"; did you mean {lowered[close[0]]}?" if close else ""


def which_topic(name: str, topics: Iterable[str]) -> str:
    """Return the end of an error about an unknown topic: the most similar of `topics`, or else the first of them."""
    present = sorted(topics)
    if similar := did_you_mean(name, present):
        return similar
    more = ", …" if len(present) > NAMED_TOPICS else ""
    return f"; there are {', '.join(present[:NAMED_TOPICS])}{more}" if present else "; there is no topic yet"


class PrintableFormatter(logging.Formatter):
    """Formats a log record as one line with its message, and the lines of its traceback."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


class Repeats:
    """Lines that were reported, with their counts, newest last. Safe from any thread."""

    def __init__(self, *, kept: int) -> None:
        self._kept = kept
        self._lines: OrderedDict[str, _Counted] = OrderedDict()
        self._lock = Lock()

    def count_repeat(self, line: str, now: Timestamp, *, newest_last: bool) -> tuple[int, bool]:
        """Count `line`; return how often it has occurred, and whether to report it again."""
        with self._lock:
            counted = self._lines.get(line)
            if counted is None:
                self._lines[line] = counted = _Counted(now)
                if len(self._lines) > self._kept:
                    self._lines.popitem(last=False)
                return 1, True
            if newest_last:
                self._lines.move_to_end(line)
            return counted.count_repeat(now)

    def lines(self) -> list[tuple[str, int, Timestamp]]:
        """Return each line, how often it occurred, and the time of the last occurrence."""
        with self._lock:
            return [(line, counted.count, counted.last) for line, counted in self._lines.items()]


class _Counted:
    __slots__ = ("_due", "_pause_ms", "count", "last")

    def __init__(self, now: Timestamp) -> None:
        self.count = 1
        self.last = now
        self._pause_ms = FIRST_PAUSE_MS
        self._due = now + FIRST_PAUSE_MS

    def count_repeat(self, now: Timestamp) -> tuple[int, bool]:
        self.count += 1
        self.last = now
        if now < self._due:
            return self.count, False
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        self._due = now + self._pause_ms
        return self.count, True


def times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


class WarningBook:
    """The last warnings, each listed once, for status pages. The log repeats a warning ever less often. Thread-safe."""

    def __init__(self, clock: Callable[[], Timestamp]) -> None:
        self._clock = clock
        self._repeats = Repeats(kept=_WARNINGS_KEPT)

    def add(self, line: str, *, level: int = logging.WARNING) -> None:
        """Add a line, with control characters escaped; `level` is its log level."""
        line = printable(line)
        count, due = self._repeats.count_repeat(line, self._clock(), newest_last=False)
        if due:
            _LOGGER.log(level, "%s%s", line, times(count))

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(line + times(count) for line, count, _last in self._repeats.lines())
