"""Recovery after a crash: scans every batch, verifies its checksum, and rebuilds the indexes.

Figures are gigabytes of log per second of one core, compared with only reading the bytes and computing their
checksum.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from crc32c import crc32c

from benchmarks import lines
from benchmarks.frame import units
from benchmarks.frame.question import (
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
from benchmarks.partitions import ONE_RECORD, SIXTEEN_KIB, data_directory, whole_batches
from topicfs.replication import open_engine
from topicfs.storage.disk.names import CLEAN_SHUTDOWN, RECOVERY_POINTS

CHECKSUM = "crc32c alone"
WINDOW_BYTES = 2**20
TARGETS = {SIXTEEN_KIB: 2.0, ONE_RECORD: 0.5}


def cases(conditions: Conditions) -> Cases:
    sizes = {
        SIXTEEN_KIB: conditions.choose(full=256, short=64) * len(lines.BLOCK),
        ONE_RECORD: conditions.choose(full=20, short=5) * len(lines.BLOCK),
    }
    for shape, text_bytes in sizes.items():
        size = whole_batches(text_bytes, shape)
        with directory_in_memory(conditions, 2 * size) as directory:
            data = data_directory(directory / str(shape.lines_in_batch), {"bench": (size, shape)})
            yield Case(
                name=shape.name,
                unit=units.GIGABYTES_A_SECOND_OF_PROCESSOR,
                sides=(
                    Side(OURS, partial(_recover, data, size // lines.LINE_BYTES)),
                    Side(CHECKSUM, partial(_read_and_sum, _log(data))),
                ),
                goals=(Goal(target=TARGETS[shape]), Goal(of=CHECKSUM, floor=FLOORS[shape])),
            )


FLOORS = {SIXTEEN_KIB: 0.22, ONE_RECORD: 0.1}


def _log(data: Path) -> Path:
    (found,) = (data / "bench-0").glob("*.log")
    return found


def _recover(data: Path, records: int) -> float:
    """Return the speed of a recovery, in gigabytes of log per second of processor time.

    Before the recovery, remove the indexes and the files that a process writes only at a clean end or a checkpoint.
    """
    (data / CLEAN_SHUTDOWN).unlink()
    (data / RECOVERY_POINTS).unlink()
    for suffix in ("*.index", "*.timeindex"):
        for index in (data / "bench-0").glob(suffix):
            index.unlink()
    started = time.process_time()
    engine = open_engine(data)
    elapsed = time.process_time() - started
    try:
        offsets = engine.partition("bench", 0).offsets()
    finally:
        engine.close()
    indexes = sum(index.stat().st_size for index in (data / "bench-0").glob("*index"))
    if offsets.log_end_offset != records or not indexes:
        raise WrongResultError(
            f"{data}: recovered {offsets} of {records} records, and indexes of {indexes} bytes"
        )
    return _log(data).stat().st_size / 1e9 / elapsed


def _read_and_sum(log: Path) -> float:
    size = log.stat().st_size
    started = time.process_time()
    descriptor = os.open(log, os.O_RDONLY)
    for position in range(0, size, WINDOW_BYTES):
        crc32c(os.pread(descriptor, WINDOW_BYTES, position))
    os.close(descriptor)
    return size / 1e9 / (time.process_time() - started)


BENCHMARK = Benchmark(
    name="recovery", question="How fast is a log recovered after a crash?", cases=cases, logarithmic=True
)
