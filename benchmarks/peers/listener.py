"""`topicfs serve` beside a broker: the same clients use both, in turns, on the same machine.

Both servers keep their logs in memory. Kafka's perf tools report their own speed, without the start of their JVM.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from timeit import repeat
from typing import Any, NamedTuple

from benchmarks import lines
from benchmarks.frame import units
from benchmarks.frame.question import OURS, Benchmark, Case, Cases, Conditions, Goal, Side, Unit
from benchmarks.frame.rounds import Figure, percentile, shared_cases
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.setup.cpu_time import seconds_of as processor_seconds_of
from benchmarks.mount.setup.mounts import topicfs
from benchmarks.peers.broker import SETTINGS, BrokerTools, broker_tools
from benchmarks.peers.shell import seconds_of
from testing.broker.broker import Broker
from testing.broker.client import Client
from testing.ports import reserve_ports
from testing.processes import ending_with_this, started
from topicfs.cluster.errors import UnreachableError
from topicfs.cluster.place import Server
from topicfs.cluster.protocol.connection import Connection
from topicfs.protocol.messages import FETCH, PRODUCE
from topicfs.storage.codec.records import encode
from topicfs.storage.model import Offset, Record, Timestamp

BROKER, IDLE, BESIDE_BROKER = "broker", "idle mount", "beside a producer of a broker"
MAX_ROUNDS, BYTES = 3, 100 * 10**6
STARTS = 5
"""Starts in each round; the fastest start counts."""
START_SECONDS = 120.0
"""Time limit for a server to answer its first request."""
SHAPES = ((100, "none"), (1000, "none"), (100, "lz4"), (1000, "lz4"))
FETCH_BY_NAME, PRODUCE_BY_NAME = FETCH.asked_from(4, before=7), PRODUCE.asked_from(3, before=13)


class Servers(NamedTuple):
    ours: BrokerTools
    broker: BrokerTools

    def each(self, measure: Callable[[BrokerTools], Any]) -> dict[str, Callable[[], Any]]:
        return {OURS: partial(measure, self.ours), BROKER: partial(measure, self.broker)}


def cases(conditions: Conditions) -> Cases:
    with ExitStack() as stack:
        directory = stack.enter_context(directory_in_memory(conditions, 12 * BYTES))
        broker = stack.enter_context(broker_tools(directory / "broker"))
        servers = Servers(stack.enter_context(_served(directory / "data", broker)), broker)
        for server, topic in product(servers, ("kcat", "one", "idle")):
            server.client.create_topic(topic)
        yield from _kcat(servers, directory, conditions.choose(full=BYTES, short=BYTES // 10))
        for size, codec in conditions.choose(full=SHAPES, short=()):
            yield from _perf(servers, directory, size, codec)
        yield from _one_record(servers, conditions.choose(full=1000, short=100))
        goal = Goal(of=BROKER, target=0.2, floor=0.12)
        yield _case("memory after the load", units.MEGABYTES, servers.each(_resident_megabytes), goal)
        if not conditions.short:
            yield from _idle_consumers(servers, 1000)
            yield from _echo(broker, directory)
            sides = {OURS: _start, BROKER: _start_broker}
            start = {side: partial(_quickest, measure, broker, directory) for side, measure in sides.items()}
            yield _case("start", units.SECONDS, start, Goal(of=BROKER, target=0.05))


def _case(name: str, unit: Unit, by_side: Mapping[str, Callable[[], float]], goal: Goal) -> Case:
    sides = tuple(Side(side, measure) for side, measure in by_side.items())
    return Case(name=name, unit=unit, sides=sides, goals=(goal,), max_rounds=MAX_ROUNDS)


def _kcat(servers: Servers, directory: Path, size: int) -> Cases:
    text, records = directory / "text", str(size // lines.LINE_BYTES)
    text.write_bytes(lines.text(size))

    def produce(server: BrokerTools) -> float:
        return size / 1e6 / seconds_of(server.kcat("-P", "kcat", "-l", str(text)))

    def consume(server: BrokerTools) -> float:
        command = server.kcat("-C", "kcat", "-c", records, "-q", "-o", "beginning")
        return size / 1e6 / seconds_of(command)  # It ends only after all records.

    speed = units.MEGABYTES_A_SECOND
    yield _case("kcat -P", speed, servers.each(produce), Goal(of=BROKER, target=0.5, floor=0.37))
    yield _case("kcat -C", speed, servers.each(consume), Goal(of=BROKER, target=1.0, floor=0.4))


def _perf(servers: Servers, directory: Path, size: int, codec: str) -> Cases:
    payload, records = directory / "payload", BYTES // size
    words = lines.varied_text(10**6).replace(b"\n", b" ")
    payload.write_bytes(b"\n".join(words[at : at + size] for at in range(0, len(words), size)))

    def produce(server: BrokerTools, acks: str) -> float:
        settings = (f"acks={acks}", f"compression.type={codec}")
        command = server.perf_producer("perf", records, payload, *settings)
        return size / 1e6 * _last_number_printed(command, r"records sent, ([\d.]+) records/sec")

    def consume(server: BrokerTools) -> float:
        # The last column is the number of records per second, without the time to join the group.
        return size / 1e6 * _last_number_printed(server.perf_consumer("perf", records), r", ([\d.]+)$")

    shape, speed = f"{size:,} B" + (f", {codec}" if codec != "none" else ""), units.MEGABYTES_A_SECOND
    for server in servers:
        server.client.create_topic("perf", settings={"file.delete.delay.ms": "1"})
    for acks in ("all", "1") if codec == "none" else ("all",):
        sides = servers.each(partial(produce, acks=acks))
        yield _case(f"producer, {shape}, acks={acks}", speed, sides, Goal(of=BROKER, target=0.5))
    yield _case(f"consumer, {shape}", speed, servers.each(consume), Goal(of=BROKER, target=1.0))
    for server in servers:
        server.client.delete_topics(["perf"])


def _last_number_printed(command: Sequence[str], pattern: str) -> float:
    done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return float(re.findall(pattern, done.stdout, re.MULTILINE)[-1])


def _one_record(servers: Servers, count: int) -> Iterator[Case]:
    batch = encode([Record(Offset(0), Timestamp(int(time.time() * 1000)), None, lines.line(0))])
    data = {"name": "one", "partitionData": [{"index": 0, "records": batch}]}
    request = {"transactionalId": None, "acks": -1, "timeoutMs": 30_000, "topicData": [data]}

    def delays(server: BrokerTools) -> list[float]:
        with closing(_connection(server.bootstrap_server)) as connection:
            found = repeat(partial(connection.call, PRODUCE_BY_NAME, request), repeat=count, number=1)
        assert server.client.offset_for("one") % count == 0
        return found

    return _percentiles("one record, acks=all", servers.each(delays), BROKER)


def _percentiles(name: str, by_side: Mapping[str, Callable[[], list[float]]], *others: str) -> Iterator[Case]:
    ms, goals = units.MILLISECONDS, tuple(Goal(of=other) for other in others)
    figures = (Figure(f"{name}, p{share}", ms, partial(percentile, share / 100), goals) for share in (50, 99))
    return shared_cases(by_side, *figures, max_rounds=MAX_ROUNDS)


def _idle_consumers(servers: Servers, count: int) -> Cases:
    """Measure idle consumers: each fetch at the end of a log waits 500 ms (the default), and is then repeated."""
    topics = [{"topic": "idle", "partitions": [{"partition": 0, "partitionMaxBytes": 2**20}]}]
    request = {"replicaId": -1, "maxWaitMs": 500, "minBytes": 1, "maxBytes": 2**20, "topics": topics}

    def poll(server: BrokerTools) -> float:
        before, sent = processor_seconds_of(server.pid), []
        for one in connected[server.pid]:
            # The load itself: consumers that started at different times spread their requests over the 500 ms.
            time.sleep(0.5 / count)
            sent.append((one, one.begin(FETCH_BY_NAME, request)))
        for one, waiting in sent:
            one.end(waiting)
        return (processor_seconds_of(server.pid) - before) / count * 1e6

    with ExitStack() as stack:
        connected: dict[int, list[Connection]] = {server.pid: [] for server in servers}
        for server in servers * count:
            one = stack.enter_context(closing(_connection(server.bootstrap_server)))
            connected[server.pid].append(one)
        name, fetch = f"{count:,} idle consumers", units.MICROSECONDS_OF_PROCESSOR
        yield _case(f"{name}, each Fetch", fetch, servers.each(poll), Goal(of=BROKER))
        yield _case(f"{name}, memory", units.MEGABYTES, servers.each(_resident_megabytes), Goal(of=BROKER))


def _resident_megabytes(server: BrokerTools) -> float:
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _echo(broker: BrokerTools, directory: Path) -> Cases:
    """Append lines to a mount while a producer writes to this mount, writes to a broker, or does not run."""
    payload, producers = directory / "payload", dict[str, subprocess.Popen[bytes]]()
    address = f"127.0.0.1:{reserve_ports(1)[0]}"
    with ExitStack() as stack:
        mount = stack.enter_context(topicfs(directory, directory / "mounted", "--listen", address))
        for name in ("echo", "busy"):
            (mount.path / name).mkdir()
        broker.client.create_topic("busy")

        def echo() -> None:
            with (mount.path / "echo/0/log").open("ab", buffering=0) as log:
                log.write(lines.line(0) + b"\n")

        def delays(side: str) -> list[float]:
            producers[side].send_signal(signal.SIGCONT)
            # A shell pauses between lines. Without the pause, each echo would find the daemon busy with the last line.
            found = repeat(echo, setup=partial(time.sleep, 0.002), repeat=300, number=1)
            producers[side].send_signal(signal.SIGSTOP)
            return found

        producers[IDLE] = stack.enter_context(started(["sleep", "infinity"]))
        for side, server in ((OURS, _tools(broker, address, mount.pid)), (BESIDE_BROKER, broker)):
            command = server.perf_producer("busy", 10**9, payload, "acks=all")
            producers[side] = stack.enter_context(started(command, stdout=subprocess.DEVNULL))
            while not server.client.offset_for("busy"):
                assert producers[side].poll() is None, "the producer ended before its first record"
                # Without a pause, these questions would delay the start of the JVM.
                time.sleep(0.1)
            producers[side].send_signal(signal.SIGSTOP)
        sides = {side: partial(delays, side) for side in (OURS, IDLE, BESIDE_BROKER)}
        yield from _percentiles("echo beside a producer", sides, IDLE, BESIDE_BROKER)


@contextmanager
def _served(data: Path, broker: BrokerTools) -> Iterator[BrokerTools]:
    """Serve a directory; yield the tools for it once it has answered ApiVersions."""
    settings, address = data.with_suffix(".properties"), f"127.0.0.1:{reserve_ports(1)[0]}"
    settings.write_text("max.connections=2000\n")
    options = (str(data), "--listen", address, "--config", str(settings))
    command = [str(Path(sys.executable).with_name("topicfs")), "serve", *options]
    with started(ending_with_this(command, "KILL"), stdout=subprocess.DEVNULL) as process:
        _connection(address).close()
        yield _tools(broker, address, process.pid)


def _tools(broker: BrokerTools, address: str, pid: int) -> BrokerTools:
    """Return the tools of a broker for another server."""
    return replace(broker, bootstrap_server=address, client=Client(address), pid=pid)


def _start(broker: BrokerTools, directory: Path) -> float:
    data, begun = Path(tempfile.mkdtemp(dir=directory)), time.perf_counter()
    with _served(data, broker):
        return time.perf_counter() - begun


def _quickest(measure: Callable[[BrokerTools, Path], float], broker: BrokerTools, directory: Path) -> float:
    return min(measure(broker, directory) for _ in range(STARTS))


def _start_broker(tools: BrokerTools, directory: Path) -> float:
    with Broker(Path(tempfile.mkdtemp(dir=directory)), tools.java, SETTINGS) as node:
        node.format()
        begun = time.perf_counter()
        node.launch()
        _connection(node.bootstrap_server).close()
        return time.perf_counter() - begun


def _connection(address: str) -> Connection:
    """Connect to a server that may not have started yet. On return it has answered ApiVersions.

    Raises UnreachableError after START_SECONDS.
    """
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return Connection(Server(host, int(port)))
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            # No event says when a port opens. The pause is the largest error of the measured start.
            time.sleep(0.001)


BENCHMARK = Benchmark(
    name="listener", question="How fast are Kafka's clients?", cases=cases, logarithmic=True
)
