"""Compaction, which keeps only the newest record of each key.

Figures are megabytes of dirty log per second of one core, compared with copying the same bytes and computing their
checksum.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

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
from benchmarks.in_memory import directory_in_memory, touch_memory
from benchmarks.partitions import START_TIME
from topicfs.fusefs.forms.kv import KV
from topicfs.replication import open_engine
from topicfs.storage.codec.columns import decode
from topicfs.storage.disk.native import system_clock
from topicfs.storage.engine import Partition
from topicfs.storage.model import Offset

COPY = "a copy with crc32c"
KEYS_SHARE = 10
"""Average number of records per key."""
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(8 * 2**20),
    "delete.retention.ms": "0",
}
BATCH_LINES = 160
MAX_BATCH_BYTES = 2**20


class _Keys(NamedTuple):
    name: str
    of: Callable[[int], int]
    """Returns the key of a record; the argument is the record's number."""
    different: int
    max_left: float
    """Largest share of the log's bytes that may remain after the compaction."""


def _kinds(records: int) -> tuple[_Keys, ...]:
    """Return two sets of keys.

    With one set the newest records are at the log's end; with the other they are spread over all batches.
    """
    share = records // KEYS_SHARE
    return (
        _Keys(f"{KEYS_SHARE} records per key", lambda number: number % share, share, max_left=0.5),
        _Keys(
            "every other record stays", lambda number: number * (number % 2), records // 2 + 1, max_left=0.7
        ),
    )


def cases(conditions: Conditions) -> Cases:
    records = conditions.choose(full=320_000, short=80_000)
    numbers = count()
    with directory_in_memory(conditions, 800 * records) as directory:
        for keys in _kinds(records):
            dirty = _dirty_log(directory / f"dirty{next(numbers)}", records, keys)
            yield Case(
                name=keys.name,
                unit=units.MEGABYTES_A_SECOND_OF_PROCESSOR,
                sides=(
                    Side(OURS, partial(_compact, dirty, lambda: directory / str(next(numbers)), keys)),
                    Side(COPY, partial(_copy, dirty, directory / "copy")),
                ),
                goals=(Goal(of=COPY, floor=0.08 if keys.max_left > 0.5 else 0.12),),
            )


def _dirty_log(directory: Path, records: int, keys: _Keys) -> Path:
    """Make a log with `records` records in equal batches."""
    directory.mkdir()
    with closing(open_engine(directory)) as engine:
        partition = engine.create_topic("bench", partitions=1, overrides=SETTINGS).partitions()[0]
        for first in range(0, records, BATCH_LINES):
            text = b"".join(
                b"key %d\t%s\n" % (keys.of(number), lines.line(number))
                for number in range(first, first + BATCH_LINES)
            )
            for batch in KV.parse(text, timestamp=START_TIME, max_batch_bytes=MAX_BATCH_BYTES):
                partition.append(batch, encoded_here=True)
    return directory


def _log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / "bench-0").glob("*.log"))


def _compact(dirty: Path, fresh: Callable[[], Path], keys: _Keys) -> float:
    directory = fresh()
    shutil.copytree(dirty, directory)
    before = _log_bytes(directory)
    engine = open_engine(directory)
    try:
        partition = engine.partition("bench", 0)
        *_, last = partition.segments() or ()
        active = last.size_bytes
        touch_memory(directory, before)
        started = time.process_time()
        engine.maintain_now(system_clock())
        elapsed = time.process_time() - started
        _check(partition, keys, before)
    finally:
        engine.close()
        shutil.rmtree(directory)
    return (before - active) / 1e6 / elapsed


def _check(partition: Partition, keys: _Keys, before: int) -> None:
    """Raise WrongResultError unless every key still exists and most other records are gone."""
    after = sum(segment.size_bytes for segment in partition.segments() or ())
    offset, end = Offset(0), partition.offsets().log_end_offset
    found: set[bytes | None] = set()
    while offset < end:
        for columns in decode(partition.read(offset, max_bytes=2**20).data):
            found |= {record.key for record in columns}
            offset = columns.batches[len(columns.batches) - 1].end_offset
    if len(found) != keys.different or after > keys.max_left * before:
        raise WrongResultError(
            f"{partition.topic}: {len(found)} of {keys.different} keys and {after} of {before} bytes are left"
        )


def _copy(dirty: Path, target: Path) -> float:
    size = 0
    touch_memory(target.parent, _log_bytes(dirty))
    started = time.process_time()
    with target.open("wb", buffering=0) as copy:
        for path in sorted((dirty / "bench-0").glob("*.log")):
            with path.open("rb", buffering=0) as log:
                while window := log.read(2**20):
                    crc32c(window)
                    copy.write(window)
                    size += len(window)
    return size / 1e6 / (time.process_time() - started)


BENCHMARK = Benchmark(
    name="compaction", question="How fast is a log compacted?", cases=cases, logarithmic=True
)
