"""Timing of work on a mount: elapsed time, and processor time, the program's and the daemon's together.

Elapsed time depends on what else the machine does: who waits for an answer waits for a processor first. Processor time
is nearly the same however busy the machine is.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class Timing(NamedTuple):
    """Seconds that some work took."""

    elapsed: float
    cpu: float

    def plus(self, other: Timing) -> Timing:
        """Return the sum: one work after the other."""
        return Timing(self.elapsed + other.elapsed, self.cpu + other.cpu)


def timed(work: Callable[[], float], daemon: int | None) -> Timing:
    """Run work that times itself; add the processor time of this process, its children and the daemon meanwhile."""
    before = _processor_seconds(daemon)
    elapsed = work()
    return Timing(elapsed, _processor_seconds(daemon) - before)


def _processor_seconds(daemon: int | None) -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + children.ru_utime + children.ru_stime
    return own if daemon is None else own + seconds_of(daemon)


def seconds_of(pid: int) -> float:
    """Processor time of another process so far."""
    return time.clock_gettime(_processor_clock(pid))


def _processor_clock(pid: int) -> int:
    """The clock that counts another process's time, all of its threads (clock_getcpuclockid(3), as Linux numbers it)."""
    return ~pid << 3 | 2


@contextmanager
def one_processor() -> Iterator[None]:
    """Restrict this thread, and every process that it starts meanwhile, to one processor.

    A request is answered at once, or the processor where the other one sleeps has to be woken first, which may take five
    times as long. The scheduler decides which in each round, for each side; on one processor it is always the first. A
    program that waits for each of its requests never runs together with the daemon, so nothing is lost.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def all_processors(daemon: int | None) -> Iterator[None]:
    """Within `one_processor`: have this thread and a daemon run where the scheduler puts them, as users' programs do."""
    threads = [0, *(int(task.name) for task in Path(f"/proc/{daemon}/task").iterdir())] if daemon else [0]
    pinned = os.sched_getaffinity(0)
    _allow(threads, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        _allow(threads, pinned)


def _allow(threads: Iterable[int], processors: Iterable[int]) -> None:
    for thread in threads:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, processors)
