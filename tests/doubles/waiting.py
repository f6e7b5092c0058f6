"""A function that waits for something that another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_SECONDS = 60.0
"""The default limit, in seconds, of a wait that normally takes a second.

On an overloaded machine a wait takes much longer.
"""


def wait_until(
    condition: Callable[[], object],
    what: str,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    pause_seconds: float = 0.01,
) -> None:
    """Wait until `condition` is true; fail the test if it is still false after `timeout_seconds` seconds."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"timed out while waiting until {what}"
        time.sleep(pause_seconds)
