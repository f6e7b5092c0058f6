"""What the owner of a data directory should know though nothing failed for a caller."""

from __future__ import annotations

import logging

from storage.disk.filesystem import Clock
from storage.messages import Repeats, printable, times

_LOGGER = logging.getLogger(__name__)
_KEPT = 100


class WarningBook:
    """The last warnings, each once, for status pages; they also go to the log, repeats less and less often.

    Safe from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told = Repeats(kept=_KEPT)

    def add(self, line: str) -> None:
        """Take a line; what in it no terminal should see is escaped."""
        line = printable(line)
        count, due = self._told.again(line, self._clock(), newest_last=False)
        if due:
            _LOGGER.warning("%s%s", line, times(count))

    @property
    def lines(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(line + times(count) for line, count, _last in self._told.lines())
