"""Real clients meet aborted transactions, full disks, failing replicas, deleted segments, and kill -9."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.doubles.kafka_tools import console_consume
from tests.doubles.producing import batch
from tests.doubles.small_disk import fill, small_disk
from tests.doubles.waiting import wait_until
from tests.listener.daemon import Daemon
from tests.listener.serving import Served
from tests.listener.test_clients import TIMEOUT_SECONDS, values
from topicfs.storage.disk.native import system_clock
from topicfs.storage.model import Timestamp

VECTORS = Path(__file__).parents[1] / "vectors" / "broker-made"


@pytest.fixture
def transactions(start: Any, tmp_path: Path) -> Served:
    """A served copy of a broker's committed, aborted and interleaved transactions; the last transaction is open."""
    shutil.copytree(VECTORS / "log-dirs", tmp_path / "data")
    served: Served = start()
    return served


def consumed(name: str, isolation: str) -> list[tuple[int, str | None]]:
    """Return the offsets and values that a consumer got from the broker."""
    lines = (VECTORS / "consumed" / f"{name}.{isolation}.jsonl").read_text().splitlines()
    found = (json.loads(line) for line in lines)
    return [
        (one["offset"], one["value"] and bytes.fromhex(one["value"]).decode())  # None stays None.
        for one in found
    ]


@contextmanager
def assigned(address: str, topic: str, **options: Any) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer(
        {**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest", **options}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def until_the_end(consumer: Consumer) -> Iterator[Any]:
    while True:
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None
        error = message.error()
        if error is not None:
            assert KafkaError._PARTITION_EOF == error.code()
            return
        yield message


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("topic", ["transactions", "compacted-transactions"])
def test_aborted_transactions_for_librdkafka(transactions: Served, topic: str, isolation: str) -> None:
    """librdkafka gets the same records from the listener as from the broker."""
    with assigned(transactions.address, topic, **{"isolation.level": isolation}) as consumer:
        found = [(one.offset(), one.value() and one.value().decode()) for one in until_the_end(consumer)]
    assert consumed(f"{topic}-0", isolation) == found


@pytest.mark.java
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_transactions_for_java(transactions: Served, java: Any, isolation: str) -> None:
    """The Java consumer gets the same records from the listener as from the broker."""
    expected = consumed("transactions-0", isolation)
    flags = ("--isolation-level", isolation, "--formatter-property", "print.offset=true")
    lines = console_consume(java, transactions.address, "transactions", *flags, count=len(expected))
    assert [f"Offset:{offset}\t{value}" for offset, value in expected] == lines


@pytest.mark.root
def test_too_few_replicas_in_sync(start: Any, tmp_path: Path) -> None:
    """While a full disk keeps a replica out of sync, acks=all fails and appends nothing; later it succeeds."""
    with small_disk(tmp_path, kind="tmpfs", size_mb=8) as disk:
        served = start(tmp_path / "one", disk / "two", replication_factor=2)
        served.engine.create_topic("t", partitions=1, overrides={"min.insync.replicas": "2"})
        client = served.client()
        assert 0 == client.produce("t", bytes(batch(b"first")))["errorCode"]
        fill(disk)
        large = bytes(batch(b"x" * 100_000))
        wait_until(lambda: 19 == client.produce("t", large)["errorCode"], "too few replicas are in sync")
        end = served.engine.partition("t", 0).offsets().log_end_offset
        assert 19 == client.produce("t", large)["errorCode"]
        assert 0 == client.produce("t", bytes(batch(b"one")), acks=1)["errorCode"]
        assert end + 1 == served.engine.partition("t", 0).offsets().log_end_offset
        (disk / "filler").unlink()

        def goes_on() -> bool:
            served.engine.maintenance(system_clock())
            return 0 == client.produce("t", bytes(batch(b"last")))["errorCode"]

        wait_until(goes_on, "the replica is in sync again")
        assert [b"first", b"one", b"last"] == [one for one in values(served, "t") if one != b"x" * 100_000]
        served.close()


@pytest.mark.root
def test_a_full_disk(start: Any, tmp_path: Path) -> None:
    """On a full disk the client gets an error and retries. When there is space again, each record is stored once."""
    with small_disk(tmp_path, kind="tmpfs", size_mb=16) as disk:
        served = start(disk / "data")
        served.engine.create_topic("t", partitions=1)
        client = served.client()
        assert 0 == client.produce("t", bytes(batch(b"first")))["errorCode"]
        fill(disk)
        wait_until(
            lambda: 56 == client.produce("t", bytes(batch(b"x" * 5000)))["errorCode"], "the disk is full"
        )
        before = values(served, "t")
        producer = Producer({"bootstrap.servers": served.address, "enable.idempotence": True})
        sent = [b"%d %s" % (number, b"y" * 5000) for number in range(100)]
        for value in sent:
            producer.produce("t", value, partition=0)
        assert 0 < producer.flush(1)
        (disk / "filler").unlink()
        assert 0 == producer.flush(TIMEOUT_SECONDS)
        assert [*before, *sent] == values(served, "t")
        served.close()


def test_segments_that_retention_deletes_while_they_are_read(served: Served) -> None:
    """A consumer skips records that retention deletes, and gets each later record once and unchanged."""
    served.engine.create_topic(
        "t", partitions=1, overrides={"segment.bytes": "1048576", "retention.ms": "-1"}
    )
    log = served.engine.partition("t", 0)
    for number in range(100):
        log.append(batch(b"%d %s" % (number, b"z" * 200_000)))
    options = {"fetch.message.max.bytes": 250_000, "queued.max.messages.kbytes": 400}
    with assigned(served.address, "t", **options) as consumer:
        found = []
        for message in until_the_end(consumer):
            assert message.value() == b"%d %s" % (message.offset(), b"z" * 200_000)
            found.append(message.offset())
            if len(found) == 3:
                served.engine.alter_config("t", {"retention.bytes": "5000000"})
                served.engine.maintenance(Timestamp(system_clock() + 3_600_000))
                assert log.log_start_offset > 50
    assert sorted(set(found)) == found
    assert set(range(log.log_start_offset, 100)) <= set(found)
    assert len(found) < 100


def test_kill_9_while_a_client_produces(daemon: Callable[..., Daemon]) -> None:
    """After kill -9, each record acknowledged with acks=all is stored once, and the client reconnects by itself."""
    acknowledged: list[bytes] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None
        acknowledged.append(message.value())

    server = daemon()
    producer = Producer({"bootstrap.servers": server.address, "enable.idempotence": True, "linger.ms": 1})
    sent = 0
    for _ in range(3):
        enough = len(acknowledged) + 200
        while len(acknowledged) < enough:
            producer.produce("t", b"%d" % sent, partition=0, on_delivery=delivered)
            sent += 1
            producer.poll(0.002)
        server.end(signal.SIGKILL)
        server.start()
    assert 0 == producer.flush(TIMEOUT_SECONDS)
    with assigned(server.address, "t") as consumer:
        found = [message.value() for message in until_the_end(consumer)]
    assert [b"%d" % number for number in range(sent)] == found == acknowledged
    assert 0 == server.end()
