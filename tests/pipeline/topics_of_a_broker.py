"""Topics that a real broker writes, with all features that a reader must handle.

    orders        three partitions: headers, nulls, tombstones, all codecs; the first two records of partition 0 deleted
    stamped       the broker's time (LogAppendTime)
    ledger        two partitions of transactions, committed and aborted; in partition 1 one is still open at the end
    compacted     some offsets are missing, also at its start
    empty         two partitions without records
    cut           all records deleted: start and end are equal, above 0
    orders.eu     one record; a pattern may match both this topic and `orders`

Tests read these topics through the broker and from its files.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from testing.broker.client import Client, Outgoing, send
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import TopicPartition

NOON = 1_767_268_800_000
"""2026-01-01T12:00Z, the first time of each partition of `orders`; the next records are a second apart."""

SMALL_SEGMENTS = {"internal.segment.bytes": "2000", "index.interval.bytes": "100"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write_topics(client: Client, log_dir: Path) -> Producer:
    """Make all topics; return once `log_dir` has the high watermarks and log starts that a reader of files needs.

    The returned producer has an open transaction. The caller ends this transaction.
    """
    client.create_topic("orders", partitions=3, settings=SMALL_SEGMENTS)
    for number in range(3):
        _write_orders(client, number)
    client.delete_records("orders", 2)
    client.create_topic("orders.eu")
    client.produce("orders.eu", [Outgoing(b"one", b"k", timestamp=NOON)])
    client.create_topic("stamped", settings={"message.timestamp.type": "LogAppendTime"})
    client.produce("stamped", [Outgoing(b"%d" % n, timestamp=NOON) for n in range(5)], batch=2)
    client.create_topic("empty", partitions=2)
    client.create_topic("cut")
    client.produce("cut", [Outgoing(b"gone", timestamp=NOON) for _ in range(4)])
    client.delete_records("cut", 4)
    _write_compacted(client, log_dir)
    open_one = _write_ledger(client)
    ends = {
        TopicPartition(topic, number): client.offset_for(topic, partition=number)
        for topic, count in (("orders", 3), ("orders.eu", 1), ("stamped", 1), ("compacted", 1), ("ledger", 2))
        for number in range(count)
    }
    starts = {TopicPartition("orders", 0): 2, TopicPartition("cut", 0): 4}
    wait_until(
        lambda: ends.items() <= checkpoint(log_dir, names.HIGH_WATERMARKS).items(),
        "the checkpoint has the ends",
    )
    wait_until(
        lambda: starts.items() <= checkpoint(log_dir, names.LOG_START_OFFSETS).items(),
        "the checkpoint has the starts",
    )
    return open_one


def checkpoint(log_dir: Path, name: str) -> dict[TopicPartition, int]:
    """Return the entries of a checkpoint file, in which the broker keeps facts that are not in its logs."""
    return dict(read_offsets(NativeFileSystem(read_only=True), log_dir / name))


def _write_orders(client: Client, partition: int) -> None:
    """Write forty records to partition 0, twenty-four to 1 and eight to 2, in batches of four with varying codecs."""
    at = 0
    for turn in range(10 - 4 * partition):
        records = [_order(number) for number in range(at, at + 4)]
        codec = CODECS[turn % len(CODECS)]
        client.produce("orders", records, partition=partition, batch=4, compression_type=codec)
        at += 4


def _order(number: int) -> Outgoing:
    return Outgoing(
        None if number % 7 == 3 else b"" if number % 7 == 5 else b"value %d " % number + b"x" * 60,
        None if number % 3 == 0 else b"" if number % 11 == 1 else b"key-%d" % (number % 5),
        [("h", b"%d" % number), ("h", None), ("", b""), ("ü", b"\xff")][: number % 5],
        timestamp=NOON + 1000 * number,
    )


def _write_compacted(client: Client, log_dir: Path) -> None:
    settings = {
        "internal.segment.bytes": "500",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.0",
        "delete.retention.ms": "0",
    }
    client.create_topic("compacted", settings=settings)
    for turn in range(10):
        records = [
            Outgoing(b"%d" % turn * 40, b"key-%d" % (number if turn else 10 + number), timestamp=NOON + turn)
            for number in range(4)
        ]
        client.produce("compacted", [*records, Outgoing(b"last", b"turn-%d" % turn)], batch=5)
    partition = log_dir / "compacted-0"

    def cleaned() -> bool:
        active = max(int(path.stem) for path in partition.glob("*.log"))
        return checkpoint(log_dir, names.CLEANER_OFFSETS).get(TopicPartition("compacted", 0)) == active

    wait_until(cleaned, "the broker has compacted")


def _write_ledger(client: Client) -> Producer:
    client.create_topic("ledger", partitions=2, settings=SMALL_SEGMENTS)
    writers = [
        client.producer(
            transactional_id=f"ledger-{number}",
            linger_ms=1000,
            transaction_timeout_ms=900_000,
        )
        for number in range(2)
    ]
    for writer in writers:
        writer.init_transactions(TIMEOUT_SECONDS)
    ends = [0, 0]
    for turn in range(6):
        records = [Outgoing(b"%d-%d" % (turn, n), b"k%d" % n, timestamp=NOON + turn) for n in range(3)]
        with client.transaction(writers[turn % 2], commit=turn % 3 != 1):
            for partition in range(2):
                send(writers[turn % 2], "ledger", records, partition=partition)
        ends = [end + 4 for end in ends]
        # The broker writes markers a moment after it has acknowledged the end of the transaction.
        for partition, end in enumerate(ends):
            wait_until(lambda: client.offset_for("ledger", partition=partition) == end, "the marker is there")  # noqa: B023 (asked at once)
        client.produce("ledger", [Outgoing(b"plain", timestamp=NOON + turn)], partition=turn % 2)
        ends[turn % 2] += 1
    writers[0].begin_transaction()
    send(writers[0], "ledger", [Outgoing(b"undecided", timestamp=NOON + 9)], partition=1)
    client.produce("ledger", [Outgoing(b"behind it", timestamp=NOON + 9)], partition=1)
    return writers[0]
