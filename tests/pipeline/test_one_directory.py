"""Tests of one mounted directory that shells, kcat, Java clients and both formats of Spark use at the same time."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testing.broker.libraries import Java
from testing.processes import started
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount
from tests.listener.test_clients import kcat

pytestmark = [pytest.mark.fuse, pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]

TOOLS = "org.apache.kafka.tools"
PARTITIONS = range(2)
ROUNDS, LINES = 3, 20
"""Each producer writes `LINES` records in each round."""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A mounted directory that is also served to Kafka clients, with a topic."""
    mount = Mount(tmp_path, listener="127.0.0.1:0")
    try:
        mount.start()
        assert not mount.bash("mkdir orders orders/1").stderr
        yield mount
    finally:
        mount.clean_up()


class Reader:
    """A program that prints records."""

    def __init__(self, stack: ExitStack, output: Path, *command: str) -> None:
        self._output = output
        file = stack.enter_context(output.open("wb"))
        stack.enter_context(started(command, stdin=subprocess.DEVNULL, stdout=file))

    def lines(self) -> list[str]:
        return self._output.read_text().split("\n")[:-1]


class Spark:
    """One of Spark's formats. A stream collects the rows in a table with the format's name."""

    def __init__(
        self, stack: ExitStack, session: Any, kind: str, place: dict[str, str], checkpoint: Path
    ) -> None:
        self._session, self._kind, self._place = session, kind, place
        options = {**place, "subscribe": "orders", "startingOffsets": "earliest"}
        rows = session.readStream.format(kind).options(**options).load()
        writer = rows.selectExpr("partition", "offset", "cast(value AS string)").writeStream.format("memory")
        self._query = writer.option("checkpointLocation", str(checkpoint)).queryName(kind).start()
        stack.callback(session.catalog.dropTempView, kind)
        stack.callback(self._query.stop)

    def read(self) -> list[Any]:
        """Return all rows, after the stream has read the present end of the topic."""
        self._query.processAllAvailable()
        return list(self._session.table(self._kind).collect())

    def write(self, numbers: range) -> None:
        rows = self._session.range(numbers.start, numbers.stop, numPartitions=1)
        values = rows.selectExpr(f"format_string('spark-{self._kind} %03d', id) AS value")
        values.write.format(self._kind).options(**self._place, topic="orders").mode("append").save()


def by_partition(rows: Iterable[Iterable[Any]]) -> dict[int, list[tuple[int, str]]]:
    """Return the offsets and values of each partition, in the order in which a reader got them."""
    found: dict[int, list[tuple[int, str]]] = {number: [] for number in PARTITIONS}
    for partition, offset, value in rows:
        found[int(partition)].append((int(offset), value))
    return found


def test_all_readers_get_the_same_records_in_the_same_order(
    mount: Mount, java: Java, spark: Any, tmp_path: Path
) -> None:
    """Five producers and five readers use a topic at once. Each reader gets each record once, in offset order."""
    address = next(line.split()[1] for line in mount.status.splitlines() if line.startswith("listener "))
    at = ("--bootstrap-server", address, "--topic", "orders")
    with ExitStack() as stack:
        tails = [
            Reader(
                stack, tmp_path / f"tail{number}", *f"tail -n +1 -f {mount.path}/orders/{number}/log".split()
            )
            for number in PARTITIONS
        ]
        formatted = (*f"kcat -C -u -q -b {address} -t orders -f".split(), "%p\t%o\t%s\n")
        by_kcat = Reader(stack, tmp_path / "kcat", *formatted)
        group = ("--group", "readers", "--from-beginning")
        shown = [f"--formatter-property=print.{name}=true" for name in ("partition", "offset")]
        consumer = java.command(f"{TOOLS}.consumer.ConsoleConsumer", *at, *group, *shown)
        by_java = Reader(stack, tmp_path / "java", *consumer)
        places = {"kafka": {"kafka.bootstrap.servers": address}, "topicfs": {"path": str(mount.data)}}
        formats = [Spark(stack, spark, kind, place, tmp_path / kind) for kind, place in places.items()]

        def wait_for(count: int) -> None:
            """Wait until each reader has `count` records."""

            def all_have_them() -> bool:
                followed = sum(len(tail.lines()) for tail in tails)
                return min(followed, len(by_kcat.lines()), len(by_java.lines())) >= count

            wait_until(all_have_them, f"all readers have {count} records", timeout_seconds=180)
            assert [count, count] == [len(one.read()) for one in formats]

        assert not mount.bash("for n in 0 1; do echo first 00$n >> orders/$n/log; done").stderr
        wait_for(2)
        pipes = {"stdin": subprocess.PIPE, "text": True, "bufsize": 1}
        append = 'while IFS= read -r line; do echo "$line" >> orders/$((n++ % 2))/log; done'
        shell = stack.enter_context(started(["bash", "-c", append], cwd=mount.path, **pipes))
        producer = java.command(f"{TOOLS}.ConsoleProducer", *at, "--sync", "--compression-codec", "gzip")
        console = stack.enter_context(started(producer, **pipes))
        for first in range(0, ROUNDS * LINES, LINES):
            numbers = range(first, first + LINES)
            for number in numbers:
                print(f"echo {number:03}", file=shell.stdin)
                print(f"java {number:03}", file=console.stdin)
            lines = [f"kcat {number:03}" for number in numbers]
            kcat(*f"-P -z lz4 -b {address} -t orders".split(), lines=lines)
            for one in formats:
                one.write(numbers)
        wait_for(2 + 5 * ROUNDS * LINES)

        expected = by_partition(line.split("\t") for line in by_kcat.lines())
        printed = ([word.rpartition(":")[2] for word in line.split("\t")] for line in by_java.lines())
        assert expected == by_partition(printed)
        assert [expected, expected] == [by_partition(one.read()) for one in formats]
        values = [[value for _, value in expected[number]] for number in PARTITIONS]
        assert values == [tail.lines() for tail in tails]

    assert [[*range(len(found))] for found in values] == [
        [at for at, _ in rows] for rows in expected.values()
    ]
    names = ("echo", "java", "kcat", "spark-kafka", "spark-topicfs")
    sent = [f"{name} {number:03}" for name in names for number in range(ROUNDS * LINES)]
    assert sorted([*sent, "first 000", "first 001"]) == sorted(values[0] + values[1])
    for name in names:
        for own in ([value for value in found if value.startswith(f"{name} ")] for found in values):
            assert sorted(own) == own
