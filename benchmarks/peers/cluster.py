"""A mount of a running cluster beside kcat on the same broker, from its cache too, and while the broker answers nothing.

The broker runs on the same machine, keeps its log in memory, and has worked for a while: Java compiles what it does often.
What of a time is the broker's own show the same requests without a mount. What a stopped broker would have to answer
waits for ever; what needs no answer is measured meanwhile.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
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
from benchmarks.in_memory import directory_in_memory, touch_memory
from benchmarks.mount.setup.cpu_time import one_processor
from benchmarks.mount.setup.mounts import topicfs_of_cluster
from benchmarks.peers.asking_filesystem import ASKING, asking_filesystem
from benchmarks.peers.bare_requests import BareRequests
from benchmarks.peers.broker import BrokerTools, broker_tools
from benchmarks.peers.commands import seconds_of
from topicfs.fusefs.nodes.nodes import READ_BLOCK
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.native import system_clock

KCAT = "kcat"
CACHED = "from the cache"
AHEAD = "--max-in-flight 5"
"""A mount that answers large writes while they are under way, as kcat and Java's producer have five of them."""
BARE = "bare requests"
"""The same to the broker, one request at a time, without a mount or a file."""
NOTHING = "cat of nothing"
"""A program that is started, and reads no record."""
TOPIC = "lines"
SMALL = "small"
"""The same lines, in smaller batches."""
BATCHES = {TOPIC: ("1 MB batches", ()), SMALL: ("16 KiB batches", ("-X", "batch.size=16384"))}
"""The batches that are read, and kcat's options for them."""
WRITTEN = {side: f"written-{number}" for number, side in enumerate((OURS, AHEAD, BARE, ASKING, KCAT))}
"""Each side has a topic of its own: a mount that has looked at one follows it, and is sent what others append to it."""
ONE_LINE, ONE_LINE_PINNED = "one-line", "one-line-pinned"
"""Each mount has one of its own: another that has looked at a topic follows it, and is told of each line."""
ONE_LINE_BARE = "one-line-bare"
MOST_ROUNDS = 5
WARMING = 32
"""Files that are appended before any is measured."""
WRITE_BYTES = READ_BLOCK // lines.LINE_BYTES * lines.LINE_BYTES
"""Bytes of the whole lines in a write(2) of `cat`, which goes by what `stat` advises."""
COMMANDS = 31
"""In a round, of commands that take milliseconds."""
PROMPT_MS = 10.0
"""Longest that names, sizes and `@status` may take while nothing is answered, of all but one in a hundred."""


@dataclass(frozen=True, slots=True)
class _Setup:
    broker: BrokerTools
    mount: Path
    pinned: Path
    """A mount whose daemon, and who asks it, have one processor."""
    cached: Path
    """A mount with a cache."""
    ahead: Path
    """A mount that has several writes under way."""
    bare: BareRequests
    asking: Mapping[str, Path]
    """For each topic that is read, a filesystem that does nothing but ask for its batches."""
    memory: Path
    size: int
    draw: random.Random = field(default_factory=partial(random.Random, 1))
    """The kernel remembers files of records: no round may read those of the one before."""

    @property
    def records(self) -> int:
        return self.size // lines.LINE_BYTES

    def placed(self, path: Path) -> AbstractContextManager[None]:
        """Have this program share the processor of the daemon it asks, if that has one of its own, for a block."""
        return one_processor() if path.is_relative_to(self.pinned) else nullcontext()


def cases(conditions: Conditions) -> Cases:
    size = conditions.choose(full=100, short=20) * len(lines.BLOCK)
    with directory_in_memory(conditions, 22 * size) as directory, _setup(directory, size) as setup:
        _warm(setup, conditions.choose(full=2500, short=100))
        for topic in BATCHES:
            yield _read(setup, topic, conditions)
        yield from _one_record(setup, conditions)
        yield from _written(setup, directory, conditions)
        yield from _while_stopped(setup, conditions.choose(full=1000, short=100))


def _warm(setup: _Setup, count: int) -> None:
    """Have the broker do often what it will be measured at."""
    record = encode_lines(lines.line(0) + b"\n", timestamp=system_clock())
    for number in range(count):
        setup.bare.append(ONE_LINE_BARE, record)
        setup.bare.batch_with(SMALL, number)
    _one_line(setup, setup.mount / ONE_LINE / "0" / "log", count)


def _read(setup: _Setup, topic: str, conditions: Conditions) -> Case:
    ours, cached = (["cat", str(mount / topic / "0" / "log")] for mount in (setup.mount, setup.cached))
    kcat = setup.broker.kcat("-C", topic, "-e", "-q", "-o", "beginning")
    floors = conditions.choose(full=(4.0, 6.5), short=(None, None))
    return Case(
        name=f"cat log, {BATCHES[topic][0]}",
        unit=MEGABYTES_A_SECOND,
        sides=(
            Side(OURS, partial(_consumed, setup, ours)),
            Side(CACHED, partial(_consumed, setup, cached)),  # All of it, after the first time.
            Side(KCAT, partial(_consumed, setup, kcat)),
        ),
        goals=(
            Goal(of=KCAT, target=4.0, floor=floors[0]),
            Goal(side=CACHED, of=KCAT, target=10.0, floor=floors[1]),
        ),
        most_rounds=MOST_ROUNDS,
    )


def _one_record(setup: _Setup, conditions: Conditions) -> Iterator[Case]:
    count, goals = conditions.choose(full=300, short=50), (Goal(target=1.5), Goal(of=BARE))
    for topic, (shape, _) in BATCHES.items():
        for where, mount in (("", setup.pinned), (", not pinned", setup.mount)):
            place = mount / topic / "0"
            yield Case(
                name=f"one record by offset, {shape}{where}",
                unit=MILLISECONDS,
                sides=(
                    Side(OURS, partial(_records, setup, place, count)),
                    Side(BARE, partial(_bare_records, setup, place, topic, count)),
                ),
                goals=goals,
                most_rounds=MOST_ROUNDS,
            )
        yield Case(
            name=f"one record by offset, {shape}, whole commands",
            unit=MILLISECONDS,
            sides=(
                Side(OURS, partial(_one_by_command, setup, partial(_cat_of, setup, topic))),
                Side(NOTHING, partial(_one_by_command, setup, lambda _: ["cat", os.devnull])),
                Side(ASKING, partial(_one_by_command, setup, partial(_cat_of_asked, setup, topic))),
                Side(KCAT, partial(_one_by_command, setup, partial(_kcat_of, setup, topic))),
            ),
            goals=(
                Goal(of=KCAT, target=1 / 5, floor=conditions.choose(full=0.5, short=None)),
                Goal(side=NOTHING, of=KCAT),
                Goal(side=ASKING, of=KCAT),
            ),
            most_rounds=MOST_ROUNDS,
        )


def _written(setup: _Setup, directory: Path, conditions: Conditions) -> Iterator[Case]:
    text = directory / "written"
    size = setup.size // 4 // lines.LINE_BYTES * lines.LINE_BYTES
    text.write_bytes(lines.text(setup.size)[:size])
    for _ in range(conditions.choose(full=WARMING, short=1)):
        _bare_append(setup, text.read_bytes())  # What the broker will be measured at, it does often before.
    kcat = setup.broker.kcat("-P", WRITTEN[KCAT], "-p", "0", "-l", str(text))
    # Whatever the path, what is appended to the other's `log` goes to its one topic.
    topics = setup.mount / WRITTEN[OURS], setup.ahead / WRITTEN[AHEAD], setup.asking[TOPIC] / TOPIC
    ours, ahead, asking = (["sh", "-c", f"cat {text} >> {topic / '0' / 'log'}"] for topic in topics)
    yield Case(
        name="cat file >> log",
        unit=MEGABYTES_A_SECOND,
        sides=(
            Side(OURS, partial(_appended, setup, OURS, ours, size)),
            Side(AHEAD, partial(_appended, setup, AHEAD, ahead, size)),
            Side(BARE, partial(_bare_append, setup, text.read_bytes())),
            Side(ASKING, partial(_appended, setup, ASKING, asking, size)),
            Side(KCAT, partial(_appended, setup, KCAT, kcat, size)),
        ),
        goals=(
            Goal(of=KCAT, floor=conditions.choose(full=0.8, short=None)),
            Goal(side=AHEAD, of=KCAT, target=1.5, floor=conditions.choose(full=1.2, short=None)),
            Goal(of=BARE),
            Goal(side=ASKING, of=KCAT),
        ),
        most_rounds=MOST_ROUNDS,
    )
    count = conditions.choose(full=300, short=50)
    places = ("", setup.pinned / ONE_LINE_PINNED), (", not pinned", setup.mount / ONE_LINE)
    for where, topic in places:
        yield Case(
            name=f"one line >> log{where}",
            unit=MILLISECONDS,
            sides=(
                Side(OURS, partial(_one_line, setup, topic / "0" / "log", count)),
                Side(BARE, partial(_bare_lines, setup, topic, count)),
            ),
            goals=(Goal(target=1.5), Goal(of=BARE)),
            most_rounds=MOST_ROUNDS,
        )


def _appended(setup: _Setup, side: str, command: list[str], size: int) -> float:
    touch_memory(setup.memory, 2 * size)
    before = setup.broker.client.offset_for(WRITTEN[side])
    taken = seconds_of(command)
    records = setup.broker.client.offset_for(WRITTEN[side]) - before
    if records != size // lines.LINE_BYTES:
        raise WrongResultError(f"{command}: {records} records")
    return size / 1e6 / taken


def _bare_append(setup: _Setup, text: bytes) -> float:
    """The batches that the mount makes of `cat`'s writes; each waits for the one before, as each write(2) does."""
    touch_memory(setup.memory, 2 * len(text))
    started = time.perf_counter()
    for start in range(0, len(text), WRITE_BYTES):
        piece = text[start : start + WRITE_BYTES]
        setup.bare.append(WRITTEN[BARE], encode_lines(piece, timestamp=system_clock()))
    return len(text) / 1e6 / (time.perf_counter() - started)


def _one_line(setup: _Setup, path: Path, count: int) -> float:
    """The median of opening `log`, writing a line and closing it, in one program: the system calls of a shell's echo."""

    def append(number: int) -> None:
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, lines.line(number) + b"\n")
        os.close(log)

    with setup.placed(path):
        return _median_of(append, range(count))


def _bare_lines(setup: _Setup, path: Path, count: int) -> float:
    def append(number: int) -> None:
        text = lines.line(number) + b"\n"
        setup.bare.append(ONE_LINE_BARE, encode_lines(text, timestamp=system_clock()))

    with setup.placed(path):
        return _median_of(append, range(count))


def _median_of(work: Callable[[int], None], numbers: Iterable[int]) -> float:
    """The milliseconds of one of them."""
    taken = []
    for number in numbers:
        started = time.perf_counter()
        work(number)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e3


def _while_stopped(setup: _Setup, count: int) -> Iterator[Case]:
    partition = setup.mount / TOPIC / "0"
    asked: dict[str, Callable[[], object]] = {
        "ls of a partition": partial(os.listdir, partition),
        "stat of log": partial(os.stat, partition / "log"),
        "cat @status": (setup.mount / "@status").read_bytes,
    }
    for name, ask in asked.items():
        yield Case(
            name=f"{name} while the broker is stopped, p99",
            unit=MILLISECONDS,
            sides=(Side(OURS, partial(_stopped, setup, ask, count)),),
            goals=(Goal(target=PROMPT_MS),),
            most_rounds=MOST_ROUNDS,
        )


def _consumed(setup: _Setup, command: list[str]) -> float:
    return setup.size / 1e6 / seconds_of(command)


def _records(setup: _Setup, partition: Path, count: int) -> float:
    """The median of opening, reading and closing files of records, each another one, in one program."""

    def read(number: int) -> None:
        path = partition / str(number)
        found = path.read_bytes()
        if found != lines.line(number):
            raise WrongResultError(f"{path}: {found!r}")

    with setup.placed(partition):
        return _median_of(read, setup.draw.sample(range(setup.records), count))


def _bare_records(setup: _Setup, partition: Path, topic: str, count: int) -> float:
    with setup.placed(partition):
        return _median_of(
            partial(setup.bare.batch_with, topic), setup.draw.sample(range(setup.records), count)
        )


def _one_by_command(setup: _Setup, command_of: Callable[[int], list[str]]) -> float:
    """The median of whole commands, each for another record."""
    # Names of one digit are directories of the empty filesystem.
    offsets = random.Random().sample(range(10, setup.records), COMMANDS)
    return statistics.median(seconds_of(command_of(offset)) for offset in offsets) * 1e3


def _cat_of(setup: _Setup, topic: str, offset: int) -> list[str]:
    return ["cat", str(setup.mount / topic / "0" / str(offset))]


def _cat_of_asked(setup: _Setup, topic: str, offset: int) -> list[str]:
    return ["cat", str(setup.asking[topic] / topic / "0" / str(offset))]


def _kcat_of(setup: _Setup, topic: str, offset: int) -> list[str]:
    return setup.broker.kcat("-C", topic, "-c", "1", "-q", "-o", str(offset))


def _stopped(setup: _Setup, ask: Callable[[], object], count: int) -> float:
    taken = []
    with setup.broker.paused():
        for _ in range(count):
            started = time.perf_counter()
            ask()
            taken.append(time.perf_counter() - started)
    return sorted(taken)[count * 99 // 100] * 1e3


@contextmanager
def _setup(directory: Path, size: int) -> Iterator[_Setup]:
    text = directory / "text"
    text.write_bytes(lines.text(size))
    with broker_tools(directory / "broker") as broker:
        for name in (*BATCHES, *WRITTEN.values(), ONE_LINE, ONE_LINE_PINNED, ONE_LINE_BARE):
            broker.client.create_topic(name)
        for name, (_, options) in BATCHES.items():
            seconds_of(broker.kcat("-P", name, *options, "-l", str(text)))
        text.unlink()
        server = broker.bootstrap_server
        alone = directory / "pinned"
        alone.mkdir()
        with ExitStack() as stack:
            with one_processor():
                pinned = stack.enter_context(topicfs_of_cluster(alone, server))
            mount = stack.enter_context(topicfs_of_cluster(directory, server))
            cached = stack.enter_context(
                topicfs_of_cluster(directory, server, "--cache", str(directory / "cache"))
            )
            ahead = stack.enter_context(topicfs_of_cluster(directory, server, *AHEAD.split()))
            bare = stack.enter_context(closing(BareRequests(server)))
            asking = {
                topic: stack.enter_context(
                    asking_filesystem(directory, server, read=topic, written=WRITTEN[ASKING])
                ).path
                for topic in BATCHES
            }
            yield _Setup(
                broker, mount.path, pinned.path, cached.path, ahead.path, bare, asking, directory, size
            )


BENCHMARK = Benchmark(
    name="cluster",
    question="How does a mount of a cluster read and write beside kcat, or a stopped broker?",
    cases=cases,
    logarithmic=True,
)
