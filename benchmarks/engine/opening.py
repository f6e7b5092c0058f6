"""Opening a directory with a thousand partitions that was closed in order, and closing it, beside opening each file there.

In memory, so that it is the engine's own work: on a disk that was not read before, each file's first page comes on top.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks import lines
from benchmarks.frame.question import (
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
from benchmarks.partitions import START_TIME
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode_lines

FILES = "open, read, close each file"


def cases(conditions: Conditions) -> Cases:
    partitions = conditions.choose(full=1000, short=200)
    with directory_in_memory(conditions, partitions * 2**16) as directory:
        data = directory / "data"
        _fill(data, partitions)
        yield Case(
            name=f"{partitions:,} partitions",
            unit=MILLISECONDS,
            sides=(Side(OURS, partial(_open, data, partitions)), Side(FILES, partial(_open_files, data))),
            goals=(Goal(of=FILES, floor=25.0),),
            most_rounds=5,
        )
        yield Case(
            name=f"{partitions:,} partitions, idle, closed",
            unit=MILLISECONDS,
            sides=(Side(OURS, partial(_close_idle, data)), Side(FILES, partial(_open_files, data))),
            goals=(Goal(of=FILES, floor=8.0),),
            most_rounds=5,
        )


def _fill(data: Path, partitions: int) -> None:
    data.mkdir()
    with closing(open_engine(data)) as engine:
        for partition in engine.create_topic("bench", partitions=partitions).partitions().values():
            (batch,) = encode_lines(lines.text(100 * lines.LINE_BYTES), timestamp=START_TIME)
            partition.append(batch, encoded_here=True)


def _open(data: Path, partitions: int) -> float:
    started = time.process_time()
    engine = open_engine(data)
    elapsed = time.process_time() - started
    try:
        found = engine.topic("bench").partitions().values()
        whole = sum(partition.offsets().log_end_offset == 100 for partition in found)
    finally:
        engine.close()
    if whole != partitions:
        raise WrongResultError(f"{data}: {whole} partitions of {partitions} are whole")
    return elapsed * 1e3


def _close_idle(data: Path) -> float:
    engine = open_engine(data)
    started = time.process_time()
    engine.close()
    return (time.process_time() - started) * 1e3


def _open_files(data: Path) -> float:
    started = time.process_time()
    for directory in os.scandir(data):
        if directory.is_dir():
            for entry in os.scandir(directory):
                descriptor = os.open(entry.path, os.O_RDONLY)
                os.fstat(descriptor)
                os.read(descriptor, 4096)
                os.close(descriptor)
    return (time.process_time() - started) * 1e3


BENCHMARK = Benchmark(
    name="opening", question="How long does opening a directory with many partitions take?", cases=cases
)
