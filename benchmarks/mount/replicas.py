"""Replicas in two data directories: what the second one costs an append, how fast one catches up, and how long a failover takes.

Appends go through mounts, the same ones on both sides. A replica that was away copies all there is, beside a copy of the
files; in the end both have the same bytes. A failover begins with a write(2) that the leader's disk refuses (ENOSPC, of
/dev/full) and ends with the answer to the append that met it: another directory leads then, in a new epoch that is on
disk in both.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import lines
from benchmarks.frame.question import (
    MEGABYTES_A_SECOND,
    MICROSECONDS,
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
from benchmarks.frame.rounds import SharedRounds
from benchmarks.in_memory import directory_in_memory, touch_memory
from benchmarks.mount.setup.cpu_time import one_processor
from benchmarks.mount.setup.mounts import topicfs
from benchmarks.mount.setup.system_calls import KIB, append_lines, append_pieces
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.native import system_clock

ONE = "one replica"
COPY = "a copy of the files"
APPEND = "an append"
BULK = {"16 KiB": 16 * KIB, "128 KiB": 128 * KIB}
MOST_ROUNDS = 11
TOPIC = "bench"


def cases(conditions: Conditions) -> Cases:
    yield from _appends(conditions)
    yield from _catching_up(conditions)
    yield from _failovers(conditions)


# Appends.


def _appends(conditions: Conditions) -> Iterator[Case]:
    count = conditions.choose(full=5_000, short=1_500)
    line = lines.line(0) + b"\n"
    size = conditions.choose(full=24, short=12) * len(lines.BLOCK)
    text = memoryview(lines.text(size))
    with one_processor(), _logs(conditions, 3 * size * MOST_ROUNDS * len(BULK)) as logs:
        yield _appending(
            "100 bytes on one descriptor",
            {
                side: partial(_appended, log, count * len(line), partial(append_lines, log, line, count))
                for side, log in logs.items()
            },
            count,
        )
        for name, piece in BULK.items():
            yield Case(
                name=f"{name} writes",
                unit=MEGABYTES_A_SECOND,
                sides=tuple(Side(side, partial(_bulk, log, text, piece)) for side, log in logs.items()),
                goals=(Goal(of=ONE, target=0.45, floor=0.2),),
                most_rounds=MOST_ROUNDS,
            )


def _appending(name: str, sides: dict[str, Callable[[], float]], count: int) -> Case:
    def figure(measure: Callable[[], float]) -> float:
        return measure() / count * 1e6

    return Case(
        name=name,
        unit=MICROSECONDS,
        sides=tuple(Side(side, partial(figure, measure)) for side, measure in sides.items()),
        goals=(Goal(of=ONE, target=1.25, floor=3.5),),
        most_rounds=MOST_ROUNDS,
    )


@contextmanager
def _logs(conditions: Conditions, written_bytes: int) -> Iterator[dict[str, Path]]:
    """A topic with two replicas in memory, and one with a single replica."""
    with directory_in_memory(conditions, 3 * written_bytes) as directory:
        both = Path(f"{directory / 'a'},{directory / 'b'}")
        with (
            topicfs(directory, both, "--replicas", "2") as two,
            topicfs(directory, directory / "single") as one,
        ):
            logs = {}
            for side, mount in ((OURS, two), (ONE, one)):
                (mount.path / TOPIC).mkdir()
                logs[side] = mount.partition(TOPIC) / "log"
            yield logs


def _appended(log: Path, size: int, work: Callable[[], float]) -> float:
    """Seconds of appending `size` bytes. Raises WrongResultError where they did not arrive."""
    before = log.stat().st_size
    touch_memory(log.parents[3], 4 * size)
    took = work()
    arrived = log.stat().st_size - before
    if arrived != size:
        raise WrongResultError(f"{log}: {arrived} bytes arrived of {size}")
    return took


def _bulk(log: Path, text: memoryview, piece: int) -> float:
    took = _appended(log, len(text), lambda: append_pieces(log, text, piece))
    return len(text) / 1e6 / took


# Catching up.


def _catching_up(conditions: Conditions) -> Iterator[Case]:
    size = conditions.choose(full=256, short=32) * len(lines.BLOCK)
    with directory_in_memory(conditions, 4 * size) as directory, closing(_opened(directory, 1)) as engine:
        engine.create_topic(TOPIC, overrides={"file.delete.delay.ms": "0"})
        partition = engine.partition(TOPIC, 0)
        for _ in range(size // len(lines.BLOCK)):
            for batch in encode_lines(lines.BLOCK, timestamp=0):
                partition.append(batch)
        yield Case(
            name="a replica that was away",
            unit=MEGABYTES_A_SECOND,
            sides=(Side(OURS, partial(_catch_up, engine)), Side(COPY, partial(_copy, engine, directory))),
            goals=(Goal(of=COPY, target=0.5, floor=0.2),),
        )


def _catch_up(engine: ReplicatedEngine) -> float:
    leader = engine.partition(TOPIC, 0).directory
    assert leader is not None
    started = time.perf_counter()
    engine.set_replicas(TOPIC, 2)
    engine.catch_up()
    took = time.perf_counter() - started
    statuses = engine.partition(TOPIC, 0).status().replicas
    if [one.in_sync for one in statuses] != [True, True]:
        raise WrongResultError(f"not in sync: {statuses}")
    size = statuses[0].log_bytes or 0
    engine.set_replicas(TOPIC, 1)
    engine.maintenance(system_clock())
    return size / 1e6 / took


def _copy(engine: ReplicatedEngine, directory: Path) -> float:
    source = engine.partition(TOPIC, 0).directory
    assert source is not None
    target = directory / "copied"
    started = time.perf_counter()
    target.mkdir()
    for path in source.iterdir():
        shutil.copyfile(path, target / path.name)
        with (target / path.name).open("rb+") as file:
            os.fsync(file.fileno())
    took = time.perf_counter() - started
    size = sum(path.stat().st_size for path in target.glob("*.log"))
    shutil.rmtree(target)
    return size / 1e6 / took


# Failing over.


def _failovers(conditions: Conditions) -> Iterator[Case]:
    count = conditions.choose(full=100, short=20)
    with _silence(), closing(_opened(conditions.directory, 2)) as engine:
        engine.create_topic(TOPIC)
        shared = {
            OURS: SharedRounds(partial(_fail_over, engine, count)),
            APPEND: SharedRounds(partial(_append, engine, count)),
        }
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            rounds = {
                side: one.measure(partial(_percentile, share))
                if name == "p50"
                else one.reuse(partial(_percentile, share))
                for side, one in shared.items()
            }
            yield Case(
                name=f"failover, {name}",
                unit=MILLISECONDS,
                sides=tuple(Side(side, measure) for side, measure in rounds.items()),
                goals=(*([Goal(target=50.0)] if name == "p99" else []), Goal(of=APPEND)),
            )


@contextmanager
def _silence() -> Iterator[None]:
    """Leave out what the engine says of each failure."""
    logger = logging.getLogger("topicfs.storage")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _fail_over(engine: ReplicatedEngine, count: int) -> list[float]:
    """Milliseconds from an append to its answer, the leader's disk refusing the first write."""
    taken = []
    for _ in range(count):
        replicated = engine.replicated(next(iter(engine.topic(TOPIC).served.values())).name)
        before = replicated.leader
        assert before is not None
        with _refusing(before.log.chain.active.log.path):
            taken.append(_timed_append(engine))
        if replicated.leader is before:
            raise WrongResultError("the leader is the same")
        engine.catch_up()
        if replicated.in_sync_replicas != 2:
            raise WrongResultError(f"in sync: {replicated.state}")
    return taken


def _append(engine: ReplicatedEngine, count: int) -> list[float]:
    return [_timed_append(engine) for _ in range(count)]


def _timed_append(engine: ReplicatedEngine) -> float:
    (batch,) = encode_lines(lines.line(0) + b"\n", timestamp=0)
    started = time.perf_counter()
    engine.partition(TOPIC, 0).append(batch)
    return (time.perf_counter() - started) * 1e3


def _percentile(share: float, taken: list[float]) -> float:
    return sorted(taken)[min(int(len(taken) * share), len(taken) - 1)]


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Have every descriptor of a file in this process lead to /dev/full, which takes no byte."""
    numbers = [int(one.name) for one in Path("/proc/self/fd").iterdir() if _leads_to(one, path)]
    kept = [(number, os.dup(number)) for number in numbers]
    full = os.open("/dev/full", os.O_RDWR)
    try:
        for number in numbers:
            os.dup2(full, number)
        yield
    finally:
        for number, before in kept:
            os.dup2(before, number)
            os.close(before)
        os.close(full)


def _leads_to(descriptor: Path, path: Path) -> bool:
    try:
        return descriptor.readlink() == path
    except OSError:
        return False


def _opened(directory: Path, replicas: int) -> ReplicatedEngine:
    return open_replicas(
        [directory / "a", directory / "b"],
        config=EngineConfig(replication_factor=replicas),
        in_background=False,
    )


BENCHMARK = Benchmark(
    name="replicas", question="What do two replicas cost, and how fast are they one again?", cases=cases
)
