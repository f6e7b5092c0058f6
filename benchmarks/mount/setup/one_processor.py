"""Keeping a program and the daemon that serves it on one processor.

A request is answered at once, or the processor where the other one sleeps has to be woken first, which may take five times as long. Which
of the two it is the scheduler decides anew in each round, for each side; on one processor it is always the first. Nothing is
lost by it: a program that waits for each of its requests never runs together with the daemon.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_processor() -> Iterator[None]:
    """Let this thread, and every process that it starts meanwhile, run on one processor alone."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
