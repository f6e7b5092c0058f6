"""Many clients at once: 1, 4 and 16 programs that read or append, each a process of its own.

All of them start together and go on for the same time, so their counts can be compared: beside what they do in all,
the slowest one's share of the fastest one's tells whether the mount is fair.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

from benchmarks import lines
from benchmarks.frame.looks import Looks
from benchmarks.frame.question import (
    LINES_A_SECOND,
    MEGABYTES_A_SECOND,
    Benchmark,
    Better,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    Unit,
    WrongResultError,
)
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.mounts import EMPTY, Mount, empty_filesystem, topicfs
from benchmarks.mount.system_calls import KIB
from benchmarks.partitions import SIXTEEN_KIB, data_directory, whole_batches

SHARE = Unit("slowest of fastest", Better.HIGHER)
CLIENTS = (1, 4, 16)
PATIENCE_SECONDS = 60
WRITTEN_BYTES = 300 * 2**20
"""More than all rounds append."""
_barrier: Barrier | None = None
"""Of this process, where it is a client."""


class Work(NamedTuple):
    """What one client does."""

    path: Path
    seconds: float


def _become_client(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - the way a pool hands a barrier to its processes
    _barrier = barrier


def _start_together() -> None:
    assert _barrier is not None
    _barrier.wait(PATIENCE_SECONDS)


def read_for(work: Work) -> int:
    """Read the log over and over; the bytes read."""
    buffer = bytearray(128 * KIB)
    total = 0
    descriptor = os.open(work.path, os.O_RDONLY)
    _start_together()
    end = time.monotonic() + work.seconds
    while time.monotonic() < end:
        count = os.readv(descriptor, [buffer])
        if not count:
            os.lseek(descriptor, 0, os.SEEK_SET)
        total += count
    os.close(descriptor)
    return total


def append_for(work: Work) -> int:
    """Append a line again and again; the lines appended."""
    text = lines.line(0) + b"\n"
    count = 0
    descriptor = os.open(work.path, os.O_WRONLY | os.O_APPEND)
    _start_together()
    end = time.monotonic() + work.seconds
    while time.monotonic() < end:
        os.write(descriptor, text)
        count += 1
    os.close(descriptor)
    return count


class Clients:
    """So many processes, waiting for work."""

    def __init__(self, pool: Pool, count: int, seconds: float) -> None:
        self._pool = pool
        self._count = count
        self.seconds = seconds

    def run(self, what: Callable[[Work], int], path: Path) -> list[int]:
        """Let every client do the same at the same time; what each of them gives."""
        works = [Work(path, self.seconds)] * self._count
        # Each waits for all the others before it begins, so that none takes the work of two.
        return self._pool.map_async(what, works, chunksize=1).get(PATIENCE_SECONDS)

    def appended(self, mount: Mount) -> list[int]:
        """Lines of each client, of which none may be missing in the log."""
        log = mount.partition("appends") / "log"
        before = _written(mount)
        counts = self.run(append_for, log)
        arrived = (_written(mount) - before) // lines.LINE_BYTES
        if arrived != sum(counts):
            raise WrongResultError(f"{log}: {arrived} lines arrived of {sum(counts)}")
        return counts

    def read(self, mount: Mount) -> list[int]:
        """Bytes of each client."""
        return self.run(read_for, mount.partition() / "log")


def fairness(counts: list[int]) -> float:
    """The share that the slowest had of the fastest."""
    return min(counts) / max(counts)


def _written(mount: Mount) -> int:
    directory = mount.partition("appends")
    return (
        int((directory / "written").read_text())
        if mount.side == EMPTY
        else (directory / "log").stat().st_size
    )


def cases(conditions: Conditions) -> Cases:
    seconds = conditions.choose(full=0.25, short=0.1)
    size = whole_batches(conditions.choose(full=64, short=16) * len(lines.BLOCK), SIXTEEN_KIB)
    with (
        directory_in_memory(conditions, 2 * size + WRITTEN_BYTES) as directory,
        _both_mounts(directory, size) as (ours, empty),
    ):
        for count in conditions.choose(full=CLIENTS, short=CLIENTS[1:2]):
            with _clients(count, seconds) as clients:
                yield from _cases(count, clients, ours, empty)


def _cases(count: int, clients: Clients, ours: Mount, empty: Mount) -> Iterator[Case]:
    kinds = (
        (f"{count} reading", clients.read, MEGABYTES_A_SECOND, 1e6, Goal(of=EMPTY, target=0.6)),
        (f"{count} appending", clients.appended, LINES_A_SECOND, 1.0, Goal(of=EMPTY, target=0.8)),
    )
    for name, work, unit, size, goal in kinds:
        looks = {mount.side: Looks(partial(work, mount)) for mount in (ours, empty)}
        speed = partial(_speed, clients.seconds * size)
        yield Case(
            name=name,
            unit=unit,
            sides=tuple(Side(side, look.first(speed)) for side, look in looks.items()),
            goals=(goal,),
        )
        if count > 1:
            yield Case(
                name=name,
                unit=SHARE,
                sides=tuple(Side(side, look.again(fairness)) for side, look in looks.items()),
                goals=(Goal(of=EMPTY),),
            )


def _speed(unit: float, counts: list[int]) -> float:
    return sum(counts) / unit


@contextmanager
def _both_mounts(directory: Path, size: int) -> Iterator[tuple[Mount, Mount]]:
    data = data_directory(directory / "data", {"bench": (size, SIXTEEN_KIB), "appends": (0, SIXTEEN_KIB)})
    with ExitStack() as stack:
        ours = stack.enter_context(topicfs(directory, data))
        yield ours, stack.enter_context(empty_filesystem(directory, like=ours, log_bytes=size))


@contextmanager
def _clients(count: int, seconds: float) -> Iterator[Clients]:
    # Started afresh, not forked: this process may have threads.
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count)
    with context.Pool(count, _become_client, (barrier,)) as pool:
        yield Clients(pool, count, seconds)


BENCHMARK = Benchmark(name="clients", question="What do many clients at once get?", cases=cases)
