"""The scrub of two replicas: every batch looked at and compared, beside nothing but reading the files; and what appends lose by it.

In memory and by processor time, that of the scrub too, so that it is the engine's own work: on a disk the scrub reads at idle priority, and waits for all others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import lines
from benchmarks.frame.question import (
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
from benchmarks.in_memory import directory_in_memory
from benchmarks.partitions import SIXTEEN_KIB, filled, whole_batches
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.replication.scrub.scrubber import RESTS
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.engine import Partition

GIGABYTES = Unit("GB/s a core", Better.HIGHER)
APPENDS = Unit("appends/s a core", Better.HIGHER)
READING = "reading the files"
ALONE = "no scrub"
WINDOW_BYTES = 2**20
APPEND_BYTES = 40 * lines.LINE_BYTES


def cases(conditions: Conditions) -> Cases:
    size = whole_batches(conditions.choose(full=256, short=32) * len(lines.BLOCK), SIXTEEN_KIB)
    appends = conditions.choose(full=8000, short=500)
    with (
        directory_in_memory(conditions, 6 * size) as directory,
        closing(_replicated(directory)) as engine,
    ):
        filled(engine, "bench", size, SIXTEEN_KIB)
        yield Case(
            name=f"two replicas, {SIXTEEN_KIB.name}",
            unit=GIGABYTES,
            sides=(
                Side(OURS, partial(_scrub, engine)),
                Side(READING, partial(_read, [directory / "a", directory / "b"])),
            ),
            goals=(Goal(of=READING, floor=0.15),),
        )
        appended = engine.create_topic("appended").partitions()[0]
        yield Case(
            name="appends of 4 KB to two replicas",
            unit=APPENDS,
            sides=(
                Side(OURS, partial(_append_beside_a_scrub, engine, appended, appends)),
                Side(ALONE, partial(_append, appended, appends)),
            ),
            goals=(Goal(of=ALONE, target=0.95, floor=0.5),),
        )


def _replicated(directory: Path) -> ReplicatedEngine:
    config = EngineConfig(replication_factor=2, scrub_interval_hours=0)
    return open_replicas([directory / "a", directory / "b"], config=config)


def _scrub(engine: ReplicatedEngine) -> float:
    counts = engine.scrubber.counts
    before = counts.read_bytes
    engine.scrubber.restart()
    started = time.process_time()
    engine.scrubber.run()
    elapsed = time.process_time() - started
    read = counts.read_bytes - before
    if counts.damaged or counts.batches_healed or not read:
        raise WrongResultError(f"{counts} of a topic that is whole")
    return read / 1e9 / elapsed


def _read(directories: list[Path]) -> float:
    logs = [log for directory in directories for log in (directory / "bench-0").glob("*.log")]
    size = sum(log.stat().st_size for log in logs)
    started = time.process_time()
    for log in logs:
        descriptor = os.open(log, os.O_RDONLY)
        position = 0
        while data := os.pread(descriptor, WINDOW_BYTES, position):
            position += len(data)
        os.close(descriptor)
    return size / 1e9 / (time.process_time() - started)


def _append(partition: Partition, count: int) -> float:
    (template,) = encode_lines(lines.text(APPEND_BYTES), timestamp=1_700_000_000_000)
    started = time.process_time()
    for _ in range(count):
        partition.append(bytearray(template))
    return count / (time.process_time() - started)


def _append_beside_a_scrub(engine: ReplicatedEngine, partition: Partition, count: int) -> float:
    with _scrubbing(engine):
        return _append(partition, count)


@contextmanager
def _scrubbing(engine: ReplicatedEngine) -> Iterator[None]:
    """Scrub as the duty does, again and again, inside the block."""
    over = threading.Event()

    def stop_when_over(_: int) -> None:
        if over.is_set():
            raise _OverError

    def scrub() -> None:
        try:
            while not over.is_set():
                engine.scrubber.run(rests=RESTS, advance=stop_when_over)
        except _OverError:
            pass

    engine.scrubber.restart()
    thread = threading.Thread(target=scrub)
    before = engine.scrubber.counts.read_bytes
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if engine.scrubber.counts.read_bytes == before:
        raise WrongResultError("nothing was scrubbed beside the appends")


class _OverError(Exception):
    """The appends are done."""


BENCHMARK = Benchmark(
    name="scrub", question="How fast are replicas scrubbed, and what do appends lose by it?", cases=cases
)
