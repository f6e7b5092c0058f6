"""Tests of a cluster's groups as files: a shell, kcat and Kafka's console consumer share a topic and its positions."""

from __future__ import annotations

import collections
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from testing.broker.broker import running_broker
from testing.broker.client import Client, Outgoing
from testing.broker.libraries import Java
from tests.doubles import cluster_mount
from tests.doubles.cluster_mount import bash, mounted_cluster
from tests.doubles.kafka_tools import run_tool
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.place import ClusterAddress, cluster_address

pytestmark = [pytest.mark.java, pytest.mark.fuse]

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@contextmanager
def reading(command: Sequence[str], output: Path, cwd: Path | None = None) -> Iterator[None]:
    """During the block a program reads into the file `output`."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)


def topicfs(address: ClusterAddress, *words: str) -> str:
    ran = cluster_mount.topicfs(address, *words)
    assert 0 == ran.status, ran.errors
    return ran.output


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    name: str = request.node.originalname
    client.create_topic(name, partitions=3)
    return name


def produce(client: Client, topic: str, first: int, last: int) -> None:
    for number in range(3):
        records = [Outgoing(b"%d" % at) for at in range(first + number, last, 3)]
        client.produce(topic, records, partition=number)


def test_a_shell_kcat_and_the_console_consumer_share_a_topic(
    address: ClusterAddress, client: Client, java: Java, topic: str, tmp_path: Path
) -> None:
    """Three readers get a partition each, and each record goes to one reader; the last reader gets all partitions."""
    outputs = {name: tmp_path / name for name in ("shell", "kcat", "java")}
    server = client.bootstrap_server
    kcat = ["kcat", "-b", server, "-G", topic, "-q", "-u", "-X", "auto.offset.reset=earliest", topic]
    console = java.command(
        CONSUMER, "--bootstrap-server", server, "--topic", topic, "--group", topic, "--from-beginning"
    )
    with mounted_cluster(address, tmp_path) as mountpoint, ExitStack() as stack:
        group = mountpoint / "@groups" / topic
        group.mkdir()
        (group / "config").write_text("assignor=range\n")

        def has(members: int) -> bool:
            words = dict(line.split(" ", 1) for line in (group / "status").read_text().splitlines())
            return ("Stable", str(members)) == (words["state"], words["members"])

        def positions() -> list[str]:
            return [(group / topic / number / "position").read_text().strip() for number in "012"]

        def given() -> list[str]:
            return [
                line for output in outputs.values() if output.exists() for line in output.read_text().split()
            ]

        def enter(command: Sequence[str], name: str, cwd: Path | None = None) -> ExitStack:
            own = stack.enter_context(ExitStack())
            own.enter_context(reading(command, outputs[name], cwd))
            return own

        enter(["cat", "log"], "shell", group / topic)
        others = [enter(kcat, "kcat"), enter(console, "java")]
        wait_until(lambda: has(3), "three members have partitions", timeout_seconds=120)
        produce(client, topic, 0, 300)
        wait_until(lambda: len(given()) >= 300, "all records were read", timeout_seconds=120)
        assert {str(at): 1 for at in range(300)} == collections.Counter(given())
        assert [100, 100, 100] == [len(output.read_text().split()) for output in outputs.values()]
        # A Kafka client that leaves during a rebalance may lose its last commit.
        wait_until(
            lambda: ["100"] * 3 == positions(), "all three positions are committed", timeout_seconds=120
        )
        for one in others:
            one.close()
        wait_until(lambda: has(1), "only the shell has partitions", timeout_seconds=120)
        produce(client, topic, 300, 600)
        wait_until(lambda: len(given()) >= 600, "all records were read", timeout_seconds=120)
        assert {str(at): 1 for at in range(600)} == collections.Counter(given())
        assert 400 == len(outputs["shell"].read_text().split())
    described = run_tool(
        java,
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", server, "--describe", "--group", topic),
    ).stdout
    rows = [line.split() for line in described.splitlines() if line.startswith(topic)]
    # Each read commits what the previous read returned, so the last read's records are not committed.
    assert ["0", "1", "2"] == [row[2] for row in rows]
    assert all(int(row[3]) <= 200 for row in rows)


def test_files_and_commands_show_and_set_positions(
    address: ClusterAddress, client: Client, topic: str, tmp_path: Path
) -> None:
    """The files `drain`, `position`, `lag` and `status` agree with `topicfs cat --group` and `topicfs groups`."""
    produce(client, topic, 0, 9)
    with mounted_cluster(address, tmp_path) as mountpoint:
        group = mountpoint / "@groups" / topic
        group.mkdir()
        assert set(map(str, range(9))) == set((group / topic / "drain").read_text().split())
        assert ["3\n", "0\n"] == [(group / topic / "1" / name).read_text() for name in ("position", "lag")]
        (group / topic / "1" / "position").write_text("earliest\n")
        wait_until(lambda: "lag 3" in (group / "status").read_text().splitlines(), "the position is set")
        for path, line in ((".", "lag 3"), ("0", "position 3 lag 0"), ("1", "position 0 lag 3")):
            told = (mountpoint / topic / path / "status").read_text().splitlines()
            assert f"group {topic} {line}" in told
        assert {"config", "status", topic} == {one.name for one in group.iterdir()}
        assert topic in {one.name for one in (mountpoint / "@groups").iterdir()}
        with pytest.raises(FileNotFoundError):
            (group / topic / "take").open("rb+", buffering=0)
        assert "@queues" not in {one.name for one in mountpoint.iterdir()}
        with pytest.raises(OSError, match="not supported"):
            (mountpoint / "@queues" / "jobs").mkdir()
        assert "kafka-console-share-consumer" in (mountpoint / "@status").read_text()
    assert topic in topicfs(address, "groups", "list").split()
    (described,) = json.loads(topicfs(address, "groups", "describe", topic, "--json"))
    assert ("Empty", 3) == (described["state"], described["lag"])
    assert ["1", "4", "7"] == topicfs(address, "cat", "--group", topic, f"{topic}/log").split()
    assert "" == topicfs(address, "cat", "--group", topic, f"{topic}/log")
    topicfs(address, "groups", "reset", topic, "--topic", topic, "--to-latest")
    topicfs(address, "groups", "reset", topic, "--topic", f"{topic}:2", "--shift-by", "-2")
    assert ["5", "8"] == topicfs(address, "cat", "--group", topic, f"{topic}/log").split()
    topicfs(address, "groups", "delete", topic)
    assert topic not in topicfs(address, "groups", "list").split()


def test_aborted_records_that_a_group_passed_are_no_lag(
    address: ClusterAddress, client: Client, topic: str, tmp_path: Path
) -> None:
    """If a log ends with aborted records, files and commands show lag 0.

    The position is the one that Kafka's consumer commits.
    """
    producer = client.producer(**{"transactional.id": topic})
    producer.init_transactions()
    with client.transaction(producer, commit=False):
        for number in range(7):
            producer.produce(topic, b"%d" % number, partition=0)
    client.wait_for_end(topic, 8)
    with mounted_cluster(address, tmp_path) as mountpoint:
        group = mountpoint / "@groups" / topic
        group.mkdir()
        ran = bash(
            group, f"cat {topic}/0/lag {topic}/drain {topic}/0/lag; grep -e lag status | cut -d ' ' -f -6"
        )
        assert ["8", "0", "lag 0", f"partition {topic}-0 position 8 lag 0"] == ran.output.splitlines()
    (described,) = json.loads(topicfs(address, "groups", "describe", topic, "--json"))
    assert (0, [8]) == (described["lag"], [one["position"] for one in described["positions"]])


def test_a_read_only_mount_shows_and_changes_nothing(
    address: ClusterAddress, client: Client, topic: str, tmp_path: Path
) -> None:
    """A read-only mount shows positions and lags; joining a group or setting a position fails with EROFS."""
    produce(client, topic, 0, 6)
    client.consume_in_group(topic, topic, 6)
    changes = (
        "head -n 1 log",
        "cat drain",
        "echo 0 > 0/position",
        "echo assignor=range > ../config",
        "mkdir ../../h",
    )
    with mounted_cluster(address, tmp_path, "--read-only") as mountpoint:
        place = mountpoint / "@groups" / topic / topic
        told = bash(
            place,
            f"cat 0/position 0/lag; grep -e ^state -e ^lag ../status; grep ^group {mountpoint}/{topic}/status",
        )
        assert ["2", "0", "state Empty", "lag 0", f"group {topic} lag 0"] == told.output.splitlines()
        refused = {change: bash(place, change).errors.strip().rpartition(": ")[2] for change in changes}
        assert dict.fromkeys(changes, "Read-only file system") == refused


def test_a_reader_that_ends_waits_for_a_position_that_a_transaction_may_move(
    address: ClusterAddress, client: Client, topic: str, tmp_path: Path
) -> None:
    """Before `drain` ends, it waits for a partition whose position an open transaction has not decided yet."""
    produce(client, topic, 0, 6)
    producer = client.producer(transactional_id=topic)
    producer.init_transactions(TIMEOUT_SECONDS)
    consumer = Consumer({"bootstrap.servers": client.bootstrap_server, "group.id": topic})
    output = tmp_path / "output"
    with mounted_cluster(address, tmp_path) as mountpoint:
        group = mountpoint / "@groups" / topic
        group.mkdir()
        with client.transaction(producer):
            decided = [TopicPartition(topic, 1, 1)]
            producer.send_offsets_to_transaction(decided, consumer.consumer_group_metadata(), TIMEOUT_SECONDS)
            process = subprocess.Popen(f"exec cat drain > {output}", shell=True, cwd=group / topic)
            for number in "02":
                position = group / topic / number / "position"
                wait_until(
                    lambda position=position: position.read_text() == "2\n", "the other partitions are read"
                )
        assert 0 == process.wait(TIMEOUT_SECONDS)
    consumer.close()

    assert ["0", "2", "3", "4", "5"] == sorted(output.read_text().split())


def test_runs_skip_aborted_records(
    address: ClusterAddress, client: Client, topic: str, tmp_path: Path
) -> None:
    """`next-2` skips records of aborted transactions, and returns nothing after the last committed record."""
    producer = client.producer(transactional_id=topic)
    producer.init_transactions(TIMEOUT_SECONDS)
    for number in range(8):
        with client.transaction(producer, commit=number % 4 == 1):
            producer.produce(topic, f"{number}".encode(), partition=0)
    client.wait_for_end(topic, 16)
    with mounted_cluster(address, tmp_path) as mountpoint:
        group = mountpoint / "@groups" / topic
        group.mkdir()
        runs = [(group / topic / "next-2").read_text().split() for _ in range(2)]
        told = [(group / topic / "0" / name).read_text() for name in ("position", "lag")]

    assert [["1", "5"], []] == runs
    assert ["16\n", "0\n"] == told


def test_a_hung_broker_fails_only_the_list_of_groups(java: Java, tmp_path: Path) -> None:
    """If the broker hangs, listing groups fails with EIO and the reason; requests that need no broker still work."""
    with running_broker(tmp_path / "node", java) as broker:
        Client(broker.bootstrap_server).create_topic("orders")
        address = cluster_address(f"kafka://{broker.bootstrap_server}")
        with mounted_cluster(address, tmp_path) as mountpoint, broker.paused():
            ran = bash(mountpoint, "ls @groups & ls; jobs -r; wait; grep error @status")
    names, running, reason = ran.output.partition("[1]+  Running")
    assert ("@groups\n@status\norders\n", "[1]+  Running") == (names, running)
    assert "ls: reading directory '@groups': Input/output error\n" == ran.errors
    assert f"error @groups: {broker.bootstrap_server}: " in reason
