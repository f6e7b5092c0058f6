"""Opens a scrubbed data directory with a real broker, which must read the original records."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from testing.broker.broker import running_broker
from testing.broker.client import Client
from testing.broker.libraries import Java
from topicfs.main import cli

TIMEOUT_SECONDS = 60


def line(number: int) -> bytes:
    """Return the value of the record at offset `number`."""
    return b"%d %s" % (number, b"x" * (number * 7919 % 300))


def read_by_broker(data: Path, node: Path, java: Java, records: int) -> int:
    """Hand a data directory's `orders` to a broker in `node`; check the records it serves and return their number."""
    with running_broker(node, java) as broker:
        words = ("handover", str(data), "--bootstrap-server", broker.bootstrap_server)
        words = (*words, "--log-dir", str(broker.log_dir), "--no-wait")
        # The handover creates the topic and waits until the broker has ended.
        assert 1 == CliRunner().invoke(cli, words).exit_code
        broker.stop()
        placed = CliRunner().invoke(cli, words)
        assert 0 == placed.exit_code, placed.output
        broker.start()
        end = Client(broker.bootstrap_server).offset_for("orders")
        assert records == end, f"the log ends at {end}, expected {records}"
        return _read(broker.bootstrap_server, records)


def _read(server: str, records: int) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "check.crcs": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        expected = 0
        while expected < records:
            messages = consumer.consume(min(10_000, records - expected), TIMEOUT_SECONDS)
            assert messages, f"no record from offset {expected} on came within {TIMEOUT_SECONDS} s"
            for message in messages:
                assert message.error() is None, message.error()
                assert (expected, line(expected)) == (message.offset(), message.value())
                expected += 1
        return expected
    finally:
        consumer.close()
