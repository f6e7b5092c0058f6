"""Reports of the daemon to people: the newest lines of reason, shown by `@status` and written to its log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from topicfs.fusefs.times import written
from topicfs.storage.messages import Repeats, printable, times
from topicfs.storage.model import Timestamp

log = logging.getLogger("topicfs")

KEPT = 100
"""Lines that `@status` remembers; the log has them all, repeats less and less often."""


class Reports:
    """A bounded memory of reasons, each kept once with its count. Safe from any thread."""

    def __init__(self, clock: Callable[[], Timestamp], *, kept: int = KEPT) -> None:
        self._clock = clock
        self._told = Repeats(kept=kept)
        self.newest: Timestamp | None = None
        """Time of the newest line."""

    def error(self, where: str, reason: str) -> None:
        """Report why an operation on the file `where` failed."""
        self._say(logging.ERROR, where, reason)

    def warning(self, where: str, reason: str) -> None:
        """Report something that went well but deserves a look."""
        self._say(logging.WARNING, where, reason)

    def _say(self, level: int, where: str, reason: str) -> None:
        said = f"{printable(where)}: {printable(reason)}"
        line = f"{logging.getLevelName(level).lower()} {said}"
        # A loop that asks again and again must not push everything else out, neither here nor in the log.
        self.newest = self._clock()
        count, due = self._told.again(line, self.newest, newest_last=True)
        if due:
            log.log(level, "%s%s", said, times(count))

    def lines(self) -> Sequence[str]:
        """Return the lines, the oldest first."""
        return tuple(f"{written(last)} {line}{times(count)}" for line, count, last in self._told.lines())
