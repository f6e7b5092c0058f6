"""The ways of fetching requests from the kernel (`--request-loop`), on mounts of topicfs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import lines
from benchmarks.frame.question import (
    MICROSECONDS,
    MICROSECONDS_OF_PROCESSOR,
    Benchmark,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
)
from benchmarks.frame.rounds import SharedRounds
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.setup.cpu_time import Timing, one_processor, timed
from benchmarks.mount.setup.mounts import Mount, topicfs
from benchmarks.mount.setup.system_calls import append_lines, open_and_close
from topicfs.fusefs.mounting.request_loop import RequestLoop

WRITTEN_BYTES = 50 * 2**20
"""More than all rounds write, batch headers and all."""


def cases(conditions: Conditions) -> Cases:
    with ExitStack() as stack:
        stack.enter_context(one_processor())
        directory = stack.enter_context(directory_in_memory(conditions, WRITTEN_BYTES))
        mounts = {}
        for loop in RequestLoop:
            name = loop.value
            mounts[name] = stack.enter_context(topicfs(directory, directory / name, "--request-loop", name))
            (mounts[name].path / "bench").mkdir()
        line = lines.line(0) + b"\n"
        yield from _cases("append 100 bytes", 3000, mounts, lambda path: append_lines(path, line, 3000))
        yield from _cases("open and close", 1000, mounts, lambda path: open_and_close(path, 1000))


def _cases(name: str, count: int, mounts: dict[str, Mount], work: Callable[[Path], float]) -> Iterator[Case]:
    """Both times that one call takes, on each mount."""

    def run(mount: Mount) -> Timing:
        return timed(lambda: work(mount.partition() / "log"), mount.pid)

    shared = {loop: SharedRounds(partial(run, mount)) for loop, mount in mounts.items()}
    direct, short, plain = (loop.value for loop in RequestLoop)
    yield Case(
        name=name,
        unit=MICROSECONDS,
        sides=tuple(
            Side(loop, rounds.measure(lambda took: took.elapsed / count * 1e6))
            for loop, rounds in shared.items()
        ),
        goals=(Goal(side=direct, of=short), Goal(side=direct, of=plain), Goal(side=short, of=plain)),
    )
    yield Case(
        name=name,
        unit=MICROSECONDS_OF_PROCESSOR,
        sides=tuple(
            Side(loop, rounds.reuse(lambda took: took.cpu / count * 1e6)) for loop, rounds in shared.items()
        ),
        goals=(
            Goal(side=direct, of=short, floor=1.1),
            Goal(side=direct, of=plain),
            Goal(side=short, of=plain, floor=1.1),
        ),
    )


BENCHMARK = Benchmark(name="loops", question="What do the shorter request loops save?", cases=cases)
