"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0
"""For what should take a second, and takes many on a machine that has ten times more to do than it can: then a test has failed."""


def wait_until(
    condition: Callable[[], object], what: str, *, patience_s: float = PATIENCE_S, pause_s: float = 0.01
) -> None:
    """Wait until something is so; fail the test when it does not come."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(pause_s)
