"""A mount of a running cluster beside kcat on the same broker, from its cache too, and while the broker answers nothing.

The broker runs on the same machine and keeps its log in memory. What a stopped broker would have to answer waits for
ever; what needs no answer is measured meanwhile.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import lines
from benchmarks.frame.question import (
    MEGABYTES_A_SECOND,
    MILLISECONDS,
    OURS,
    Benchmark,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    WrongResultError,
)
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.setup.mounts import topicfs_of_cluster
from benchmarks.peers.broker import BrokerTools, broker_tools
from benchmarks.peers.commands import seconds_of

KCAT = "kcat"
TOPIC = "lines"
WRITTEN = "written"
MOST_ROUNDS = 5
PROMPT_MS = 10.0
"""Longest that names, sizes and `@status` may take while nothing is answered, of all but one in a hundred."""


@dataclass(frozen=True, slots=True)
class _Setup:
    broker: BrokerTools
    mount: Path
    cached: Path
    """A mount with a cache."""
    size: int

    @property
    def partition(self) -> Path:
        return self.mount / TOPIC / "0"

    @property
    def records(self) -> int:
        return self.size // lines.LINE_BYTES


def cases(conditions: Conditions) -> Cases:
    size = conditions.choose(full=100, short=20) * len(lines.BLOCK)
    with directory_in_memory(conditions, 8 * size) as directory, _setup(directory, size) as setup:
        kcat = setup.broker.kcat("-C", TOPIC, "-e", "-q", "-o", "beginning")
        yield Case(
            name="cat log",
            unit=MEGABYTES_A_SECOND,
            sides=(
                Side(OURS, partial(_consumed, setup, ["cat", str(setup.partition / "log")])),
                Side(KCAT, partial(_consumed, setup, kcat)),
            ),
            goals=(Goal(of=KCAT, target=4.0, floor=conditions.choose(full=2.0, short=None)),),
            most_rounds=MOST_ROUNDS,
        )
        yield _cached(setup, kcat, conditions)
        count = conditions.choose(full=500, short=50)
        yield Case(
            name="one record by offset",
            unit=MILLISECONDS,
            sides=(Side(OURS, partial(_one_record, setup, count)), Side(KCAT, partial(_one_by_kcat, setup))),
            goals=(Goal(target=1.5), Goal(of=KCAT, floor=0.2)),
            most_rounds=MOST_ROUNDS,
        )
        yield from _written(setup, directory, conditions)
        yield from _while_stopped(setup, conditions.choose(full=1000, short=100))


def _cached(setup: _Setup, kcat: list[str], conditions: Conditions) -> Case:
    """All of the log was read once, by a mount that has ended."""
    command = ["cat", str(setup.cached / TOPIC / "0" / "log")]
    _consumed(setup, command)
    return Case(
        name="cat log, from the cache",
        unit=MEGABYTES_A_SECOND,
        sides=(Side(OURS, partial(_consumed, setup, command)), Side(KCAT, partial(_consumed, setup, kcat))),
        goals=(Goal(of=KCAT, target=10.0, floor=conditions.choose(full=4.0, short=None)),),
        most_rounds=MOST_ROUNDS,
    )


def _written(setup: _Setup, directory: Path, conditions: Conditions) -> Iterator[Case]:
    text = directory / "written"
    size = setup.size // 4 // lines.LINE_BYTES * lines.LINE_BYTES
    text.write_bytes(lines.text(setup.size)[:size])
    kcat = setup.broker.kcat("-P", WRITTEN, "-p", "0", "-l", str(text))
    ours = ["sh", "-c", f"cat {text} >> {setup.mount / WRITTEN / '0' / 'log'}"]
    yield Case(
        name="cat file >> log",
        unit=MEGABYTES_A_SECOND,
        sides=(
            Side(OURS, partial(_appended, setup, ours, size)),
            Side(KCAT, partial(_appended, setup, kcat, size)),
        ),
        goals=(Goal(of=KCAT, target=1.5, floor=conditions.choose(full=0.8, short=None)),),
        most_rounds=MOST_ROUNDS,
    )
    count = conditions.choose(full=500, short=50)
    yield Case(
        name="one line >> log",
        unit=MILLISECONDS,
        sides=(Side(OURS, partial(_one_line, setup, count)),),
        goals=(Goal(target=1.5),),
        most_rounds=MOST_ROUNDS,
    )


def _appended(setup: _Setup, command: list[str], size: int) -> float:
    before = setup.broker.client.offset_for(WRITTEN)
    taken = seconds_of(command)
    records = setup.broker.client.offset_for(WRITTEN) - before
    if records != size // lines.LINE_BYTES:
        raise WrongResultError(f"{command}: {records} records")
    return size / 1e6 / taken


def _one_line(setup: _Setup, count: int) -> float:
    """The median of opening `log`, writing a line and closing it, in one program, as a shell's echo does."""
    path, taken = setup.mount / WRITTEN / "0" / "log", []
    for number in range(count):
        started = time.perf_counter()
        with path.open("ab", buffering=0) as log:
            log.write(lines.line(number))
        taken.append(time.perf_counter() - started)
    return sorted(taken)[count // 2] * 1e3


def _while_stopped(setup: _Setup, count: int) -> Iterator[Case]:
    asked: dict[str, Callable[[], object]] = {
        "ls of a partition": partial(os.listdir, setup.partition),
        "stat of log": partial(os.stat, setup.partition / "log"),
        "cat @status": (setup.mount / "@status").read_bytes,
    }
    for name, ask in asked.items():
        yield Case(
            name=f"{name} while the broker is stopped, p99",
            unit=MILLISECONDS,
            sides=(Side(OURS, partial(_stopped, setup, ask, count)),),
            goals=(Goal(target=PROMPT_MS),),
            most_rounds=MOST_ROUNDS,
        )


def _consumed(setup: _Setup, command: list[str]) -> float:
    return setup.size / 1e6 / seconds_of(command)


def _one_record(setup: _Setup, count: int) -> float:
    """The median of opening, reading and closing files of records, each another one, in one program."""
    draw = random.Random(1)
    taken = []
    for number in draw.sample(range(setup.records), count):
        path = setup.partition / str(number)
        started = time.perf_counter()
        found = path.read_bytes()
        taken.append(time.perf_counter() - started)
        if found != lines.line(number):
            raise WrongResultError(f"{path}: {found!r}")
    return sorted(taken)[count // 2] * 1e3


def _one_by_kcat(setup: _Setup) -> float:
    """A whole command."""
    offset = random.Random(2).randrange(setup.records)
    return seconds_of(setup.broker.kcat("-C", TOPIC, "-c", "1", "-q", "-o", str(offset))) * 1e3


def _stopped(setup: _Setup, ask: Callable[[], object], count: int) -> float:
    taken = []
    with setup.broker.paused():
        for _ in range(count):
            started = time.perf_counter()
            ask()
            taken.append(time.perf_counter() - started)
    return sorted(taken)[count * 99 // 100] * 1e3


@contextmanager
def _setup(directory: Path, size: int) -> Iterator[_Setup]:
    text = directory / "text"
    text.write_bytes(lines.text(size))
    with broker_tools(directory / "broker") as broker:
        for name in (TOPIC, WRITTEN):
            broker.client.create_topic(name)
        seconds_of(broker.kcat("-P", TOPIC, "-l", str(text)))
        text.unlink()
        cache = ("--cache", str(directory / "cache"))
        with (
            topicfs_of_cluster(directory, broker.bootstrap_server) as mount,
            topicfs_of_cluster(directory, broker.bootstrap_server, *cache) as cached,
        ):
            yield _Setup(broker, mount.path, cached.path, size)


BENCHMARK = Benchmark(
    name="cluster",
    question="How does a mount of a cluster read and write beside kcat, or a stopped broker?",
    cases=cases,
    logarithmic=True,
)
