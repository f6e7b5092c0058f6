"""Kafka's command line tools use a served directory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.kafka_tools import console_consume, console_produce, run_tool
from tests.doubles.producing import batch
from tests.listener.serving import Served
from tests.listener.test_transactions import copier
from topicfs.coordination.transactions.transaction import Status
from topicfs.storage.partitioning import coordinator_partition
from topicfs.storage.producers.progress import own

pytestmark = pytest.mark.java

TOPICS = "org.apache.kafka.tools.TopicCommand"


def test_kafka_topics(java: Any, served: Served) -> None:
    """kafka-topics creates, lists, describes, extends and deletes topics."""
    at = ("--bootstrap-server", served.address)
    made = run_tool(
        java, TOPICS, *at, "--create", "--topic", "t", "--partitions", "2", "--config", "retention.ms=5000"
    )
    assert "Created topic t.\n" == made.stdout
    assert "t\n" == run_tool(java, TOPICS, *at, "--list").stdout
    run_tool(java, TOPICS, *at, "--alter", "--topic", "t", "--partitions", "3")
    described = run_tool(java, TOPICS, *at, "--describe").stdout
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: " in described
    assert "retention.ms=5000" in described
    assert 3 == described.count("Leader: 1\tReplicas: 1\tIsr: 1")
    run_tool(java, TOPICS, *at, "--delete", "--topic", "t")
    assert {} == dict(served.engine.topics())


def test_console_and_perf_producers(java: Any, served: Served) -> None:
    """The console and perf producers write with every codec and idempotently; a console consumer reads all records."""
    served.engine.create_topic("t")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        arguments = ("--topic", "t", "--num-records", "500", "--record-size", "100", "--throughput", "-1")
        properties = (f"bootstrap.servers={served.address}", f"compression.type={codec}", "acks=all")
        done = run_tool(
            java, "org.apache.kafka.tools.ProducerPerformance", *arguments, "--producer-props", *properties
        )
        assert "500 records sent" in done.stdout
    assert "" == console_produce(java, served.address, "t", lines=["from the console"]).stderr
    lines = console_consume(java, served.address, "t", count=2501)
    assert 2501 == len(lines)
    assert "from the console" == lines[-1]


def test_verifiable_clients(java: Any, served: Served) -> None:
    """With Kafka's verifiable clients, each sent record is acknowledged; a consumer reads and commits all records."""
    at = ("--bootstrap-server", served.address, "--topic", "t", "--max-messages", "300")
    sent = run_tool(java, "org.apache.kafka.tools.VerifiableProducer", *at, "--repeating-keys", "7")
    acknowledged = [one for one in map(json.loads, sent.stdout.splitlines()) if "offset" in one]
    assert [*range(300)] == [one["offset"] for one in acknowledged]
    group = ("--group-id", "g", "--reset-policy", "earliest", "--verbose")
    read = run_tool(java, "org.apache.kafka.tools.VerifiableConsumer", *at, *group)
    events = [json.loads(line) for line in read.stdout.splitlines()]
    records = [one for one in events if one["name"] == "record_data"]
    assert [one["value"] for one in acknowledged] == [one["value"] for one in records]
    commits = [one["offsets"] for one in events if one["name"] == "offsets_committed"]
    assert [{"topic": "t", "partition": 0, "offset": 300}] == commits[-1]


def test_settings_offsets_and_sizes(java: Any, served: Served, tmp_path: Path) -> None:
    """kafka-configs, get-offsets, delete-records, log-dirs, broker-api-versions and kafka-cluster work."""
    at = ("--bootstrap-server", served.address)
    served.engine.create_topic("t").partitions()[0].append(batch(b"a", b"b", b"c"))
    kind = ("--entity-type", "topics", "--entity-name", "t")
    configs = "kafka.admin.ConfigCommand"
    run_tool(java, configs, *at, *kind, "--alter", "--add-config", "segment.bytes=2000000")
    assert "segment.bytes=2000000" in run_tool(java, configs, *at, *kind, "--describe").stdout
    assert "2000000" == served.engine.topic("t").overrides["segment.bytes"]
    offsets = run_tool(java, "org.apache.kafka.tools.GetOffsetShell", *at, "--topic", "t")
    assert "t:0:3\n" == offsets.stdout
    file = tmp_path / "delete.json"
    file.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 2}], "version": 1}')
    run_tool(java, "org.apache.kafka.tools.DeleteRecordsCommand", *at, "--offset-json-file", str(file))
    assert 2 == served.engine.partition("t", 0).log_start_offset
    sizes = run_tool(java, "org.apache.kafka.tools.LogDirsCommand", *at, "--describe").stdout
    assert str(tmp_path / "data") in sizes
    assert '"partition":"t-0","size":' in sizes
    versions = run_tool(java, "org.apache.kafka.tools.BrokerApiVersionsCommand", *at).stdout
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    cluster = run_tool(java, "org.apache.kafka.tools.ClusterTool", "cluster-id", *at).stdout
    assert (
        f"Cluster ID: {(tmp_path / 'data' / 'meta.properties').read_text().split('cluster.id=')[1].split()[0]}\n"
        == cluster
    )


TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def test_a_transactional_producer(java: Any, served: Served, tmp_path: Path) -> None:
    """Java's producer completes all of many short transactions, even the last one; each has its own epoch."""
    served.engine.create_topic("t")
    at = ("--bootstrap-server", served.address)
    done = run_tool(
        java,
        "org.apache.kafka.tools.ProducerPerformance",
        *at,
        *("--topic", "t", "--num-records", "300", "--record-size", "100", "--throughput", "1000"),
        *("--transactional-id", "tx", "--transaction-duration-ms", "20"),
    )
    assert "300 records sent" in done.stdout
    lines = console_consume(java, served.address, "t", "--isolation-level", "read_committed", count=300)
    assert 300 == len(lines)
    listed = run_tool(java, TRANSACTIONS, *at, "list").stdout.splitlines()
    assert ["tx", "CompleteCommit"] == [listed[1].split("\t")[0].strip(), listed[1].split()[-1]]
    number = coordinator_partition("tx")
    log = tmp_path / "data" / f"__transaction_state-{number}" / f"{0:020}.log"
    dump = "org.apache.kafka.tools.DumpLogSegments"
    dumped = run_tool(java, dump, "--files", str(log), "--transaction-log-decoder", "--print-data-log").stdout
    states = [int(one) for one in re.findall(r'"transactionStatus":(\d)', dumped)]
    steps = [Status.EMPTY, Status.ONGOING, Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT]
    assert steps == states[:4]
    assert Status.COMPLETE_COMMIT == states[-1]
    epochs = {one.epoch for one in own(served.engine.partition("t", 0)).producers()}
    assert max(epochs) > 2


def test_a_transaction_that_hangs_is_found_and_aborted(java: Any, served: Served) -> None:
    """kafka-transactions describes a partition's producers, finds an old open transaction, and aborts it."""
    at = ("--bootstrap-server", served.address)
    log = served.engine.create_topic("t").partitions()[0]
    stamp = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append(batch(b"hangs", time=1_700_000_000_000, **stamp))
    place = ("--topic", "t", "--partition", "0")
    described = run_tool(java, TRANSACTIONS, *at, "describe-producers", *place).stdout
    assert ["7", "0", "-1", "0"] == described.splitlines()[1].split()[:4]
    found = run_tool(
        java, TRANSACTIONS, *at, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1"
    )
    assert ["t", "0", "7"] == found.stdout.splitlines()[1].split()[:3]
    run_tool(java, TRANSACTIONS, *at, "abort", *place, "--start-offset", "0")
    offsets = log.offsets()
    assert 2 == offsets.last_stable_offset == offsets.log_end_offset


def test_kafkas_exactly_once_copier(java: Any, served: Served) -> None:
    """Kafka's own test program copies a topic exactly once, although it aborts transactions at random."""
    lines = [f"{number}".encode() for number in range(200)]
    served.engine.create_topic("source").partitions()[0].append(batch(*lines))
    served.engine.create_topic("target")
    run_tool(java, *copier(served.address, len(lines)))
    copied = console_consume(
        java, served.address, "target", "--isolation-level", "read_committed", count=len(lines)
    )
    assert lines == [line.encode() for line in copied]
    [position] = served.engine.groups.positions("copiers").committed.values()
    assert len(lines) == position.offset
