"""The daemon's reports to people: recent messages, shown in `@status` and written to the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from topicfs.fusefs.times import written
from topicfs.storage.messages import Repeats, printable, times
from topicfs.storage.model import Timestamp

_LOGGER = logging.getLogger("topicfs")

KEPT = 100
"""Number of messages kept for `@status`. The log gets every message, but repeated ones at growing intervals."""


class Reports:
    """The recent messages. A repeated message is stored once, with its count. Thread-safe."""

    def __init__(self, clock: Callable[[], Timestamp], *, kept: int = KEPT) -> None:
        self._clock = clock
        self._told = Repeats(kept=kept)
        self.newest: Timestamp | None = None
        """Time of the newest message."""

    def error(self, where: str, reason: str) -> None:
        """Report why an operation on the file `where` failed."""
        self._say(logging.ERROR, where, reason)

    def warning(self, where: str, reason: str) -> None:
        """Report an operation that succeeded but deserves attention."""
        self._say(logging.WARNING, where, reason)

    def _say(self, level: int, where: str, reason: str) -> None:
        said = f"{printable(where)}: {printable(reason)}"
        line = f"{logging.getLevelName(level).lower()} {said}"
        # A program that repeats an error in a loop must not flood the log or push out other messages.
        self.newest = self._clock()
        count, due = self._told.count_repeat(line, self.newest, newest_last=True)
        if due:
            _LOGGER.log(level, "%s%s", said, times(count))

    def lines(self) -> Sequence[str]:
        """Return the messages, the oldest first."""
        return tuple(f"{written(last)} {line}{times(count)}" for line, count, last in self._told.lines())
