"""One record by its offset or its time: open, read and close of `0/OFFSET` and `0/@TIME` in one process.

Each lookup is for another random record, so that no name is cached. The records come from a fixed number of batches,
spread over the whole log, so that large and small logs have the same amount of data in caches. The figure of a round
is the median of its lookups, so that other programs affect it little. Before each cold lookup, all pages of the
partition leave the page cache, except those of indexes that the daemon has mapped.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from benchmarks import lines
from benchmarks.frame import units
from benchmarks.frame.question import (
    Benchmark,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    SkippedError,
    WrongResultError,
)
from benchmarks.mount.setup.cpu_time import one_processor
from benchmarks.mount.setup.mounts import EMPTY, empty_filesystem, empty_filesystem_in_c, topicfs
from benchmarks.mount.setup.system_calls import check_can_drop, drop, read_small
from benchmarks.partitions import BATCH_MS, SIXTEEN_KIB, START_TIME, data_directory, whole_batches
from topicfs.storage.codec.batch import read_header

MEGABYTE = 10**6
SHAPE = SIXTEEN_KIB
FULL = {"10 MB": 10, "100 MB": 100, "1 GB": 1000, "10 GB": 10_000}
SHORT = {"10 MB": 10, "100 MB": 100}
FLAT, FLAT_FLOOR = 1.2, 3.0
OF_EMPTY = {"0/OFFSET": 1.4, "0/@TIME": 3.0}
OF_EMPTY_FLOORS = {"0/OFFSET": 4.0, "0/@TIME": 6.0}
BATCHES = 500
"""Number of batches in which records are looked up: nearly all batches of the smallest log."""


class OnDisk(NamedTuple):
    """Where a batch of a log is stored in a file."""

    path: Path
    position: int
    size: int


class MountedLog(NamedTuple):
    """A mounted log of some size."""

    size: str
    partition: Path
    batches: list[int]
    """Numbers of the batches in which records are looked up."""
    files: list[Path]
    """The log's files on disk; empty for an empty filesystem."""


def some_batches(text_bytes: int) -> list[int]:
    """Choose batches of a log: the same in each run, and never the first batch."""
    return random.Random(0).sample(range(1, text_bytes // SHAPE.batch_text_bytes), BATCHES)


def by_offset(log: MountedLog, choose: random.Random) -> tuple[str, bytes]:
    """Return the name of a record by its offset, and the record's value."""
    offset = choose.choice(log.batches) * SHAPE.lines_in_batch + choose.randrange(SHAPE.lines_in_batch)
    return str(offset), lines.line(offset)


def by_time(log: MountedLog, choose: random.Random) -> tuple[str, bytes]:
    """Return a name `@TIME` that selects a batch's first record, and the record's value.

    TIME is later than the timestamps of the previous batch.
    """
    batch = choose.choice(log.batches)
    timestamp = START_TIME + batch * BATCH_MS - choose.randrange(BATCH_MS)
    return f"@{timestamp}", lines.line(batch * SHAPE.lines_in_batch)


Naming: TypeAlias = Callable[[MountedLog, random.Random], tuple[str, bytes]]
NAMINGS: tuple[tuple[str, Naming], ...] = (("0/OFFSET", by_offset), ("0/@TIME", by_time))


def cases(conditions: Conditions) -> Cases:
    with one_processor(), _mounted(conditions) as (logs, empties):
        for name, naming in NAMINGS:
            count = conditions.choose(full=500, short=400)
            of_empty = Goal(of=EMPTY, side=logs[-1].size, target=OF_EMPTY[name], floor=OF_EMPTY_FLOORS[name])
            yield _case(f"{name}, warm", naming, logs, empties, count, of_empty)
        try:
            check_can_drop([file for log in logs for file in log.files])
        except SkippedError:
            return  # Files on this disk cannot leave the page cache.
        for name, naming in conditions.choose(full=NAMINGS, short=NAMINGS[:1]):
            yield _cold_case(f"{name}, cold", naming, logs, conditions.choose(full=60, short=15))


def _case(
    name: str, naming: Naming, logs: list[MountedLog], empties: list[MountedLog], count: int, of_empty: Goal
) -> Case:
    smallest, largest = logs[0].size, logs[-1].size
    return Case(
        name=name,
        unit=units.MICROSECONDS,
        sides=tuple(Side(log.size, partial(_lookups, log, naming, count)) for log in (*logs, *empties)),
        goals=(
            Goal(side=largest, of=smallest, target=FLAT, floor=FLAT_FLOOR),
            of_empty,
            *(Goal(side=largest, of=empty.size) for empty in empties[1:]),
        ),
    )


def _cold_case(name: str, naming: Naming, logs: list[MountedLog], count: int) -> Case:
    """Return the case of cold lookups; plain files show whether the disk itself is slower for a large log."""
    smallest, largest = logs[0], logs[-1]
    ours = tuple(Side(log.size, partial(_lookups, log, naming, count, cold=True)) for log in logs)
    plain = tuple(Side(_plain(log), partial(_batches, log, count)) for log in (smallest, largest))
    return Case(
        name=name,
        unit=units.MICROSECONDS,
        sides=(*ours, *plain),
        goals=(
            Goal(side=largest.size, of=smallest.size, target=FLAT),
            Goal(side=largest.size, of=_plain(largest)),
            Goal(side=smallest.size, of=_plain(smallest)),
            Goal(side=_plain(largest), of=_plain(smallest)),
        ),
    )


def _plain(log: MountedLog) -> str:
    return f"{log.size}, plain files"


def _lookups(log: MountedLog, naming: Naming, count: int, *, cold: bool = False) -> float:
    """Return the median microseconds of a lookup. Raises WrongResultError if a lookup returns another record."""
    choose = random.Random()
    taken = []
    for _ in range(count):
        name, expected = naming(log, choose)
        path = log.partition / name
        if cold:
            drop(log.files)
        started = time.perf_counter_ns()
        content = read_small(path)
        taken.append(time.perf_counter_ns() - started)
        if log.files and content != expected:
            raise WrongResultError(f"{path}: {content!r} is not {expected!r}")
    return statistics.median(taken) / 1000


def _batches(log: MountedLog, count: int) -> float:
    """Return the median microseconds of reading a batch at its position from a file that is not in memory."""
    choose = random.Random()
    segments = sorted(file for file in log.files if file.suffix == ".log")
    batch_bytes = _batch_bytes(segments[0])
    taken = []
    for _ in range(count):
        batch = _position(segments, choose.choice(log.batches), batch_bytes)
        drop(log.files)
        started = time.perf_counter_ns()
        descriptor = os.open(batch.path, os.O_RDONLY)
        os.pread(descriptor, batch.size, batch.position)
        os.close(descriptor)
        taken.append(time.perf_counter_ns() - started)
    return statistics.median(taken) / 1000


def _batch_bytes(segment: Path) -> int:
    """Return the size of a batch on disk, which is the same for all batches of a log."""
    with segment.open("rb") as file:
        return read_header(file.read(2 * SHAPE.batch_text_bytes)).size_bytes


def _position(segments: list[Path], number: int, batch_bytes: int) -> OnDisk:
    """Return the place of the batch with number `number`."""
    for segment in segments:
        in_segment = segment.stat().st_size // batch_bytes
        if number < in_segment:
            return OnDisk(segment, number * batch_bytes, batch_bytes)
        number -= in_segment
    raise WrongResultError(f"{segments[0].parent} has no batch {number}")


@contextmanager
def _mounted(conditions: Conditions) -> Iterator[tuple[list[MountedLog], list[MountedLog]]]:
    """Mount logs of every size, and two empty filesystems. The goals compare the logs with the first of these two."""
    directory = conditions.directory
    sizes = {
        size: whole_batches(megabytes * MEGABYTE, SHAPE)
        for size, megabytes in conditions.choose(full=FULL, short=SHORT).items()
    }
    data = data_directory(
        directory / "data", {_topic(size): (text_bytes, SHAPE) for size, text_bytes in sizes.items()}
    )
    with ExitStack() as stack:
        ours = stack.enter_context(topicfs(directory, data))
        empties = [
            stack.enter_context(empty_filesystem(directory)),
            stack.enter_context(empty_filesystem_in_c(directory)),
        ]
        logs = [
            MountedLog(
                size,
                ours.partition(_topic(size)),
                some_batches(text_bytes),
                list((data / f"{_topic(size)}-0").iterdir()),
            )
            for size, text_bytes in sizes.items()
        ]
        chosen = some_batches(10**9)
        yield logs, [MountedLog(empty.side, empty.partition(), chosen, []) for empty in empties]


def _topic(size: str) -> str:
    return size.replace(" ", "-")


BENCHMARK = Benchmark(
    name="lookup",
    question="How long does one record by offset or by time take?",
    cases=cases,
    logarithmic=True,
)
