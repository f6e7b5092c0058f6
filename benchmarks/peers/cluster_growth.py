"""The cost of a large partition of a cluster, and of a thousand followed ones, for a mount of it and for a mirror.

The broker has the large partition on the disk. While the thousand partitions are followed nothing comes: what is counted
is the processor time of asking for news, and of being told that there is none.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from benchmarks import lines
from benchmarks.frame.question import (
    MEGABYTES,
    MILLISECONDS_OF_PROCESSOR,
    OURS,
    Benchmark,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    WrongResultError,
)
from benchmarks.mount.memory import MOST_MEGABYTES, TENTH, Reading
from benchmarks.mount.setup.cpu_time import seconds_of
from benchmarks.mount.setup.mounts import Mount, topicfs_of_cluster
from benchmarks.partitions import Shape, data_directory, whole_batches
from benchmarks.peers.broker import BrokerTools, broker_tools
from testing.processes import ending_with_this

LARGE, MANY = "bench", "many"
SHAPE = Shape("1 MB batches", 9_000)
"""A batch is just within what a topic takes by default."""
FLAT = 1.2
MIRROR = "mirror"
MOST_OF_SILENCE = 30.0
"""Milliseconds of the processor a second."""
SETTLING_SECONDS = 5.0
PATIENCE_SECONDS = 120.0
COMMAND = str(Path(sys.executable).with_name("topicfs"))

_FOLLOW_ALL = """
import os, select, sys
waiting = select.epoll()
for number in range(int(sys.argv[2])):
    waiting.register(os.open(f"{sys.argv[1]}/{number}/follow", os.O_RDONLY | os.O_NONBLOCK), select.EPOLLIN)
print("waiting", flush=True)
waiting.poll()
"""
"""Opens `follow` of so many partitions, and waits for all of them."""


def cases(conditions: Conditions) -> Cases:
    directory = conditions.directory
    with broker_tools(directory / "broker") as broker:
        megabytes = conditions.choose(full=10_000, short=100)
        size = whole_batches(megabytes * len(lines.BLOCK), SHAPE)
        _fill(broker, directory, size)
        with topicfs_of_cluster(directory, broker.bootstrap_server) as mount:
            reading = Reading(mount, LARGE, size)
            yield Case(
                name=f"memory while {megabytes:,} MB are read",
                unit=MEGABYTES,
                sides=(
                    Side(TENTH, partial(reading.highest_after, 0.1)),
                    Side(OURS, partial(reading.highest_after, 1.0)),
                ),
                goals=(
                    Goal(target=MOST_MEGABYTES),
                    Goal(of=TENTH, target=conditions.choose(full=FLAT, short=None)),
                ),
                most_rounds=1,
                warm_up=False,
            )
        partitions = conditions.choose(full=1_000, short=100)
        broker.client.delete_topics([LARGE])
        broker.client.create_topic(MANY, partitions=partitions)
        with _followers(directory, broker, partitions) as (mount, mirror):
            time.sleep(conditions.choose(full=SETTLING_SECONDS, short=1.0))
            silence = _Silence((mount.pid, mirror), conditions.choose(full=7.0, short=2.0))
            yield Case(
                name=f"{partitions:,} followed partitions, a second of silence",
                unit=MILLISECONDS_OF_PROCESSOR,
                sides=(
                    Side(OURS, partial(silence.a_second_of, mount.pid)),
                    Side(MIRROR, partial(silence.a_second_of, mirror)),
                ),
                goals=(
                    Goal(target=MOST_OF_SILENCE),
                    Goal(side=MIRROR, target=MOST_OF_SILENCE),
                ),
                most_rounds=3,
                warm_up=False,
            )


def _fill(broker: BrokerTools, directory: Path, size: int) -> None:
    """Give the broker a partition that the engine has written: the files are those that the broker would write."""
    broker.client.create_topic(LARGE)
    data = data_directory(directory / "data", {LARGE: (size, SHAPE)})
    with broker.stopped() as log_dir:
        for file in (data / f"{LARGE}-0").iterdir():
            if file.suffix in {".log", ".index", ".timeindex", ".snapshot"}:
                shutil.move(file, log_dir / f"{LARGE}-0" / file.name)


@contextmanager
def _followers(directory: Path, broker: BrokerTools, partitions: int) -> Iterator[tuple[Mount, int]]:
    """A mount, all of whose partitions a program follows, and the process id of a mirror of them."""
    with ExitStack() as stack:
        place = directory / "followed"
        place.mkdir()
        mount = stack.enter_context(topicfs_of_cluster(place, broker.bootstrap_server))
        numbers = {str(number) for number in range(partitions)}
        # They show in whatever order their leaders answer.
        topic, copy = mount.path / MANY, directory / "copy"
        _wait_until(lambda: _has(topic, numbers), f"{topic}: not all show")
        program = [sys.executable, "-c", _FOLLOW_ALL, str(topic), str(partitions)]
        following = stack.enter_context(_running(program))
        assert following.stdout is not None
        if not following.stdout.readline():
            raise WrongResultError(f"{topic}: not all can be followed")
        mirror = stack.enter_context(
            _running([COMMAND, "mirror", f"kafka://{broker.bootstrap_server}", str(copy), "--topics", MANY])
        )
        copies = {f"{MANY}-{number}" for number in numbers}
        _wait_until(lambda: _has(copy, copies), f"{copy}: not all are there")
        yield mount, mirror.pid
        if following.poll() is not None:
            raise WrongResultError(f"{topic}: who follows has ended, so that nobody did in some round")


def _has(directory: Path, names: set[str]) -> bool:
    return directory.exists() and names <= {entry.name for entry in directory.iterdir()}


def _wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise WrongResultError(f"{otherwise} after {PATIENCE_SECONDS} s")
        time.sleep(0.1)  # Between two looks: what is waited for takes seconds.


@contextmanager
def _running(command: list[str]) -> Iterator[Popen[bytes]]:
    with Popen(ending_with_this(command, "TERM"), stdin=DEVNULL, stdout=PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


class _Silence:
    """Some seconds at a time in which nothing comes, and the processor time of several processes in the same ones."""

    def __init__(self, pids: Sequence[int], seconds: float) -> None:
        self._pids, self._seconds = pids, seconds
        self._taken: dict[int, float] = {}
        """What was not asked for yet of the last seconds."""

    def a_second_of(self, pid: int) -> float:
        """Milliseconds of the processor that a process takes a second; each is asked for once a round."""
        if pid not in self._taken:
            before = {one: seconds_of(one) for one in self._pids}
            time.sleep(self._seconds)
            self._taken = {one: (seconds_of(one) - before[one]) / self._seconds * 1e3 for one in self._pids}
        return self._taken.pop(pid)


BENCHMARK = Benchmark(
    name="cluster-growth",
    question="What do a large partition and a thousand followed ones of a cluster take?",
    cases=cases,
    logarithmic=True,
)
