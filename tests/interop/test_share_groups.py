"""Tests of share groups that move between a broker and our engine: each continues the groups of the other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing
from testing.broker.libraries import Java
from tests.doubles.engines import append_lines
from tests.doubles.kafka_tools import dump, run_tool
from topicfs.coordination.share_groups import Acknowledgement
from topicfs.main import cli
from topicfs.replication import open_engine

pytestmark = pytest.mark.java

START_TIME = 1_700_000_000_000


def decoded(text: str) -> list[tuple[dict, dict]]:
    """Return keys and payloads of the records that a decoder of kafka-dump-log printed."""
    found = re.findall(r" key: (\{.*\}) payload: (\{.*\})", text)
    return [(json.loads(key), json.loads(payload)) for key, payload in found]


def segments(data: Path, topic: str) -> list[Path]:
    return [one for one in data.glob(f"{topic}-*/*.log") if one.stat().st_size]


def test_kafkas_decoders_print_our_records(java: Java, tmp_path: Path) -> None:
    """Kafka's decoders print our records of share states and groups like records of a broker."""
    data = tmp_path / "data"
    engine = open_engine(data)
    topic = engine.create_topic("orders", partitions=1)
    append_lines(topic.partitions()[0], "a\nb\nc\n")
    session = engine.share_groups.group("billing").open(["orders"], holder="")
    for word in (Acknowledgement.ACCEPT, Acknowledgement.RELEASE):
        leased = session.take()
        assert leased is not None
        session.acknowledge({leased.record_name: word})
    engine.close()

    states = decoded(dump(java, segments(data, "__share_group_state"), "--share-group-state-decoder").stdout)
    key = {"groupId": "billing", "topicId": topic.topic_id, "partition": 0}
    assert [("0", key), ("1", key), ("1", key)] == [(one["type"], one["data"]) for one, _ in states]
    snapshot, accepted, released = (value["data"] for _, value in states)
    assert (0, 1, 0, 0) == tuple(
        snapshot[name] for name in ("snapshotEpoch", "stateEpoch", "startOffset", "deliveryCompleteCount")
    )
    assert [{"firstOffset": 0, "lastOffset": 0, "deliveryState": 2, "deliveryCount": 1}] == accepted[
        "stateBatches"
    ]
    assert [{"firstOffset": 1, "lastOffset": 1, "deliveryState": 0, "deliveryCount": 1}] == released[
        "stateBatches"
    ]
    groups = decoded(dump(java, segments(data, "__consumer_offsets"), "--offsets-decoder").stdout)
    assert ["11", "15", "15"] == [key["type"] for key, _ in groups]
    partitions = [{"topicId": topic.topic_id, "topicName": "orders", "partitions": [0]}]
    assert {"initializingTopics": [], "initializedTopics": partitions, "deletingTopics": []} == groups[-1][1][
        "data"
    ]


def consume(java: Java, broker: Broker, topic: str, group: str, count: int, *options: str) -> list[str]:
    """Accept `count` records with the console share consumer, and return their values."""
    output = run_tool(
        java,
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", broker.bootstrap_server, "--topic", topic, "--group", group),
        *("--max-messages", str(count), "--timeout-ms", "60000"),
        *options,
    )
    return output.stdout.splitlines()


def set_reset(java: Java, broker: Broker, group: str, value: str) -> None:
    run_tool(
        java,
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", broker.bootstrap_server, "--alter", "--entity-type", "groups"),
        *("--entity-name", group, "--add-config", f"share.auto.offset.reset={value}"),
    )


def test_we_go_on_where_a_brokers_group_stood(java: Java, node: Broker, tmp_path: Path) -> None:
    """After a takeover, records that Kafka's consumer accepted are done; all others keep their delivery counts."""
    name, group = "theirs", "billing"
    client = Client(node.bootstrap_server)
    client.create_topic(name, partitions=1)
    set_reset(java, node, group, "earliest")
    client.produce(name, [Outgoing(b"job %d" % at, timestamp=START_TIME + at) for at in range(6)], batch=2)
    assert ["job 0", "job 1", "job 2"] == consume(java, node, name, group, 3)
    node.stop()
    result = CliRunner().invoke(cli, ["takeover", str(node.log_dir), str(tmp_path / "taken")])
    assert 0 == result.exit_code, result.output
    assert f"share group {group}: 1 of 1 states taken over" in result.output
    engine = open_engine(tmp_path / "taken")
    queue = engine.share_groups.group(group)
    assert ([name], 3) == (queue.topics(), queue.positions(name)[0].lag)
    session = queue.open([name], holder="")
    taken = [session.take() for _ in range(4)]
    assert ["job 3", "job 4", "job 5", None] == [one and (one.record.value or b"").decode() for one in taken]
    engine.close()
    node.start()


def test_a_broker_goes_on_where_our_group_stood(java: Java, node: Broker, tmp_path: Path) -> None:
    """After a handover Kafka's consumer gets only new records and released ones, with their delivery counts."""
    name, group, data = "ours", "workers", tmp_path / "data"
    engine = open_engine(data)
    append_lines(
        engine.create_topic(name, partitions=1).partitions()[0], "".join(f"job {at}\n" for at in range(6))
    )
    session = engine.share_groups.group(group).open([name], holder="")
    taken = [session.take() for _ in range(4)]
    words = (Acknowledgement.ACCEPT, Acknowledgement.RELEASE, Acknowledgement.ACCEPT, Acknowledgement.REJECT)
    for leased, word in zip(taken, words, strict=True):
        assert leased is not None
        session.acknowledge({leased.record_name: word})
    engine.close()
    place = ("--bootstrap-server", node.bootstrap_server, "--log-dir", str(node.log_dir))
    command = ["handover", str(data), *place]
    first = CliRunner().invoke(cli, [*command, "--no-wait"])
    assert f"share group {group}: its position was set as here: {name}-0 at 1" in first.output, first.output
    node.stop()
    assert 0 == CliRunner().invoke(cli, command).exit_code
    node.start()
    compared = CliRunner().invoke(cli, command)
    assert 0 == compared.exit_code, compared.output
    assert f"share group {group}: already has positions there: {name}-0 at 1" in compared.output

    options = ("--formatter-property", "print.offset=true", "--formatter-property", "print.delivery=true")
    assert [
        "Offset:1\tDelivery:2\tjob 1",
        "Offset:4\tDelivery:1\tjob 4",
        "Offset:5\tDelivery:1\tjob 5",
    ] == sorted(consume(java, node, name, group, 3, *options))
