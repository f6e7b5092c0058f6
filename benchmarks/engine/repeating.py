"""Work of microseconds that only computes, repeated until its time can be told.

What counts is the processor time of this process: what else the machine does takes none of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_SECONDS = 0.02


def seconds_each(work: Callable[[], object]) -> float:
    """Seconds of a processor that one call takes, over as many as fill a fiftieth of one."""
    calls = 0
    started = time.process_time()
    while True:
        work()
        calls += 1
        elapsed = time.process_time() - started
        if elapsed >= LEAST_SECONDS:
            return elapsed / calls
