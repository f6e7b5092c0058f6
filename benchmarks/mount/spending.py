"""What work on a mount takes: time that passes, and time of processors, the program's and the daemon's together.

On a machine that others use as well the first says little, for whoever waits for an answer waits for a processor
first. The second is nearly the same however busy the machine is.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import NamedTuple


class Spent(NamedTuple):
    """Seconds of both kinds."""

    passed: float
    of_processors: float

    def plus(self, other: Spent) -> Spent:
        """One after the other."""
        return Spent(self.passed + other.passed, self.of_processors + other.of_processors)


def spent(work: Callable[[], float], daemon: int | None) -> Spent:
    """Run work that times itself, and tell what this process, its children and the daemon took meanwhile."""
    before = _processor_seconds(daemon)
    passed = work()
    return Spent(passed, _processor_seconds(daemon) - before)


def _processor_seconds(daemon: int | None) -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + children.ru_utime + children.ru_stime
    return own if daemon is None else own + seconds_of(daemon)


def seconds_of(pid: int) -> float:
    """What another process has taken so far."""
    return time.clock_gettime(_processor_clock(pid))


def _processor_clock(pid: int) -> int:
    """The clock that counts another process's time, all of its threads (clock_getcpuclockid(3), as Linux numbers it)."""
    return ~pid << 3 | 2
