"""Recreates `tests/vectors/broker-made`: small partitions made by a real broker, and the output of Kafka's tools.

    python -m tests.interop.make_vectors tests/vectors/broker-made

Offsets, keys, values, headers and most timestamps are the same each time. Producer ids, topic ids and times from the
broker's clock differ.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from testing.broker.broker import Broker, running_broker
from testing.broker.client import Client, Consumed, Outgoing, send
from testing.broker.libraries import Java, find_java
from tests.doubles.kafka_tools import dump
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Isolation, Offset, TopicPartition

SETTINGS = {"log.cleaner.min.compaction.lag.ms": "0"}
START_TIME = 1_700_000_000_000
SMALL_SEGMENTS = {"internal.segment.bytes": "2000", "index.interval.bytes": "200"}
CLEANING_TIMEOUT_SECONDS = 60
DATA_DIRECTORY_FILES = (
    names.META_PROPERTIES,
    names.CLEAN_SHUTDOWN,
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANER_OFFSETS,
)


class Bench(NamedTuple):
    """The broker, and the client with which each maker writes its topics."""

    broker: Broker
    client: Client


def lines(start: int, end: int, *, keys: int = 7, interval_ms: int = 1000) -> Iterator[Outgoing]:
    """Yield plain records at a fixed interval."""
    for number in range(start, end):
        key = f"key{number % keys}".encode()
        value = f"value {number} {'abc' * (number % 11)}".encode()
        yield Outgoing(value, key, timestamp=START_TIME + number * interval_ms)


def snappy(bench: Bench) -> None:
    """Make a topic whose batches the broker compresses itself: snappy with xerial framing."""
    bench.client.create_topic("snappy", settings={"compression.type": "snappy", **SMALL_SEGMENTS})
    bench.client.produce("snappy", lines(0, 120), batch=15)


def producer_codecs(bench: Bench) -> None:
    """Make a topic with batches stored as they were sent, one per codec of librdkafka (its snappy has no framing)."""
    bench.client.create_topic("codecs", settings={"compression.type": "producer"})
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd") * 2):
        records = lines(number * 20, number * 20 + 20)
        bench.client.produce("codecs", records, batch=20, compression_type=codec)


def append_time(bench: Bench) -> None:
    """Make a topic where the broker's clock replaces timestamps, in plain and in compressed batches."""
    for topic, codec in (("append-time", "uncompressed"), ("append-time-gzip", "gzip")):
        settings = {"message.timestamp.type": "LogAppendTime", "compression.type": codec, **SMALL_SEGMENTS}
        bench.client.create_topic(topic, settings=settings)
        bench.client.produce(topic, lines(0, 60), batch=6)


def idempotent(bench: Bench) -> None:
    """Make a topic in which three idempotent producers take turns over several segments."""
    bench.client.create_topic("idempotent", settings=SMALL_SEGMENTS)
    producers = [bench.client.producer(enable_idempotence=True, linger_ms=1000) for _ in range(3)]
    for turn in range(12):
        records = lines(turn * 10, turn * 10 + 10, interval_ms=1)
        send(producers[turn % 3], "idempotent", _recent(records), batch=5)


def transactions(bench: Bench) -> None:
    """Make committed, aborted and interleaved transactions over several segments; the last transaction stays open."""
    bench.client.create_topic("transactions", settings=SMALL_SEGMENTS)
    first, second, third = (_transactional(bench.client, f"writer-{number}") for number in range(3))
    number = 0
    for turn in range(8):
        with bench.client.transaction(first, commit=turn % 3 != 1):
            send(first, "transactions", _recent(lines(number, number + 12)), batch=4)
            with bench.client.transaction(second, commit=turn % 2 == 0):
                send(second, "transactions", _recent(lines(number + 12, number + 24)), batch=6)
        bench.client.produce("transactions", _recent(lines(number + 24, number + 30)), batch=3)
        number += 30
    first.begin_transaction()
    with bench.client.transaction(third, commit=False):
        send(third, "transactions", _recent(lines(number, number + 5)), batch=5)
        send(first, "transactions", _recent(lines(number + 5, number + 10)), batch=5)
    bench.client.produce("transactions", _recent(lines(number + 10, number + 15)), batch=5)
    _KEPT_OPEN.append(first)


def compacted(bench: Bench) -> None:
    """Make a topic with overwritten and deleted keys, cleaned twice, so that its tombstones have delete horizons."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SMALL_SEGMENTS}
    bench.client.create_topic("compacted", settings=settings)
    for turn in range(2):
        start = turn * 200
        bench.client.produce("compacted", _recent(lines(start, start + 150, keys=20)), batch=10)
        tombstones = [Outgoing(None, f"key{key}".encode()) for key in range(turn, 20, 4)]
        bench.client.produce("compacted", tombstones, batch=2)
        bench.client.produce("compacted", _recent(lines(start + 150, start + 200, keys=9)), batch=10)
        _wait_until_cleaned(bench.broker, TopicPartition("compacted", 0))


def compacted_transactions(bench: Bench) -> None:
    """Make a compacted topic with transactions: aborted records are gone, markers have horizons, last batches stay."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SMALL_SEGMENTS}
    bench.client.create_topic("compacted-transactions", settings=settings)
    writers = [_transactional(bench.client, f"cleaner-{number}") for number in range(3)]
    for turn in range(14):
        writer = writers[turn % 2] if turn else writers[2]
        with bench.client.transaction(writer, commit=turn % 4 != 3):
            records = lines(turn * 10, turn * 10 + 10, keys=6)
            send(writer, "compacted-transactions", _recent(records), batch=5)
        if turn == 9:
            _wait_until_cleaned(bench.broker, TopicPartition("compacted-transactions", 0))
    bench.client.produce("compacted-transactions", _recent(lines(140, 220, keys=6)), batch=10)
    _wait_until_cleaned(bench.broker, TopicPartition("compacted-transactions", 0))


def old_times(bench: Bench) -> None:
    """Make a topic with timestamps from past decades: out of order, equal, and far enough apart to roll segments."""
    bench.client.create_topic("old-times", settings={"segment.ms": "86400000", "index.interval.bytes": "100"})
    day = 86_400_000
    for start in (
        1_000_000_000_000,
        1,
        946_684_800_000,
        946_684_800_000 + day // 2,
        946_684_800_000 + 3 * day,
    ):
        times = (start, start, start + 5, start - start % 2, start + 3)
        records = [Outgoing(f"at {at}".encode(), timestamp=at) for at in times]
        bench.client.produce("old-times", records, batch=1)
        bench.client.produce("old-times", records[::-1], batch=5)


def headers_and_nulls(bench: Bench) -> None:
    """Make a topic of records with and without keys, values and headers."""
    bench.client.create_topic("headers", partitions=2)
    many = [(f"name{number}", str(number).encode()) for number in range(20)]
    records = [
        Outgoing(b"value", b"key", [("h1", b"x"), ("h2", None), ("h3", b"")], START_TIME),
        Outgoing(None, b"key", [], START_TIME + 1),
        Outgoing(b"value", None, [], START_TIME + 2),
        Outgoing(None, None, [("only", b"header")], START_TIME + 3),
        Outgoing(b"", b"", [], START_TIME + 4),
        Outgoing("tschüß €".encode(), "ключ".encode(), [("größe", "ä".encode())], START_TIME + 5),
        Outgoing(b"two\nlines\tand a tab\\", b"a\tb", [("same", b"1"), ("same", b"2")], START_TIME + 6),
        Outgoing(b"\x00\xff\xfe no text", b"\x80", [("bytes", b"\xff\x00")], START_TIME + 7),
        Outgoing(b"long " * 100, b"k" * 70, many, START_TIME + 8),
    ]
    bench.client.produce("headers", records, batch=len(records))
    bench.client.produce("headers", records, batch=1, partition=1)


def trimmed(bench: Bench) -> None:
    """Make a topic with a log start inside a batch, set by DeleteRecords."""
    bench.client.create_topic("trimmed", settings=SMALL_SEGMENTS)
    bench.client.produce("trimmed", lines(0, 100), batch=10)
    bench.client.delete_records("trimmed", 73)


MAKERS: tuple[Callable[[Bench], None], ...] = (
    snappy,
    producer_codecs,
    append_time,
    idempotent,
    transactions,
    compacted,
    compacted_transactions,
    old_times,
    headers_and_nulls,
    trimmed,
)

_KEPT_OPEN: list[Producer] = []
"""Producers whose transactions must stay open until the broker ends."""


def make(output: Path, java: Java) -> None:
    """Run a broker, write all topics, stop the broker cleanly and copy its files."""
    with tempfile.TemporaryDirectory(prefix="topicfs-vectors-") as folder:
        with running_broker(Path(folder) / "node", java, SETTINGS) as broker:
            bench = Bench(broker, Client(broker.bootstrap_server))
            for maker in MAKERS:
                maker(bench)
            partitions = _partitions(broker.log_dir)
            _write_consumed(bench.client, partitions, output / "consumed")
            broker.stop()
            _copy_log_dir(broker.log_dir, partitions, output / "log-dirs")
        _write_dumps(java, partitions, output)


def _transactional(client: Client, transactional_id: str) -> Producer:
    producer = client.producer(transactional_id=transactional_id, linger_ms=1000)
    producer.init_transactions(30)
    return producer


def _recent(records: Iterator[Outgoing]) -> Iterator[Outgoing]:
    """Remove the records' timestamps: a producer whose records are old would expire immediately."""
    return (record._replace(timestamp=0) for record in records)


def _wait_until_cleaned(broker: Broker, partition: TopicPartition) -> None:
    """Wait until all sealed segments of a partition are clean and the replaced files have their final names."""
    files = NativeFileSystem(read_only=True)
    directory = broker.log_dir / names.partition_directory(partition)
    deadline = time.monotonic() + CLEANING_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        active = max(Offset(int(path.stem)) for path in directory.glob("*.log"))
        if read_offsets(files, broker.log_dir / names.CLEANER_OFFSETS).get(partition) == active:
            return
        time.sleep(0.1)
    raise TimeoutError(f"{partition} was not cleaned in {CLEANING_TIMEOUT_SECONDS} s")


def _partitions(log_dir: Path) -> list[TopicPartition]:
    """Return the partitions that the makers wrote, leaving out Kafka's internal topics."""
    found = (names.parse_partition_directory(path.name) for path in log_dir.iterdir() if path.is_dir())
    return sorted(each.partition for each in found if each and not each.partition.topic.startswith("__"))


def _copy_log_dir(log_dir: Path, partitions: list[TopicPartition], output: Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    for name in DATA_DIRECTORY_FILES:
        shutil.copyfile(log_dir / name, output / name)
    for partition in partitions:
        directory = names.partition_directory(partition)
        shutil.copytree(log_dir / directory, output / directory, ignore=shutil.ignore_patterns("*.deleted"))


def _write_consumed(client: Client, partitions: list[TopicPartition], output: Path) -> None:
    """Write what a consumer of each isolation level gets, one JSON line for each record."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    for topic, number in partitions:
        for isolation in Isolation:
            consumed = client.consume(topic, partition=number, isolation=isolation)
            text = "".join(json.dumps(_plain(one)) + "\n" for one in consumed)
            (output / f"{topic}-{number}.{isolation.value}.jsonl").write_text(text)


def _plain(consumed: Consumed) -> dict[str, object]:
    """Return all fields of a record, with bytes as hex."""
    record = consumed.record
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": consumed.timestamp_type.label,
        "key": _hex(record.key),
        "value": _hex(record.value),
        "headers": [[_hex(header.key), _hex(header.value)] for header in record.headers],
    }


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _write_dumps(java: Java, partitions: list[TopicPartition], output: Path) -> None:
    folder = output / "dump"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    root = output / "log-dirs"
    for partition in partitions:
        directory = names.partition_directory(partition)
        files = sorted(path.relative_to(root) for path in (root / directory).iterdir())
        logs = [path for path in files if path.suffix == ".log"]
        others = [path for path in files if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot")]
        for kind, chosen, flags in (("log", logs, ("--print-data-log",)), ("idx", others, ())):
            printed = dump(java, chosen, *flags, directory=root)
            # The tool's messages contain absolute paths; the other files of the vectors have relative paths.
            findings = printed.stderr.replace(f"{root}/", "")
            (folder / f"{directory}.{kind}.txt").write_text(printed.stdout + findings)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve(), find_java())
