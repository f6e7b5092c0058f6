"""Reading as a member of a group, and taking from a queue: beside `follow`, `cat log`, kcat on a broker and beanstalkd.

Members of a mount are open files. A broker's groups are reached by the clients of a shell, and a queue of the machine's
own by its protocol, without a program for each job. All of them keep what they write in memory.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from benchmarks import lines
from benchmarks.frame.question import (
    OURS,
    SECONDS,
    Benchmark,
    Better,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    SkippedError,
    Unit,
    WrongResultError,
)
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.setup.mounts import ROOT, topicfs
from benchmarks.mount.setup.system_calls import KIB, append_pieces
from benchmarks.peers.broker import BrokerTools, broker_tools
from benchmarks.peers.commands import seconds_of
from testing.processes import ending_with_this

FOLLOW, CAT = "`follow`", "`cat log`"
KCAT, LIBRDKAFKA, BEANSTALKD = "kcat -G", "librdkafka on a broker", "beanstalkd"
RECORDS_A_SECOND = Unit("records/s", Better.HIGHER)
COMMITS_A_SECOND = Unit("commits/s", Better.HIGHER)
JOBS_A_SECOND = Unit("jobs/s", Better.HIGHER)
MEMBERS = 100
MOST_ROUNDS = 3
COPIES = 2 * MOST_ROUNDS + 6
PIECE = 128 * KIB
PATIENCE_SECONDS = 60

READ = """
import os, sys
descriptor, left = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2])
buffer = memoryview(bytearray(os.fstat(descriptor).st_blksize))
print("open", flush=True)
while left > 0:
    left -= os.readv(descriptor, [buffer])
print(left, flush=True)
sys.stdin.readline()
"""
"""Opens a file, and reads until so many bytes have come, in pieces as `cat` asks for them."""


@dataclass(frozen=True, slots=True)
class GroupSetup:
    """The same text on both sides, and a mount with groups."""

    mount: Path
    broker: BrokerTools
    size: int

    @property
    def records(self) -> int:
        return self.size // lines.LINE_BYTES

    def group(self, name: str, topic: str) -> Path:
        """The directory in which a group reads a topic; the group is made."""
        directory = self.mount / "@groups" / name
        with suppress(FileExistsError):
            directory.mkdir()
        return directory / topic


def cases(conditions: Conditions) -> Cases:
    size = conditions.choose(full=100, short=20) * len(lines.BLOCK)
    with directory_in_memory(conditions, COPIES * size) as directory, _setup(directory, size) as setup:
        yield Case(
            name="while it is written",
            unit=RECORDS_A_SECOND,
            sides=tuple(_followed(setup)),
            goals=(Goal(of=FOLLOW, target=0.7, floor=1.2),),
            most_rounds=MOST_ROUNDS,
        )
        yield Case(
            name="what was written before",
            unit=RECORDS_A_SECOND,
            sides=tuple(_drained(setup)),
            goals=(Goal(of=KCAT, target=5.0, floor=7.0), Goal(of=CAT)),
            most_rounds=MOST_ROUNDS,
        )
        count = conditions.choose(full=2_000, short=500)
        yield Case(
            name="commits, one after the other",
            unit=COMMITS_A_SECOND,
            sides=(
                Side(OURS, partial(_commits, setup, count)),
                Side(LIBRDKAFKA, partial(_commits_of_a_broker, setup.broker, count)),
            ),
            goals=(Goal(of=LIBRDKAFKA),),
        )
        yield Case(
            name=f"{MEMBERS} members join",
            unit=SECONDS,
            sides=(Side(OURS, partial(_rebalance, setup)),),
            goals=(Goal(target=1.0),),
        )
        yield from _jobs(setup, directory, count)


def _followed(setup: GroupSetup) -> Iterator[Side]:
    """A reader that waits, and a writer that appends as fast as it can."""
    log = setup.mount / "followed/0/log"
    read = setup.group("followers", "followed")
    files = {OURS: read / "log", FOLLOW: log.with_name("follow")}

    def speed(path: Path) -> float:
        (read / "0/position").write_text("latest\n")
        reader = subprocess.Popen(
            [sys.executable, "-c", READ, str(path), str(setup.size)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert reader.stdout is not None
        try:
            _expect("open", reader.stdout.readline().strip())
            begun = time.perf_counter()
            append_pieces(log, memoryview(lines.text(setup.size)), PIECE)
            _expect("0", reader.stdout.readline().strip())
            elapsed = time.perf_counter() - begun
            reader.communicate("\n", timeout=PATIENCE_SECONDS)
        finally:
            reader.kill()
            reader.wait()
        _wait_for_members(read.parent, 0)
        return setup.records / elapsed

    for name, path in files.items():
        yield Side(name, partial(speed, path))


def _drained(setup: GroupSetup) -> Iterator[Side]:
    """Everything that a group has not read, by whole commands."""
    read = setup.group("drainers", "consumed")
    names = iter(range(10**6))

    def ours() -> float:
        (read / "0/position").write_text("earliest\n")
        return _checked(setup, ["cat", str(read / "drain")])

    def kcat() -> float:
        command = [
            *("kcat", "-b", setup.broker.bootstrap_server, "-G", f"bench-{next(names)}", "-q", "-u"),
            *("-X", "auto.offset.reset=earliest", "-c", str(setup.records), "consumed"),
        ]
        return _checked(setup, command)

    yield Side(OURS, ours)
    yield Side(CAT, lambda: _checked(setup, ["cat", str(setup.mount / "consumed/0/log")]))
    yield Side(KCAT, kcat)


def _checked(setup: GroupSetup, command: list[str]) -> float:
    """Records a second of a command that prints all of them."""
    begun = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        assert program.stdout is not None
        total = 0
        while piece := program.stdout.read(1 << 20):
            total += len(piece)
    elapsed = time.perf_counter() - begun
    _expect(setup.size, total)
    return setup.records / elapsed


def _commits(setup: GroupSetup, count: int) -> float:
    """A record is read and committed, each before the next."""
    read = setup.group("committers", "consumed")
    (read.parent / "config").write_text("commit=manual\n")
    (read / "0/position").write_text("earliest\n")
    descriptor = os.open(read / "log", os.O_RDWR)
    try:
        elapsed = 0.0
        for _ in range(count):
            os.read(descriptor, lines.LINE_BYTES)
            begun = time.perf_counter()
            os.write(descriptor, b"commit\n")
            elapsed += time.perf_counter() - begun
        _expect(f"{count}\n", (read / "0/position").read_text())
    finally:
        os.close(descriptor)
    _wait_for_members(read.parent, 0)
    return count / elapsed


def _commits_of_a_broker(broker: BrokerTools, count: int) -> float:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_server, "group.id": "committers"})
    try:
        consumer.commit(offsets=[TopicPartition("consumed", 0, 0)], asynchronous=False)
        begun = time.perf_counter()
        for offset in range(count):
            consumer.commit(offsets=[TopicPartition("consumed", 0, offset)], asynchronous=False)
        return count / (time.perf_counter() - begun)
    finally:
        consumer.close()


def _rebalance(setup: GroupSetup) -> float:
    """From the first open(2) until each member has its partition."""
    read = setup.group("many", "many")
    begun = time.perf_counter()
    descriptors = [os.open(read / "log", os.O_RDONLY | os.O_NONBLOCK) for _ in range(MEMBERS)]
    try:
        _wait_for_members(read.parent, MEMBERS, each=1)
        return time.perf_counter() - begun
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        _wait_for_members(read.parent, 0)


def _wait_for_members(group: Path, count: int, *, each: int | None = None) -> None:
    """Wait until a group is settled with so many members, of which each has so many partitions."""
    wanted = {"state Stable" if count else "state Empty", f"members {count}"}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        status = (group / "status").read_text().splitlines()
        held = [line.rpartition(" ")[2].split(",") for line in status if line.startswith("member ")]
        if wanted.issubset(status) and (
            each is None or all(len(one) == each and one != ["-"] for one in held)
        ):
            return
        if time.monotonic() > deadline:
            raise WrongResultError(f"{group}: not {count} members within {PATIENCE_SECONDS} s")
        time.sleep(0.002)


def _jobs(setup: GroupSetup, directory: Path, count: int) -> Cases:
    """A job is taken and accepted, each before the next."""
    sides = [Side(OURS, partial(_taken, setup, count))]
    goals = []
    with ExitStack() as stack:
        if shutil.which("beanstalkd") is not None:
            port = stack.enter_context(_beanstalkd(directory))
            sides.append(Side(BEANSTALKD, partial(_reserved, port, count)))
            goals.append(Goal(of=BEANSTALKD))
        yield Case(name="jobs taken and accepted", unit=JOBS_A_SECOND, sides=tuple(sides), goals=tuple(goals))


def _taken(setup: GroupSetup, count: int) -> float:
    log = setup.mount / "jobs/0/log"
    append_pieces(log, memoryview(lines.text(count * lines.LINE_BYTES)), PIECE)
    queue = setup.mount / "@queues" / "workers"
    queue.mkdir(exist_ok=True)
    descriptor = os.open(queue / "jobs" / "take", os.O_RDWR)
    try:
        begun = time.perf_counter()
        for _ in range(count):
            _expect(lines.LINE_BYTES, len(os.read(descriptor, 4096)))
            os.write(descriptor, b"accept\n")
        return count / (time.perf_counter() - begun)
    finally:
        os.close(descriptor)


@contextmanager
def _beanstalkd(directory: Path) -> Iterator[int]:
    """A queue server that keeps its jobs in a log, too; its port."""
    log = directory / "beanstalkd"
    log.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(log)]
    server = subprocess.Popen(ending_with_this(command, "TERM"))
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


def _reserved(port: int, count: int) -> float:
    with _connected(port) as connection:
        file = connection.makefile("rwb")
        job = lines.line(0)
        for _ in range(count):
            file.write(b"put 0 0 60 %d\r\n%s\r\n" % (len(job), job))
        file.flush()
        for _ in range(count):
            _expect(b"INSERTED", file.readline().split()[0])
        begun = time.perf_counter()
        for _ in range(count):
            file.write(b"reserve\r\n")
            file.flush()
            _, number, size = file.readline().split()
            _expect(job, file.read(int(size) + 2)[:-2])
            file.write(b"delete %s\r\n" % number)
            file.flush()
            _expect(b"DELETED\r\n", file.readline())
        return count / (time.perf_counter() - begun)


def _connected(port: int) -> socket.socket:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise SkippedError("beanstalkd does not answer") from None
            time.sleep(0.01)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def _expect(expected: object, found: object) -> None:
    if expected != found:
        raise WrongResultError(f"{found!r} in place of {expected!r}")


@contextmanager
def _setup(directory: Path, size: int) -> Iterator[GroupSetup]:
    """Both sides running, and the text in a topic of each."""
    text = directory / "text"
    text.write_bytes(lines.text(size))
    with ExitStack() as stack:
        broker = stack.enter_context(broker_tools(directory / "broker"))
        mount = stack.enter_context(topicfs(directory, directory / "data")).path
        for topic in ("consumed", "followed", "jobs", "many"):
            (mount / topic).mkdir()
        (mount / "many" / str(MEMBERS - 1)).mkdir()
        with text.open("rb") as source, (mount / "consumed/0/log").open("ab", buffering=0) as target:
            shutil.copyfileobj(source, target, PIECE)
        broker.client.create_topic("consumed")
        seconds_of(broker.kcat("-P", "consumed", "-l", str(text)))
        yield GroupSetup(mount, broker, size)


BENCHMARK = Benchmark(
    name="groups",
    question="How fast are readers that share a position, and queues?",
    cases=cases,
    logarithmic=True,
)
