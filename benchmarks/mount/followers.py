"""Programs that `follow`: the records they get together, and their cost for those that append.

Followers read in step with the writer, or what was written while they were busy elsewhere; beside them stands `cat log` of
the same text, and as many streams of the empty filesystem, which has no work behind them. An append is timed while
hundreds of programs wait in read(2), and while one waits for thousands of files with epoll.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import lines
from benchmarks.frame.question import (
    MEGABYTES_A_SECOND,
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
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.setup.mounts import EMPTY, Mount, empty_filesystem, topicfs
from benchmarks.mount.setup.system_calls import KIB, append_pieces
from testing.processes import ending_with_this

CAT = "`cat log`"
IN_TURN = "written, then `cat log`"
WRITER = "written, not followed"
"""What follows beside its writer cannot be faster than that."""
ALONE = "without followers"
PIECE = 128 * KIB
"""Bytes of one read(2) and of one write(2)."""
WRITTEN_BYTES = 2 * 2**30
"""More than all rounds write."""
SETTLING_SECONDS = 0.05
PATIENCE_SECONDS = 60
PAUSE_SECONDS = 0.002
"""Between two lines whose way is timed: longer than any of them is under way."""

READ = """
import os, sys
descriptor, left = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2])
buffer = memoryview(bytearray(int(sys.argv[3])))
print("open", flush=True)
sys.stdin.readline()
while left > 0:
    left -= os.readv(descriptor, [buffer[:left]])
print(left, flush=True)
sys.stdin.readline()
"""
"""Opens a file, and reads so many bytes when it is told to."""

RECEIVE = """
import os, sys, time
descriptor, taken = os.open(sys.argv[1], os.O_RDONLY), []
print("open", flush=True)
sys.stdin.readline()
while len(taken) < int(sys.argv[2]):
    sent, now = os.read(descriptor, 65536), time.monotonic_ns()
    taken += [now - int(line) for line in sent.split()]
print(*taken, flush=True)
sys.stdin.readline()
"""
"""Reads lines as soon as they come, and prints their nanoseconds on the way."""

WAIT_FOR_ALL = """
import os, select, sys
poll = select.epoll()
for _ in range(int(sys.argv[2])):
    poll.register(os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK), select.EPOLLIN)
print("open", flush=True)
while True:
    for descriptor, _ in poll.poll():
        try:
            os.read(descriptor, 65536)
        except BlockingIOError:
            pass
"""
"""Opens a file so many times, waits for all of them with epoll and reads what is ready."""


@dataclass(eq=False)
class Programs:
    """Programs that run at the same time, and say a line each when they are ready and when they are done."""

    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, script: str, *arguments: object) -> None:
        """Start one more; `answers` waits until it is ready."""
        command = [sys.executable, "-S", "-c", script, *map(str, arguments)]
        pipe = subprocess.PIPE
        self.running.append(
            subprocess.Popen(ending_with_this(command, "KILL"), stdin=pipe, stdout=pipe, text=True, bufsize=1)
        )

    def start_cat(self, path: Path) -> None:
        """Start one that shows nothing of itself."""
        command = ending_with_this(["cat", str(path)], "KILL")
        self.running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True))

    def go(self) -> None:
        """Tell all of them to go on."""
        for program in self.running:
            assert program.stdin is not None
            program.stdin.write("\n")
            program.stdin.flush()

    def answers(self) -> list[str]:
        """Wait for the next line of each."""
        found = []
        for program in self.running:
            assert program.stdout is not None
            found.append(program.stdout.readline().strip())
        return found

    def end(self) -> None:
        for program in self.running:
            program.kill()
        for program in self.running:
            program.communicate()


@contextmanager
def _programs(count: int, script: str, *arguments: object) -> Iterator[Programs]:
    """Run a script in so many processes, ready to begin."""
    programs = Programs()
    try:
        for _ in range(count):
            programs.start(script, *arguments)
        if set(programs.answers()) != {"open"}:
            raise WrongResultError(f"{arguments}: it could not be opened")
        yield programs
    finally:
        programs.end()


def cases(conditions: Conditions) -> Cases:
    with ExitStack() as stack:
        directory = stack.enter_context(directory_in_memory(conditions, WRITTEN_BYTES))
        ours = stack.enter_context(topicfs(directory, directory / "data"))
        size = conditions.choose(full=32, short=8) * len(lines.BLOCK)
        empty = stack.enter_context(empty_filesystem(directory, like=ours, log_bytes=size))
        for topic in ("bench", "read", "timed"):
            (ours.path / topic).mkdir()
        # What was followed is deleted again, so that memory suffices.
        (ours.path / "bench" / "config").write_text("retention.bytes=200000000\nsegment.bytes=20000000\n")
        append_pieces(ours.partition("read") / "log", memoryview(lines.text(size)), PIECE)
        for count in conditions.choose(full=(1, 10, 50), short=(1, 10)):
            yield from _reading(ours, empty, count, size if count == 1 else size // 4)
        yield from _latencies(conditions, ours, empty)
        for count in conditions.choose(full=(500,), short=(50,)):
            yield _append(ours, f"an append while {count} programs wait", partial(_waiting, count), goal=1.0)
        for count in conditions.choose(full=(500, 5000), short=(500,)):
            goal = 1.0 if count <= 500 else 3.0
            yield _append(
                ours, f"an append while {count} files are polled", partial(_polled, count), goal=goal
            )


def _reading(ours: Mount, empty: Mount, count: int, size: int) -> Iterator[Case]:
    """Megabytes a second of all readers together."""
    followed = _Followed(ours.partition(), size)
    cat = Side(CAT, lambda: _together(ours.partition("read") / "log", count, size))
    streams = Side(EMPTY, lambda: _together(empty.partition() / "log", count, size))
    in_turn = Side(IN_TURN, lambda: followed.in_turn(ours.partition("read") / "log"))
    writer = Side(WRITER, followed.written)
    others, goal = ((cat, in_turn, writer), CAT) if count == 1 else ((cat, streams), EMPTY)
    for name, measure in (("behind", followed.behind), ("beside the writer", followed.beside_writer)):
        yield Case(
            name=f"{count} following, {name}",
            unit=MEGABYTES_A_SECOND,
            sides=(Side(OURS, partial(measure, count)), *others),
            goals=tuple(Goal(of=side.name, target=0.6 if side.name == goal else None) for side in others),
            most_rounds=5,
        )


@dataclass(frozen=True)
class _Followed:
    """Followers of a partition, of a text that is appended while they wait or before they read."""

    partition: Path
    size: int

    def behind(self, count: int) -> float:
        """Time the followers of text that is there when they begin to read."""
        with _programs(count, READ, self.partition / "follow", self.size, PIECE) as programs:
            self._write()
            started = time.perf_counter()
            programs.go()
            return self._speed(programs, started)

    def beside_writer(self, count: int) -> float:
        """Time followers that wait when the first byte is written."""
        with _programs(count, READ, self.partition / "follow", self.size, PIECE) as programs:
            programs.go()
            time.sleep(SETTLING_SECONDS)
            started = time.perf_counter()
            self._write()
            return self._speed(programs, started)

    def in_turn(self, read: Path) -> float:
        """The same bytes written first, and then as many read: what a follower could get if waking cost nothing."""
        return 1 / (1 / self.written() + 1 / _together(read, 1, self.size))

    def written(self) -> float:
        """The same bytes written while nobody follows."""
        started = time.perf_counter()
        self._write()
        return self.size / 1e6 / (time.perf_counter() - started)

    def _write(self) -> None:
        append_pieces(self.partition / "log", memoryview(lines.text(self.size)), PIECE)

    def _speed(self, programs: Programs, started: float) -> float:
        return _speed(programs, self.size, started, str(self.partition))


def _together(path: Path, count: int, size: int) -> float:
    with _programs(count, READ, path, size, PIECE) as programs:
        started = time.perf_counter()
        programs.go()
        return _speed(programs, size, started, str(path))


def _speed(programs: Programs, size: int, started: float, what: str) -> float:
    if set(programs.answers()) != {"0"}:
        raise WrongResultError(f"{what}: not all of it was read")
    return size * len(programs.running) / 1e6 / (time.perf_counter() - started)


def _latencies(conditions: Conditions, ours: Mount, empty: Mount) -> Iterator[Case]:
    """Milliseconds from an append to each of the followers that see it.

    The empty filesystem has the bytes at hand for all of them: what it takes is what the programs take, and the kernel.
    """
    count, sent = conditions.choose(full=(50, 200), short=(10, 50))
    rounds = {
        mount.side: SharedRounds(partial(_sent, mount.partition("timed"), count, sent))
        for mount in (ours, empty)
    }
    for name, share, goals in (("p50", 0.5, ()), ("p99", 0.99, (Goal(target=5.0),))):
        figure = partial(_percentile, share)
        yield Case(
            name=f"append to seen by each of {count}, {name}",
            unit=MILLISECONDS,
            sides=tuple(
                Side(side, (shared.measure if share == 0.5 else shared.reuse)(figure))
                for side, shared in rounds.items()
            ),
            goals=(*goals, Goal(of=EMPTY)),
            most_rounds=5,
        )


def _sent(partition: Path, count: int, sent: int) -> list[float]:
    with _programs(count, RECEIVE, partition / "follow", sent) as programs:
        programs.go()
        time.sleep(SETTLING_SECONDS)
        descriptor = os.open(partition / "log", os.O_WRONLY | os.O_APPEND)
        for _ in range(sent):
            time.sleep(PAUSE_SECONDS + count * 0.0002)
            os.write(descriptor, b"%d\n" % time.monotonic_ns())
        os.close(descriptor)
        found = [int(taken) / 1e6 for line in programs.answers() for taken in line.split()]
    if len(found) != count * sent:
        raise WrongResultError(f"{partition}: {len(found)} lines came of {count * sent}")
    return found


def _percentile(share: float, figures: Sequence[float]) -> float:
    return sorted(figures)[min(int(len(figures) * share), len(figures) - 1)]


def _append(ours: Mount, name: str, follow: Callable[[Programs, Path], None], *, goal: float) -> Case:
    """The median of appends in a row, with followers and without."""
    return Case(
        name=name,
        unit=MILLISECONDS,
        sides=(
            Side(OURS, lambda: _appended(ours.partition("timed"), follow)),
            Side(ALONE, lambda: _appended(ours.partition("timed"), lambda _programs, _path: None)),
        ),
        goals=(Goal(target=goal), Goal(of=ALONE)),
        most_rounds=3,
        warm_up=False,
    )


def _waiting(count: int, programs: Programs, path: Path) -> None:
    for _ in range(count):
        programs.start_cat(path)
    time.sleep(0.5 + count / 250)  # Until all of them wait in read(2), which cannot be seen from outside.


def _polled(count: int, programs: Programs, path: Path) -> None:
    programs.start(WAIT_FOR_ALL, path, count)
    programs.answers()
    time.sleep(0.2)


def _appended(partition: Path, follow: Callable[[Programs, Path], None]) -> float:
    programs = Programs()
    try:
        follow(programs, partition / "follow")
        line, taken = lines.line(0) + b"\n", []
        descriptor = os.open(partition / "log", os.O_WRONLY | os.O_APPEND)
        for _ in range(200):
            started = time.perf_counter()
            os.write(descriptor, line)
            taken.append((time.perf_counter() - started) * 1e3)
        os.close(descriptor)
    finally:
        programs.end()
    return _percentile(0.5, taken)


BENCHMARK = Benchmark(
    name="followers", question="What do many followers get, and cost?", cases=cases, logarithmic=True
)
"""`follow` times one follower of an idle mount."""
