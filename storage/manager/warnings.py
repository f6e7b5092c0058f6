"""What the owner of a data directory should know though nothing failed for a caller."""

from __future__ import annotations

import logging
from collections import deque
from threading import Lock

_LOGGER = logging.getLogger(__name__)
_KEPT = 100


class WarningBook:
    """The last warnings, each once, for status pages; all also go to the log. Safe from any thread."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._lock = Lock()

    def add(self, line: str) -> None:
        _LOGGER.warning("%s", line)
        with self._lock:
            if line not in self._lines:
                self._lines.append(line)

    @property
    def lines(self) -> tuple[str, ...]:
        """Oldest first."""
        with self._lock:
            return tuple(self._lines)
