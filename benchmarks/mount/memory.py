"""The daemon's memory while a partition is read through: RssAnon, at its highest.

It is sampled after every few megabytes of the reading. Pages of segments that the kernel keeps are not the daemon's:
the kernel frees them when memory is needed.
"""

from __future__ import annotations

import os
import shutil
from functools import partial

from benchmarks import lines
from benchmarks.frame.question import (
    MEGABYTES,
    OURS,
    Benchmark,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    WrongResultError,
)
from benchmarks.mount.setup.mounts import Mount, topicfs
from benchmarks.mount.setup.system_calls import MIB
from benchmarks.partitions import ONE_RECORD, SIXTEEN_KIB, Shape, data_directory, whole_batches

SAMPLE_BYTES = 32 * MIB
TENTH = "after a tenth"
MOST_MEGABYTES = 150.0
FLAT = {SIXTEEN_KIB: 1.2, ONE_RECORD: None}
"""A tenth of the small log is less than the windows of a reader: there its growth says nothing."""


class Reading:
    """A reading that goes on where it stopped."""

    def __init__(self, mount: Mount, topic: str, size: int) -> None:
        self._mount = mount
        self._path = mount.partition(topic) / "log"
        self._size = size
        self._at = 0

    def highest_after(self, share: float) -> float:
        """Read on up to that share of the log; megabytes that the daemon held at most meanwhile."""
        buffer = bytearray(MIB)
        highest = self._mount.anonymous_megabytes()
        stop = int(self._size * share)
        descriptor = os.open(self._path, os.O_RDONLY)
        while self._at < stop:
            count = os.preadv(descriptor, [buffer], self._at)
            if not count:
                raise WrongResultError(f"{self._path}: ends at {self._at} of {self._size}")
            if self._at // SAMPLE_BYTES != (self._at + count) // SAMPLE_BYTES:
                highest = max(highest, self._mount.anonymous_megabytes())
            self._at += count
        os.close(descriptor)
        return highest


def cases(conditions: Conditions) -> Cases:
    megabytes: dict[Shape, int] = conditions.choose(
        full={SIXTEEN_KIB: 4_000, ONE_RECORD: 50}, short={SIXTEEN_KIB: 200, ONE_RECORD: 5}
    )
    for shape, size in megabytes.items():
        text_bytes = whole_batches(size * len(lines.BLOCK), shape)
        directory = conditions.directory / str(shape.lines_in_batch)
        data = data_directory(directory / "data", {"bench": (text_bytes, shape)})
        with topicfs(directory, data) as mount:
            reading = Reading(mount, "bench", text_bytes)
            yield Case(
                name=f"{size:,} MB in {shape.name}",
                unit=MEGABYTES,
                sides=(
                    Side(TENTH, partial(reading.highest_after, 0.1)),
                    Side(OURS, partial(reading.highest_after, 1.0)),
                ),
                goals=(Goal(target=MOST_MEGABYTES), Goal(of=TENTH, target=FLAT[shape], floor=3.0)),
                most_rounds=1,
                warm_up=False,
            )
        shutil.rmtree(directory)


BENCHMARK = Benchmark(
    name="memory", question="How much memory does reading a partition through take?", cases=cases
)
