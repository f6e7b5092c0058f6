"""The time from an append until `follow` shows it, on an idle mount, with a line every few milliseconds.

The writer puts the time into its line. The reader, another process that waits in read(2), reads the clock when it
has the line. Both processes have the same clock. The same measurement with a pipe shows the time of the kernel's
scheduler alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.frame import units
from benchmarks.frame.question import OURS, Benchmark, Cases, Conditions, Goal, WrongResultError
from benchmarks.frame.rounds import Figure, percentile, shared_cases
from benchmarks.mount.setup.mounts import EMPTY, ROOT, empty_filesystem, topicfs

PIPE = "a pipe"
IDLE_SECONDS = 0.002
"""Seconds between two lines, longer than the delivery of any line takes."""

SETTLING_SECONDS = 0.02
TIMEOUT_SECONDS = 60

RECEIVE = """
import os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDONLY)
print("waits", flush=True)
taken = []
while len(taken) < int(sys.argv[2]):
    sent, now = os.read(descriptor, 4096), time.monotonic_ns()
    taken += [now - int(line) for line in sent.split()]
print(*taken, sep="\\n")
"""
"""A program that reads lines as they come, and at the end prints the latency of each line in nanoseconds."""


def cases(conditions: Conditions) -> Cases:
    count = conditions.choose(full=300, short=150)
    with _channels(conditions.directory) as channels:
        ms, p50, p99 = units.MILLISECONDS, partial(percentile, 0.5), partial(percentile, 0.99)
        yield from shared_cases(
            {side: partial(_latencies, count, *paths) for side, paths in channels.items()},
            Figure("p50", ms, p50, (Goal(of=EMPTY, floor=5.0), Goal(of=PIPE))),
            Figure("p99", ms, p99, (Goal(target=5.0), Goal(of=EMPTY), Goal(of=PIPE))),
        )


def _latencies(count: int, written: Path, read: Path) -> list[float]:
    """Return each line's latency in seconds, from before its write(2) to after the read(2) that waited for it."""
    receiver = subprocess.Popen(
        [sys.executable, "-c", RECEIVE, str(read), str(count)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert receiver.stdout is not None
    try:
        # Opening one end of a pipe waits until the other end is opened.
        descriptor = os.open(written, os.O_WRONLY | os.O_APPEND)
        receiver.stdout.readline()
        time.sleep(
            SETTLING_SECONDS
        )  # Give the reader time to begin its read(2), because no other process can see that it waits there.
        for _ in range(count):
            time.sleep(IDLE_SECONDS)
            os.write(descriptor, b"%d\n" % time.monotonic_ns())
        os.close(descriptor)
        rest, _errors = receiver.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        receiver.kill()
        receiver.wait()
        receiver.stdout.close()
    found = [int(line) / 1e9 for line in rest.split()]
    if len(found) != count:
        raise WrongResultError(f"{read}: only {len(found)} of {count} lines came")
    return found


@contextmanager
def _channels(directory: Path) -> Iterator[dict[str, tuple[Path, Path]]]:
    """Yield, for each side, the file to which it writes and the file from which it reads."""
    with ExitStack() as stack:
        ours = stack.enter_context(topicfs(directory, directory / "data"))
        empty = stack.enter_context(empty_filesystem(directory))
        (ours.path / "bench").mkdir()
        pipe = directory / "pipe"
        os.mkfifo(pipe)
        yield {
            OURS: (ours.partition() / "log", ours.partition() / "follow"),
            EMPTY: (empty.partition() / "log", empty.partition() / "follow"),
            PIPE: (pipe, pipe),
        }


BENCHMARK = Benchmark(
    name="follow", question="How long until `follow` shows what was appended?", cases=cases, logarithmic=True
)
