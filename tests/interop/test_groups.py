"""Tests of consumer groups that move between a broker and our engine: each continues the groups of the other."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing
from testing.broker.libraries import Java
from tests.doubles.engines import append_lines
from tests.doubles.kafka_tools import dump, run_tool
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount
from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import Position, Subscription
from topicfs.main import cli
from topicfs.replication import open_engine
from topicfs.storage.model import TopicPartition

pytestmark = pytest.mark.java

START_TIME = 1_700_000_000_000
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def run(*arguments: str) -> str:
    """Return the output of a command of topicfs."""
    result = CliRunner().invoke(cli, arguments)
    assert 0 == result.exit_code, result.output
    return result.output


def read_as_member(engine: Engine, group: str, topic: str, positions: Mapping[int, int]) -> None:
    """Join a group as its only member, commit positions, and leave."""
    member = engine.groups.join(
        group, Subscription(topics=frozenset({topic})), client_id="cat-4711", listener=lambda: None
    )
    wanted = {
        TopicPartition(topic, number): Position(offset, "cat 4711") for number, offset in positions.items()
    }
    wait_until(lambda: member.held().partitions >= wanted.keys(), "the partitions are assigned")
    member.commit(wanted).result(30)
    member.leave().result(30)


def fill(data: Path, topic: str, *groups: str) -> None:
    """Write six records to each of two partitions; each group has read four of one partition and all of the other."""
    engine = open_engine(data)
    made = engine.create_topic(topic, partitions=2)
    for number, partition in made.partitions().items():
        append_lines(partition, "".join(f"{number}.{at}\n" for at in range(6)))
    for group in groups:
        read_as_member(engine, group, topic, {0: 4, 1: 6})
    engine.close()


def read_with_kcat(broker: Broker, group: str, topic: str, count: int) -> list[str]:
    """Return the next records that kcat (librdkafka) gets as a member, or the first ones if nothing is committed."""
    command = ["kcat", "-b", broker.bootstrap_server, "-G", group, "-q", "-c", str(count)]
    ran = subprocess.run(
        [*command, "-X", "auto.offset.reset=earliest", topic],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    return ran.stdout.split()


def decoded(java: Java, directory: Path) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Return keys and payloads of the records of `__consumer_offsets`, as kafka-dump-log prints them."""
    files = [one for one in directory.glob("__consumer_offsets-*/*.log") if one.stat().st_size]
    found = re.findall(r" key: (\{.*\}) payload: (\S.*)", dump(java, files, "--offsets-decoder").stdout)
    return [
        (json.loads(key), json.loads(payload) if payload.startswith("{") else None) for key, payload in found
    ]


def shape(value: Any) -> Any:
    """Return a JSON value with its names but without its values."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def kafkas_lags(java: Java, broker: Broker, group: str, topic: str) -> dict[int, tuple[str, str]]:
    """Return each partition's position and lag as kafka-consumer-groups prints them."""
    output = run_tool(
        java, GROUPS, "--bootstrap-server", broker.bootstrap_server, "--describe", "--group", group
    ).stdout
    rows = re.findall(rf"^{group} +{topic} +(\d+) +(\S+) +\S+ +(\S+) ", output, re.MULTILINE)
    return {int(number): (position, lag) for number, position, lag in rows}


def test_kafkas_decoder_prints_our_records(java: Java, node: Broker, tmp_path: Path) -> None:
    """Kafka's decoder prints our group and position records with the same fields as records of a broker."""
    fill(tmp_path / "data", "orders", "billing")
    found = decoded(java, tmp_path / "data")
    client = Client(node.bootstrap_server)
    client.create_topic("decoded")
    client.produce("decoded", [Outgoing(b"a", timestamp=START_TIME)])
    client.consume_in_group("of-a-broker", "decoded", 1)
    node.stop()
    kafkas = [one for one in decoded(java, node.log_dir) if one[0]["data"]["group"] == "of-a-broker"]
    node.start()

    states = [value["data"] for key, value in found if key["type"] == "2" and value is not None]
    assert [{"group": "billing"}] == list(
        {json.dumps(k["data"]): k["data"] for k, _ in found if k["type"] == "2"}.values()
    )
    assert [(0, 0), (1, 1), (2, 0)] == [(one["generation"], len(one["members"])) for one in states]
    assert ["consumer", "cooperative-sticky"] == [states[1][name] for name in ("protocolType", "protocol")]
    positions = {
        (key["data"]["topic"], key["data"]["partition"]): value["data"]
        for key, value in found
        if key["type"] == "1" and value is not None
    }
    assert {("orders", 0): (4, "cat 4711"), ("orders", 1): (6, "cat 4711")} == {
        place: (one["offset"], one["metadata"]) for place, one in positions.items()
    }
    for kind in ("1", "2"):
        ours, theirs = (
            {
                json.dumps([key, shape(value)])
                for key, value in [next((shape(k), v) for k, v in records if k["type"] == kind)]
            }
            for records in (found, kafkas)
        )
        assert theirs == ours


def test_a_broker_goes_on_where_our_group_stood(java: Java, node: Broker, tmp_path: Path) -> None:
    """After a handover Kafka's tool shows our positions and lag, and consumers get each unread record once."""
    topic, group, data = "ours", "shells", tmp_path / "data"
    fill(data, topic, group, "kcats")
    place = ("--bootstrap-server", node.bootstrap_server, "--log-dir", str(node.log_dir))
    command = ["handover", str(data), *place]
    assert (
        f"group {group}: its position was set as here"
        in CliRunner().invoke(cli, [*command, "--no-wait"]).output
    )
    node.stop()
    run(*command)
    node.start()
    assert f"group {group}: has the same position as here" in run(*command)

    assert {0: ("4", "2"), 1: ("6", "0")} == kafkas_lags(java, node, group, topic)
    consumed = run_tool(
        java,
        CONSUMER,
        *("--bootstrap-server", node.bootstrap_server, "--topic", topic, "--group", group),
        *("--max-messages", "2", "--timeout-ms", "60000"),
    ).stdout
    assert ["0.4", "0.5"] == consumed.split()
    assert {0: ("6", "0"), 1: ("6", "0")} == kafkas_lags(java, node, group, topic)
    assert ["0.4", "0.5"] == read_with_kcat(node, "kcats", topic, 2)
    assert {0: ("6", "0"), 1: ("6", "0")} == kafkas_lags(java, node, "kcats", topic)


@pytest.mark.fuse
def test_we_go_on_where_the_groups_of_java_and_librdkafka_stood(
    java: Java, node: Broker, tmp_path: Path
) -> None:
    """A read-only mount shows the groups in a broker's files; after a takeover `cat --group` reads unread records."""
    topic = "theirs"
    client = Client(node.bootstrap_server)
    client.create_topic(topic, partitions=1)
    client.produce(topic, [Outgoing(b"%d" % at, timestamp=START_TIME + at) for at in range(6)], batch=1)
    address = ("--bootstrap-server", node.bootstrap_server, "--topic", topic)
    read = run_tool(
        java, CONSUMER, *address, "--group", "java", "--from-beginning", "--max-messages", "2"
    ).stdout.split()
    assert ["0", "1"] == read
    assert ["0", "1", "2"] == read_with_kcat(node, "kcat", topic, 3)
    node.stop()

    mount = Mount(tmp_path, directories=str(node.log_dir), read_only=True)
    try:
        groups = mount.start().path / "@groups"
        assert {"java", "kcat"} <= {one.name for one in groups.iterdir()}
        assert {"java": ("2\n", "4\n"), "kcat": ("3\n", "3\n")} == {
            name: tuple((groups / name / topic / "0" / file).read_text() for file in ("position", "lag"))
            for name in ("java", "kcat")
        }
        status = (groups / "java" / "status").read_text()
        assert {"state Empty", "generation 2", "lag 4"} <= set(status.splitlines())
        with pytest.raises(OSError, match="Read-only"):
            (groups / "java" / topic / "log").open()
    finally:
        mount.clean_up()

    taken = tmp_path / "taken"
    lines = run("takeover", str(node.log_dir), str(taken))
    assert "group java: 1 of 1 positions taken over" in lines
    before = json.loads(run("groups", "describe", "java", "--json", "--data", str(node.log_dir)))
    after = json.loads(run("groups", "describe", "java", "--json", "--data", str(taken)))
    assert before == after
    assert "2 3 4 5" == " ".join(run("cat", "--group", "java", f"{topic}/log", "--data", str(taken)).split())
    assert "3 4 5" == " ".join(run("cat", "--group", "kcat", f"{topic}/log", "--data", str(taken)).split())
    node.start()
