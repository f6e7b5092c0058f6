"""Many clients at once: 1, 4 and 16 programs that read or append, each a process of its own.

All of them start together and go on for the same time, so their counts can be compared: beside what they do in all,
the slowest one's share of the fastest one's shows how fair the mount is.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

from benchmarks import lines
from benchmarks.frame.question import (
    LINES_A_SECOND,
    LINES_A_SECOND_OF_PROCESSOR,
    MEGABYTES_A_SECOND,
    MEGABYTES_A_SECOND_OF_PROCESSOR,
    OURS,
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
from benchmarks.frame.rounds import SharedRounds
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.setup.cpu_time import seconds_of
from benchmarks.mount.setup.mounts import EMPTY, Mount, empty_filesystem, topicfs
from benchmarks.mount.setup.system_calls import KIB
from benchmarks.partitions import SIXTEEN_KIB, data_directory, whole_batches

SHARE = Unit("slowest of fastest", Better.HIGHER)
CLIENTS = (1, 4, 16)
ALONE = "one reading"
APART = "a mount each"
"""Each reader with a mount of its own: what the machine's processors give where no daemon is shared."""
PATIENCE_SECONDS = 60
WRITTEN_BYTES = 300 * 2**20
"""More than all rounds append."""
_barrier: Barrier | None = None
"""The barrier of this process, where it is a client."""


class ClientWork(NamedTuple):
    """The work of one client."""

    path: Path
    seconds: float


class Done(NamedTuple):
    """The result of one client."""

    amount: int
    """Bytes read, or lines appended."""
    cpu: float
    """Seconds."""


class Together(NamedTuple):
    """The results of all clients."""

    counts: list[int]
    """The count of each client."""
    cpu: float
    """Seconds, the daemon's included."""


def _become_client(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - the way a pool hands a barrier to its processes
    _barrier = barrier


def _start_together() -> None:
    assert _barrier is not None
    _barrier.wait(PATIENCE_SECONDS)


def read_for(work: ClientWork) -> Done:
    """Read the log over and over, and count bytes."""
    buffer = bytearray(128 * KIB)
    total = 0
    descriptor = os.open(work.path, os.O_RDONLY)
    _start_together()
    began = time.process_time()
    end = time.monotonic() + work.seconds
    while time.monotonic() < end:
        count = os.readv(descriptor, [buffer])
        if not count:
            os.lseek(descriptor, 0, os.SEEK_SET)
        total += count
    os.close(descriptor)
    return Done(total, time.process_time() - began)


def append_for(work: ClientWork) -> Done:
    """Append a line again and again, and count lines."""
    text = lines.line(0) + b"\n"
    count = 0
    descriptor = os.open(work.path, os.O_WRONLY | os.O_APPEND)
    _start_together()
    began = time.process_time()
    end = time.monotonic() + work.seconds
    while time.monotonic() < end:
        os.write(descriptor, text)
        count += 1
    os.close(descriptor)
    return Done(count, time.process_time() - began)


class Clients:
    """A number of processes that wait for work."""

    def __init__(self, pool: Pool, count: int, seconds: float) -> None:
        self._pool = pool
        self._count = count
        self.seconds = seconds

    def run(self, what: Callable[[ClientWork], Done], paths: Sequence[Path], *daemons: int) -> Together:
        """Have every client do the same at the same time; the paths go around."""
        works = [ClientWork(paths[client % len(paths)], self.seconds) for client in range(self._count)]
        before = sum(map(seconds_of, daemons))
        # Each waits for all the others before it begins, so that none takes the work of two.
        done = self._pool.map_async(what, works, chunksize=1).get(PATIENCE_SECONDS)
        of_daemons = sum(map(seconds_of, daemons)) - before
        return Together([one.amount for one in done], of_daemons + sum(one.cpu for one in done))

    def appended(self, mount: Mount) -> Together:
        """Append lines, of which none may be missing in the log."""
        log = mount.partition("appends") / "log"
        before = _written(mount)
        together = self.run(append_for, [log], mount.pid)
        arrived = (_written(mount) - before) // lines.LINE_BYTES
        if arrived != sum(together.counts):
            raise WrongResultError(f"{log}: {arrived} lines arrived of {sum(together.counts)}")
        return together

    def read(self, *mounts: Mount) -> Together:
        """Read bytes."""
        logs = [mount.partition() / "log" for mount in mounts]
        return self.run(read_for, logs, *(mount.pid for mount in mounts))


def fairness(together: Together) -> float:
    """The share that the slowest had of the fastest."""
    return min(together.counts) / max(together.counts)


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
        directory_in_memory(conditions, 3 * size + WRITTEN_BYTES) as directory,
        _both_mounts(directory, size) as (ours, empty),
    ):
        second = data_directory(directory / "second", {"bench": (size, SIXTEEN_KIB)})
        with (
            topicfs(directory, second) as other,
            _clients(1, seconds) as alone,
            _clients(2, seconds) as both,
        ):
            yield _beside_one(alone, both, ours, other)
        for count in conditions.choose(full=CLIENTS, short=CLIENTS[1:2]):
            with _clients(count, seconds) as clients:
                yield from _cases(count, clients, ours, empty)


class _Kind(NamedTuple):
    name: str
    work: Callable[[Mount], Together]
    unit: Unit
    processor_unit: Unit
    size: float
    """The count that makes one of the unit."""
    target: float


def _cases(count: int, clients: Clients, ours: Mount, empty: Mount) -> Iterator[Case]:
    megabytes = MEGABYTES_A_SECOND, MEGABYTES_A_SECOND_OF_PROCESSOR
    written = LINES_A_SECOND, LINES_A_SECOND_OF_PROCESSOR
    for kind in (
        _Kind(f"{count} reading", clients.read, *megabytes, size=1e6, target=0.6),
        _Kind(f"{count} appending", clients.appended, *written, size=1.0, target=0.8),
    ):
        shared = {mount.side: SharedRounds(partial(kind.work, mount)) for mount in (ours, empty)}
        goals = (Goal(of=EMPTY, target=kind.target),)
        speed = partial(_speed, clients.seconds * kind.size)
        yield Case(
            name=kind.name,
            unit=kind.unit,
            sides=tuple(Side(side, rounds.measure(speed)) for side, rounds in shared.items()),
            goals=goals,
        )
        a_core = partial(_speed_a_core, kind.size)
        yield Case(
            name=kind.name,
            unit=kind.processor_unit,
            sides=tuple(Side(side, rounds.reuse(a_core)) for side, rounds in shared.items()),
            goals=goals,
        )
        if count > 1:
            yield Case(
                name=kind.name,
                unit=SHARE,
                sides=tuple(Side(side, rounds.reuse(fairness)) for side, rounds in shared.items()),
                goals=(Goal(of=EMPTY),),
            )


def _beside_one(alone: Clients, both: Clients, ours: Mount, other: Mount) -> Case:
    """Two readers of one mount, and of two, beside one reader."""
    works = {
        OURS: lambda: both.read(ours),
        ALONE: lambda: alone.read(ours),
        APART: lambda: both.read(ours, other),
    }
    speed = partial(_speed, alone.seconds * 1e6)
    return Case(
        name="2 reading, beside one",
        unit=MEGABYTES_A_SECOND,
        sides=tuple(Side(side, SharedRounds(work).measure(speed)) for side, work in works.items()),
        goals=(Goal(of=ALONE, target=1.8), Goal(of=APART), Goal(side=APART, of=ALONE)),
    )


def _speed(unit: float, together: Together) -> float:
    return sum(together.counts) / unit


def _speed_a_core(size: float, together: Together) -> float:
    return sum(together.counts) / size / together.cpu


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
