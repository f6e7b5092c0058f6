"""Timing of work on a mount: elapsed time, and processor time of the program and the daemon together.

Elapsed time depends on other programs, because a program whose answer has come must wait for a processor. Processor
time is nearly the same on a busy machine.
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
    """Elapsed time and processor time, in seconds."""

    elapsed: float
    cpu: float

    def plus(self, other: Timing) -> Timing:
        """Return the sum of two timings, for work in sequence."""
        return Timing(self.elapsed + other.elapsed, self.cpu + other.cpu)


def timed(work: Callable[[], float], daemon: int | None) -> Timing:
    """Run work that measures its elapsed time; add the processor time of this process, its children and the daemon."""
    before = _processor_seconds(daemon)
    elapsed = work()
    return Timing(elapsed, _processor_seconds(daemon) - before)


def _processor_seconds(daemon: int | None) -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + children.ru_utime + children.ru_stime
    return own if daemon is None else own + seconds_of(daemon)


def seconds_of(pid: int) -> float:
    """Return the processor time that another process has used until now."""
    return time.clock_gettime(_processor_clock(pid))


def _processor_clock(pid: int) -> int:
    """Return the ID of the clock that measures a process's processor time over all threads (clock_getcpuclockid(3))."""
    return ~pid << 3 | 2


@contextmanager
def one_processor() -> Iterator[None]:
    """Restrict this thread, and every process that it starts in the `with` block, to one processor.

    With several processors the scheduler decides in each round whether it must wake another processor for the answer,
    which may take five times as long. With one processor it never wakes another. A program that waits for each
    request never runs at the same time as the daemon, so one processor is enough.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def all_processors(daemon: int | None) -> Iterator[None]:
    """Inside a block of `one_processor`, let this thread and a daemon use all processors, as in users' programs."""
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
