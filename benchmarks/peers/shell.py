"""The alternatives at a shell: the same records through a broker, with kcat and Kafka's console tools.

Whole commands are measured, from their start to their end, because a user waits that long. The broker runs on the
same machine. Like the mount, it acknowledges records once they are in its log (acks=all of one replica, in the page
cache). The logs of the broker and of the mount are in memory, so that no disk affects the figures.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
    Unit,
    WrongResultError,
)
from benchmarks.in_memory import directory_in_memory, touch_memory
from benchmarks.mount.setup.mounts import topicfs
from benchmarks.peers.broker import BrokerTools, broker_tools

TIMEOUT_SECONDS = 300.0


def seconds_of(
    command: Sequence[str], standard_input: Path | None = None, *, timeout: float = TIMEOUT_SECONDS
) -> float:
    """Return the seconds that a command takes; its output is discarded.

    Raises CalledProcessError if the command fails, TimeoutExpired if it takes too long and is killed.
    """
    with (standard_input or Path(os.devnull)).open("rb") as given:
        started = time.perf_counter()
        with subprocess.Popen(
            command, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                _wait(process, timeout)
                elapsed = time.perf_counter() - started
            finally:
                process.kill()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return elapsed


def _wait(process: subprocess.Popen[bytes], timeout: float) -> None:
    """Wait for the end of a process, and return as soon as it has ended.

    With a timeout, subprocess itself polls after 1, 2, 4 and up to 50 ms, which would double the time of a short
    command.
    """
    descriptor = os.pidfd_open(process.pid)
    try:
        ended, _, _ = select.select([descriptor], [], [], timeout)
    finally:
        os.close(descriptor)
    if not ended:
        raise subprocess.TimeoutExpired(process.args, timeout)
    process.wait()


KCAT, CONSOLE = "kcat", "console tools"
CONSUMED = "consumed"
CODECS = ("lz4", "snappy", "zstd", "gzip")
"""Codecs of the compressed topics; each topic is named after its codec."""
MAX_ROUNDS = 3
COPIES = 3 + 3 * MAX_ROUNDS + 5
"""The largest number of copies of the text that memory holds.

The file and the text to consume on both sides are three copies. In each round three sides produce the text. The
compressed texts on both sides are each at most half a copy.
"""
VARIED_BYTES = 4 * 10**6
LINE = shlex.quote(lines.line(0).decode())


@dataclass(frozen=True, slots=True)
class ShellSetup:
    """A broker and a mount with the same topics."""

    broker: BrokerTools
    memory: Path
    """The directory in memory with the logs of the broker and of the mount."""
    mount: Path
    text: Path
    """A file of lines."""
    size: int
    console: bool
    """True if Kafka's console tools are measured too; each call of them starts a JVM."""

    @property
    def records(self) -> int:
        return self.size // lines.LINE_BYTES


def cases(conditions: Conditions) -> Cases:
    size = conditions.choose(full=100, short=30) * len(lines.BLOCK)
    with (
        directory_in_memory(conditions, COPIES * size) as directory,
        _setup(directory, size, console=not conditions.short) as setup,
    ):
        # If there are few bytes, the time of kcat is mostly the time of its start.
        producing, consuming = conditions.choose(full=(2.5, 6.0), short=(3.0, 9.0))
        yield _case("produce", units.MEGABYTES_A_SECOND, _producing(setup), target=5.0, floor=producing)
        yield _case(
            "consume",
            units.MEGABYTES_A_SECOND,
            _consuming(setup, CONSUMED, setup.text),
            target=10.0,
            floor=consuming,
        )
        varied = setup.text.with_name("varied")
        varied.write_bytes(lines.varied_text(VARIED_BYTES) * (size // VARIED_BYTES))
        for codec in conditions.choose(full=CODECS, short=()):
            _fill(setup.broker, setup.mount, codec, varied, "-z", codec)
            sides = _consuming(setup, codec, varied)
            yield _case(f"consume {codec}", units.MEGABYTES_A_SECOND, sides, target=10.0, floor=consuming / 2)
        yield _case("produce one line", units.COMMANDS_A_SECOND, _one_line(setup), target=30.0, floor=40.0)
        yield _case("consume one record by offset", units.COMMANDS_A_SECOND, _one_record(setup), floor=4.0)


def _case(
    name: str, unit: Unit, sides: Iterator[Side], *, target: float | None = None, floor: float | None = None
) -> Case:
    measured = tuple(sides)
    goals = [Goal(of=KCAT, target=target, floor=floor)]
    if any(side.name == CONSOLE for side in measured):
        goals.append(Goal(of=CONSOLE))
    return Case(
        name=name, unit=unit, sides=measured, goals=tuple(goals), max_rounds=MAX_ROUNDS, warm_up=False
    )


def _producing(setup: ShellSetup) -> Iterator[Side]:
    def speed(
        command: Sequence[str], arrived: Callable[[], int], standard_input: Path | None = None
    ) -> float:
        touch_memory(setup.memory, 2 * setup.size)
        before = arrived()
        elapsed = seconds_of(command, standard_input)
        added = arrived() - before
        if added != setup.records:
            raise WrongResultError(f"{command[0]}: {added} of {setup.records} records arrived")
        return setup.size / 1e6 / elapsed

    log = setup.mount / "produced/0/log"
    in_broker = partial(setup.broker.client.offset_for, "produced")
    append = ["sh", "-c", 'cat "$1" >> "$2"', "sh", str(setup.text), str(log)]
    yield Side(OURS, lambda: speed(append, lambda: log.stat().st_size // lines.LINE_BYTES))
    kcat = setup.broker.kcat("-P", "produced", "-l", str(setup.text))
    yield Side(KCAT, lambda: speed(kcat, in_broker))
    if setup.console:
        console = setup.broker.console_producer("produced")
        yield Side(CONSOLE, lambda: speed(console, in_broker, setup.text))


def _consuming(setup: ShellSetup, topic: str, text: Path) -> Iterator[Side]:
    commands = {
        OURS: ["cat", str(setup.mount / topic / "0/log")],
        KCAT: setup.broker.kcat("-C", topic, "-e", "-q", "-o", "beginning"),
    }
    if setup.console and topic == CONSUMED:
        commands[CONSOLE] = setup.broker.console_consumer(topic, setup.records)
    for name, command in commands.items():
        _check_printed(command, text)
        yield Side(name, partial(_consumed, text.stat().st_size, command))


def _consumed(size: int, command: Sequence[str]) -> float:
    return size / 1e6 / seconds_of(command)


def _one_line(setup: ShellSetup) -> Iterator[Side]:
    log = setup.mount / "lines/0/log"
    yield Side(OURS, lambda: _loop(200, f"echo {LINE} >> {log}"))
    kcat = shlex.join(setup.broker.kcat("-P", "lines"))
    yield Side(KCAT, lambda: _loop(10, f"echo {LINE} | {kcat}"))
    if setup.console:
        console = shlex.join(setup.broker.console_producer("lines"))
        yield Side(CONSOLE, lambda: _loop(1, f"echo {LINE} | {console}"))


def _one_record(setup: ShellSetup) -> Iterator[Side]:
    """Consume a different record in each round, but never the first record of the log."""
    step = setup.records // 400
    partition = setup.mount / "consumed/0"
    yield Side(OURS, lambda: _loop(100, f"cat {partition}/$((number * {step} + {step})) > /dev/null"))
    kcat = shlex.join(setup.broker.kcat("-C", "consumed", "-c", "1", "-q"))
    yield Side(KCAT, lambda: _loop(10, f"{kcat} -o $((number * {step} + {step})) > /dev/null"))


def _loop(count: int, command: str) -> float:
    """Return the number of commands per second in a loop in bash."""
    script = f"set -e -o pipefail; for ((number = 0; number < {count}; number++)); do {command}; done"
    return count / seconds_of(["bash", "-c", script])


def _check_printed(command: Sequence[str], text: Path) -> None:
    """Raise WrongResultError unless a command prints exactly the text."""
    found = total = 0
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        assert program.stdout is not None
        while piece := program.stdout.read(2**20):
            found = crc32c(piece, found)
            total += len(piece)
    size = text.stat().st_size
    if (total, found) != (size, crc32c(text.read_bytes())):
        raise WrongResultError(f"{command[0]} printed {total} bytes, not the {size} that were produced")


@contextmanager
def _setup(directory: Path, size: int, *, console: bool) -> Iterator[ShellSetup]:
    """Run the broker and the mount, and fill the topics that kcat and cat read."""
    text = directory / "text"
    text.write_bytes(lines.text(size))
    with ExitStack() as stack:
        broker = stack.enter_context(broker_tools(directory / "broker"))
        mount = stack.enter_context(topicfs(directory, directory / "data")).path
        for topic in ("produced", "lines"):
            broker.client.create_topic(topic)
            (mount / topic).mkdir()
        _fill(broker, mount, CONSUMED, text)
        yield ShellSetup(broker, directory, mount, text, size, console)


def _fill(broker: BrokerTools, mount: Path, topic: str, text: Path, *flags: str) -> None:
    """Make a topic on both sides, and produce the text. A topic named after a codec is compressed with that codec."""
    broker.client.create_topic(topic)
    (mount / topic).mkdir()
    if topic in CODECS:
        (mount / topic / "config").write_text(f"compression.type={topic}\n")
    with text.open("rb") as source, (mount / topic / "0/log").open("ab", buffering=0) as target:
        shutil.copyfileobj(source, target, 128 * 1024)
    seconds_of(broker.kcat("-P", topic, *flags, "-l", str(text)))


BENCHMARK = Benchmark(
    name="shell",
    question="How fast are whole commands, compared with kcat and the console tools?",
    cases=cases,
    logarithmic=True,
)
