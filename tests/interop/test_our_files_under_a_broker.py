"""A broker serves our partitions to all clients; kafka-storage.md#moving-partitions says how to place them by hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pytest

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing
from testing.broker.libraries import Java
from tests.doubles import kafka_tools
from tests.doubles.broker_away import back_again
from tests.interop import ours
from tests.interop.test_brokers_files_under_us import SMALL_SEGMENTS, START_TIME, plain_records, segment_files
from topicfs.coordination.engine import Engine
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets, write_offsets
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.log.log import Log
from topicfs.storage.model import Isolation, Offset, ProducerId, Record, Timestamp, TopicPartition

pytestmark = pytest.mark.java

WAYS = ("clean", "without-indexes", "unclean")
KINDS = ("plain", "codecs", "idempotent", "transactions", "compacted")
APPENDED = "appended"
"""The kind of topic to which the broker appends; no other test reads it."""
COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "1000",
    # A dirty ratio above 1 is impossible, so only our cleaner cleans.
    "min.cleanable.dirty.ratio": "1.0",
}
FILES = NativeFileSystem()
PRODUCER_ID = ProducerId(4_000)
TIME_ENTRY = Struct(">qi")


class Placed(NamedTuple):
    """One of our partitions, which the broker now serves."""

    ours: Path
    """Our directory, closed cleanly."""
    records: dict[Isolation, list[Record]]
    """The records that our engine read from the directory."""

    @property
    def name(self) -> str:
        """The name of the partition's topic."""
        return self.ours.name.removesuffix("-0")


Everything = Mapping[tuple[str, str], Placed]
"""Placed partitions, by the way they were placed and the kind of topic."""


def groups_of_records() -> Iterator[list[Outgoing]]:
    """Yield groups of records, alternately for batches of one record and of several records."""
    records = plain_records(0, 600)
    while records:
        for size in (1, 5, 12, 2):
            if records[:size]:
                yield records[:size]
            records = records[size:]


def write_plain(partition: Log) -> None:
    for records in groups_of_records():
        partition.append(ours.batch_of(records))


def write_codecs(partition: Log) -> None:
    """Write batches with each codec in turn, as five producers would."""
    for number, records in enumerate(groups_of_records()):
        partition.append(ours.batch_of(records, BatchStamp(codec=Codec(number % 5))))


def write_idempotent(partition: Log) -> None:
    """Write with two idempotent producers in turn."""
    sequences = [0, 0]
    for number, records in enumerate(groups_of_records()):
        producer = number % 2
        stamp = BatchStamp(
            producer_id=ProducerId(PRODUCER_ID + producer),
            producer_epoch=0,
            base_sequence=sequences[producer],
        )
        partition.append(ours.batch_of(records, stamp))
        sequences[producer] += len(records)


def write_transactions(partition: Log) -> None:
    """Write transactions of three batches and their markers, as in a leader's log. Every second one is aborted."""
    sequence = 0
    for number, records in enumerate(groups_of_records()):
        end = partition.offsets().log_end_offset
        stamp = BatchStamp(
            leader_epoch=0,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        partition.appender.append_as_follower(ours.batch_of(records, stamp, base_offset=end))
        sequence += len(records)
        if number % 3 == 2:
            kind = ControlType.ABORT if number % 2 else ControlType.COMMIT
            marker = encode_marker(
                EndTransactionMarker(kind, coordinator_epoch=0),
                timestamp=Timestamp(records[-1].timestamp),
                producer_id=PRODUCER_ID,
                producer_epoch=0,
                base_offset=Offset(end + len(records)),
                leader_epoch=0,
            )
            partition.appender.append_as_follower(marker)


def write_compacted(partition: Log) -> None:
    """Write repeated keys, tombstones and two producers' aborts; clean before and after the delete horizons."""
    sequences = [0, 0]
    for number in range(120):
        end = partition.offsets().log_end_offset
        records = keyed_records(number)
        transactional = number % 2 == 0
        # The second producer writes nothing later, so only a header remains of its last batch.
        producer = 1 if number in (1, 3) else 0
        stamp = BatchStamp(
            leader_epoch=0,
            producer_id=ProducerId(PRODUCER_ID + producer) if transactional or producer else ProducerId(-1),
            producer_epoch=0 if transactional or producer else -1,
            base_sequence=sequences[producer] if transactional or producer else -1,
            transactional=transactional,
            codec=Codec(number % 5),
        )
        partition.appender.append_as_follower(ours.batch_of(records, stamp, base_offset=end))
        if transactional or producer:
            sequences[producer] += len(records)
        if transactional and number % 4 == 2:
            end_transaction(partition, ControlType.ABORT if number % 3 else ControlType.COMMIT)
        if number in (60, 100):
            partition.appender.roll()
            clean_up(partition, now=START_TIME + number * 1000)


def keyed_records(number: int) -> list[Outgoing]:
    return [
        Outgoing(
            None if at % 11 == 0 else b"value %d" % at,
            b"key %d" % (at % 29),
            [("number", b"%d" % at)] if at % 3 == 0 else [],
            START_TIME + at * 10,
        )
        for at in range(number * 5, number * 5 + 5)
    ]


def end_transaction(partition: Log, kind: ControlType) -> None:
    marker = encode_marker(
        EndTransactionMarker(kind, coordinator_epoch=0),
        timestamp=Timestamp(START_TIME),
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_offset=partition.offsets().log_end_offset,
        leader_epoch=0,
    )
    partition.appender.append_as_follower(marker)


def clean_up(partition: Log, *, now: int) -> None:
    """Clean once, as the engine's cleaner does."""
    time = Timestamp(now)
    chosen = plan(cleaning_params(partition, partition.parts.first_dirty_offset, time))
    partition.parts.first_dirty_offset = clean(partition, chosen, now=time).end_offset


WRITERS = {
    "compacted": write_compacted,
    "plain": write_plain,
    APPENDED: write_plain,
    "codecs": write_codecs,
    "idempotent": write_idempotent,
    "transactions": write_transactions,
}


def write_ours(engine: Engine, data: Path, topic: str, kind: str) -> Placed:
    """Write a topic of several segments with our engine."""
    partition = engine.create_topic(
        topic, overrides={"retention.ms": "-1", **settings_of(kind)}
    ).partitions()[0]
    assert isinstance(partition, Log)
    WRITERS[kind](partition)
    return Placed(
        data / f"{topic}-0", {isolation: ours.read_records(partition, isolation) for isolation in Isolation}
    )


def settings_of(kind: str) -> dict[str, str]:
    return {**SMALL_SEGMENTS, **(COMPACTED if kind == "compacted" else {})}


@pytest.fixture(scope="module")
def placed(broker: Broker, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    """A topic of each kind, for each way of placing files."""
    data = tmp_path_factory.mktemp("ours")
    engine = open_engine(data)
    written = {
        (way, kind): write_ours(engine, data, f"{way}-{kind}", kind)
        for way in WAYS
        for kind in (*KINDS, APPENDED)
    }
    engine.close()
    for (_, kind), one in written.items():
        client.create_topic(one.name, settings=settings_of(kind))
    with broker.stopped() as log_dir:
        for (way, _), one in written.items():
            if way != "unclean":
                place(one.ours, log_dir)
            if way == "without-indexes":
                for index in (log_dir / one.ours.name).glob("*.index"):
                    index.unlink()
    with back_again(broker):
        broker.stop()
        for (way, _), one in written.items():
            if way == "unclean":
                place(one.ours, broker.log_dir)
        (broker.log_dir / names.CLEAN_SHUTDOWN).unlink()
    yield written
    client.delete_topics(one.name for one in written.values())


def place(source: Path, log_dir: Path) -> None:
    """Replace the broker's segments by ours, keep its partition.metadata, and delete the log's checkpoints."""
    target = log_dir / source.name
    for file in target.iterdir():
        if file.name != names.PARTITION_METADATA:
            file.unlink()
    for file in source.iterdir():
        if file.name not in (names.PARTITION_METADATA, names.LEADER_EPOCHS):
            shutil.copyfile(file, target / file.name)
    topic, _, number = source.name.rpartition("-")
    for checkpoint in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS):
        offsets = read_offsets(FILES, log_dir / checkpoint)
        offsets.pop(TopicPartition(topic, int(number)), None)
        write_offsets(FILES, log_dir / checkpoint, offsets)


@pytest.fixture(params=[(way, kind) for way in WAYS for kind in KINDS], ids="-".join)
def one(request: pytest.FixtureRequest, placed: Everything) -> Placed:
    return placed[request.param]


@pytest.mark.parametrize("isolation", Isolation)
def test_a_client_reads_every_record(one: Placed, client: Client, isolation: Isolation) -> None:
    """librdkafka verifies checksums and reads all records with all fields; read_committed omits aborted records."""
    assert one.records[isolation] == client.records(one.name, isolation=isolation)


def test_kcat_reads_every_record(one: Placed, broker: Broker) -> None:
    """kcat, run as from a shell, reads every record."""
    expected = [
        (record.offset, record.timestamp, _text(record.key), _text(record.value))
        for record in one.records[Isolation.READ_COMMITTED]
    ]
    messages = kafka_tools.consume_by_kcat(broker.bootstrap_server, one.name)
    assert expected == [(each["offset"], each["ts"], each["key"], each["payload"]) for each in messages]


def test_the_console_consumer_reads_every_record(placed: Everything, broker: Broker, java: Java) -> None:
    """The console consumer, which uses Kafka's Java consumer, reads every record."""
    one = placed["clean", "codecs"]
    records = one.records[Isolation.READ_UNCOMMITTED]
    lines = kafka_tools.console_consume(
        java,
        broker.bootstrap_server,
        one.name,
        *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
        *("--formatter-property", "print.timestamp=true"),
        count=len(records),
    )
    expected = [
        f"CreateTime:{each.timestamp}\tOffset:{each.offset}\t{_text(each.key) or 'null'}\t{_text(each.value) or 'null'}"
        for each in records
    ]
    assert expected == lines


def test_the_broker_left_or_made_the_indexes_that_we_make(
    one: Placed, broker: Broker, tmp_path: Path
) -> None:
    """The broker keeps our indexes, or rebuilds them with the same bytes, except in the active segment.

    A transaction index that is rebuilt from a cleaned log has fewer entries. So the test compares the broker's index
    with our own rebuilt index.
    """
    directory = one.ours
    if one.name.endswith("compacted") and not one.name.startswith("clean-"):
        directory = shutil.copytree(one.ours, tmp_path / one.ours.name)
        ours.load(directory, settings_of("compacted"), clean=False).close()
    expected = segment_files(directory)
    found = segment_files(broker.log_dir / one.ours.name)
    active = max(expected)[:20]
    closed = [name for name in expected if not name.startswith(active)]
    assert closed
    assert [expected[name] for name in closed] == [found[name] for name in closed]


def test_lookups_by_time_agree(one: Placed, client: Client) -> None:
    """The broker's ListOffsets finds the right records through our time indexes."""
    records = one.records[Isolation.READ_UNCOMMITTED]
    for record in records[:: len(records) // 4]:
        expected = next(each.offset for each in records if each.timestamp >= record.timestamp)
        assert expected == client.offset_at(one.name, record.timestamp)


def test_the_broker_appends_behind_ours(placed: Everything, client: Client) -> None:
    """The broker appends the next record at the next offset, however the files were placed."""
    for way in WAYS:
        one = placed[way, APPENDED]
        expected = len(one.records[Isolation.READ_UNCOMMITTED])
        assert expected == client.offset_for(one.name)
        assert [expected] == client.produce(one.name, [Outgoing(b"after ours")])


@pytest.mark.parametrize("way", WAYS)
def test_a_compacted_table_is_the_brokers(placed: Everything, client: Client, way: str) -> None:
    """A consumer and our engine build the same table from a cleaned log with emptied batches and tombstones."""
    one = placed[way, "compacted"]
    batches = [batch for log in one.ours.glob("*.log") for batch in scan(log.read_bytes())]
    assert any(not batch.record_count for batch in batches), "an emptied batch of a live producer"
    assert any(batch.delete_horizon_ms for batch in batches), "a tombstone under its horizon"
    assert any(batch.is_control for batch in batches)
    expected = {record.key: record.value for record in one.records[Isolation.READ_COMMITTED]}
    assert expected == {record.key: record.value for record in client.records(one.name)}


def test_kafkas_dump_finds_no_mismatch(placed: Everything, java: Java) -> None:
    """kafka-dump-log finds that our indexes fit their logs, and reads our snapshots.

    The tool looks for the time of each time index entry in the log's records. So it complains about entries of
    emptied batches. A broker's cleaner writes such entries as well.
    """
    files = [
        path
        for kind in KINDS
        for path in sorted(placed["clean", kind].ours.iterdir())
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot")
    ]
    assert {".index", ".timeindex", ".txnindex", ".snapshot"} == {path.suffix for path in files}
    printed = kafka_tools.dump(java, files)
    assert complaints_of_emptied_batches(placed["clean", "compacted"].ours) == printed.stderr
    assert len(files) == printed.stdout.count("Dumping ")
    sound = kafka_tools.dump(
        java, [path for path in files if path.suffix.endswith("index")], "--index-sanity-check"
    )
    assert not sound.stderr


def complaints_of_emptied_batches(directory: Path) -> str:
    """Return the tool's complaints about the time index entries, in closed segments, of batches without records."""
    lines = []
    for path in sorted(directory.glob("*.timeindex")):
        batches = list(scan(path.with_suffix(".log").read_bytes()))
        emptied = {batch.max_timestamp for batch in batches if not batch.record_count}
        found = [time for time, _ in TIME_ENTRY.iter_unpack(path.read_bytes()) if time in emptied]
        if found:
            lines.append(f"Found timestamp mismatch in :{path}\n")
            lines += [f"  Index timestamp: {time}, log timestamp: -1\n" for time in found]
    return "".join(lines)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
