"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0
"""The limit for what should take a second, and takes many on an overloaded machine; after it a test has failed."""


def wait_until(
    condition: Callable[[], object], what: str, *, patience_s: float = PATIENCE_S, pause_s: float = 0.01
) -> None:
    """Wait until `condition` is true; fail the test if it is still false after `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(pause_s)
