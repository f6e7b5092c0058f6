"""Compares a topic with earlier observations of it, and finds a Spark driver's processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.doubles.records import read_records
from topicfs.coordination.engine import Engine

PARTITIONS = 2
WORKER, PARENT = "worker", "parent of workers"
"""Kinds of Python processes."""
PARENT_DEPTH = 2
"""Depth of the process `pyspark.daemon` below a driver, with the JVM between the two."""


class Found(NamedTuple):
    """One observation of a partition: its start offset, end offset and records."""

    start: int
    end: int
    records: dict[int, tuple[str, str]]
    """Key and value of each record by offset."""


class Seen:
    """The records observed so far in a topic."""

    def __init__(self, cleanup: str) -> None:
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self._cleanup = cleanup
        self._records: dict[tuple[int, int], tuple[str, str]] = {}
        self._place_of: dict[str, tuple[int, int]] = {}

    def compare(self, number: int, one: Found) -> None:
        """Compare a partition with its earlier observations; raises AssertionError."""
        assert one.end >= self.ends[number]
        self.ends[number] = one.end
        for offset, record in one.records.items():
            place = number, offset
            assert record == self._records.setdefault(place, record)
            assert place == self._place_of.setdefault(record[1], place), f"{record[1]} is at two offsets"
        newest = {key: offset for offset, (key, _) in sorted(one.records.items())}
        for (partition, offset), (key, value) in self._records.items():
            if partition != number or offset in one.records:
                continue
            by_retention = self._cleanup == "delete" and offset < one.start
            by_compaction = self._cleanup == "compact" and newest.get(key, -1) > offset
            assert by_retention or by_compaction, f"{value} is gone from offset {offset}"


def found_by_owner(engine: Engine, topic: str) -> dict[int, Found]:
    """Return each partition of a topic as an engine reads it."""
    found = {}
    for number, partition in engine.topic(topic).partitions().items():
        offsets = partition.offsets()
        records = {
            int(one.offset): ((one.key or b"").decode(), (one.value or b"").decode())
            for one in read_records(partition)
        }
        found[number] = Found(offsets.log_start_offset, offsets.high_watermark, records)
    return found


def found_in_mount(topic: Path) -> dict[int, Found]:
    """Return each partition of a topic as a mount shows it; raises OSError."""
    found = {}
    for number in range(PARTITIONS):
        folder = topic / str(number)
        lines = [json.loads(line) for line in (folder / "log.json").read_text().splitlines()]
        status = dict(line.split(" ", 1) for line in (folder / "status").read_text().splitlines())
        end, start = int(status["high_watermark"]), int(status["log_start_offset"])
        records = {line["offset"]: (line["key"] or "", line["payload"]) for line in lines}
        found[number] = Found(start, max([end, *(offset + 1 for offset in records)]), records)
    return found


def python_processes(parent: int, depth: int = 1) -> Iterator[tuple[int, str]]:
    """Yield the Python processes below a driver and its JVM, with their kinds."""
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                if b"pyspark" in command and b"python" in command.partition(b"\0")[0]:
                    yield int(child), WORKER if depth > PARENT_DEPTH else PARENT
                yield from python_processes(int(child), depth + 1)


def python_orphans(folder: Path) -> Iterator[int]:
    """Yield the running processes whose environment says that their driver works in `folder`."""
    wanted = f"SPARK_LOCAL_DIRS={folder}/spark".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
