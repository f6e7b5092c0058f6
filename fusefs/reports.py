"""What the daemon tells people: the newest lines of reason, shown by `@status` and written to its log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from storage.model import Timestamp

log = logging.getLogger("topicfs")

KEPT = 100
"""Lines that `@status` remembers; the log has them all."""


class Reports:
    """A bounded memory of reasons. Safe from any thread: each operation is one call on a deque."""

    def __init__(self, clock: Callable[[], Timestamp], *, kept: int = KEPT) -> None:
        self._clock = clock
        self._lines: deque[str] = deque(maxlen=kept)

    def error(self, where: str, reason: str) -> None:
        """Say why an operation on the file `where` failed."""
        self._say(logging.ERROR, where, reason)

    def warning(self, where: str, reason: str) -> None:
        """Say what went well but deserves a look."""
        self._say(logging.WARNING, where, reason)

    def _say(self, level: int, where: str, reason: str) -> None:
        moment = datetime.fromtimestamp(self._clock() / 1000, UTC).isoformat(timespec="milliseconds")
        said = f" {logging.getLevelName(level).lower()} {where}: {' '.join(reason.splitlines())}"
        if self._lines and self._lines[-1].endswith(said):
            self._lines.pop()  # A loop that asks again and again must not push everything else out.
        else:
            log.log(level, "%s: %s", where, reason)
        self._lines.append(moment.replace("+00:00", "Z") + said)

    def lines(self) -> Sequence[str]:
        """Oldest first; a snapshot."""
        return tuple(self._lines)
