"""Our partitions placed under a broker by hand, as kafka-storage.md §13 says, with everything they are served by."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from storage.checkpoints.offset_checkpoint import read_offsets, write_offsets
from storage.disk import names
from storage.disk.native import NativeFileSystem
from storage.manager import open_engine
from storage.model import Record, TopicPartition
from tests.broker import kcat, tools
from tests.broker.broker import Broker
from tests.broker.client import Client, Outgoing
from tests.broker.libraries import Java
from tests.interop import ours
from tests.interop.test_brokers_files_under_us import SMALL_SEGMENTS, plain_records, segment_files

pytestmark = pytest.mark.java

WAYS = ("clean", "without-indexes", "unclean")
FILES = NativeFileSystem()


class Placed(NamedTuple):
    """A partition of ours that the broker has been serving since."""

    ours: Path
    """Our directory, closed in order."""
    records: list[Record]
    """What we read from it."""


def write_ours(data: Path, topic: str) -> Placed:
    """Write a topic of several segments, of one-record batches and larger ones, by our engine."""
    engine = open_engine(data)
    partition = engine.create_topic(topic, overrides={"retention.ms": "-1", **SMALL_SEGMENTS}).partitions()[0]
    records = plain_records(0, 700)
    start = 0
    for number in range(10_000):
        batch = records[start : start + (1, 5, 12, 2)[number % 4]]
        if not batch:
            break
        partition.append(ours.batch_of(batch))
        start += len(batch)
    read = ours.read_records(partition)
    engine.close()
    return Placed(data / f"{topic}-0", read)


@pytest.fixture(scope="module")
def placed(broker: Broker, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Placed]:
    """One topic for each way of placing files."""
    data = tmp_path_factory.mktemp("ours")
    written = {way: write_ours(data, f"ours-{way}") for way in WAYS}
    for way in WAYS:
        client.create_topic(f"ours-{way}", settings=SMALL_SEGMENTS)
    with broker.stopped() as log_dir:
        place(written["clean"].ours, log_dir)
        place(written["without-indexes"].ours, log_dir)
        for index in (log_dir / "ours-without-indexes-0").glob("*.index"):
            index.unlink()
    broker.stop()
    place(written["unclean"].ours, broker.log_dir)
    (broker.log_dir / names.CLEAN_SHUTDOWN).unlink()
    broker.start()
    return written


def place(source: Path, log_dir: Path) -> None:
    """Put our segments in place of the broker's, keep its partition.metadata, and forget what it noted of the log."""
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


@pytest.mark.parametrize("way", WAYS)
def test_a_client_reads_every_record(placed: Mapping[str, Placed], client: Client, way: str) -> None:
    """librdkafka, checking checksums: every offset, time, key, value and header."""
    assert placed[way].records == client.records(f"ours-{way}")


@pytest.mark.parametrize("way", WAYS)
def test_kcat_reads_every_record(placed: Mapping[str, Placed], broker: Broker, way: str) -> None:
    """The second client, the way a shell user meets it."""
    expected = [
        (record.offset, record.timestamp, _text(record.key), _text(record.value))
        for record in placed[way].records
    ]
    messages = kcat.consume(broker.bootstrap_server, f"ours-{way}")
    assert expected == [(each["offset"], each["ts"], each["key"], each["payload"]) for each in messages]


def test_the_console_consumer_reads_every_record(
    placed: Mapping[str, Placed], broker: Broker, java: Java
) -> None:
    """Kafka's own tool, its consumer the Java one."""
    records = placed["clean"].records
    lines = tools.console_consume(
        java,
        broker.bootstrap_server,
        "ours-clean",
        *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
        *("--formatter-property", "print.timestamp=true"),
        count=len(records),
    )
    expected = [
        f"CreateTime:{each.timestamp}\tOffset:{each.offset}\t{_text(each.key) or 'null'}\t{_text(each.value) or 'null'}"
        for each in records
    ]
    assert expected == lines


@pytest.mark.parametrize("way", WAYS)
def test_the_broker_left_or_made_the_indexes_that_we_make(
    placed: Mapping[str, Placed], broker: Broker, client: Client, way: str
) -> None:
    """Kept, or rebuilt from the log alone: segment for segment the same bytes as ours, but for the active one."""
    del client
    expected = segment_files(placed[way].ours)
    found = segment_files(broker.log_dir / f"ours-{way}-0")
    active = max(expected)[:20]
    closed = [name for name in expected if not name.startswith(active)]
    assert closed
    assert [expected[name] for name in closed] == [found[name] for name in closed]


@pytest.mark.parametrize("way", WAYS)
def test_lookups_by_time_agree(placed: Mapping[str, Placed], client: Client, way: str) -> None:
    """The broker's ListOffsets over our time indexes finds what is in the records."""
    records = placed[way].records
    for record in records[:: len(records) // 12]:
        expected = next(each.offset for each in records if each.timestamp >= record.timestamp)
        assert expected == client.offset_at(f"ours-{way}", record.timestamp)


def test_the_broker_appends_behind_ours(placed: Mapping[str, Placed], client: Client) -> None:
    """The next record gets the next offset, whatever way the files came."""
    expected = {way: len(placed[way].records) for way in WAYS}
    found = {way: client.offset_for(f"ours-{way}") for way in WAYS}
    assert expected == found
    for way in WAYS:
        assert [expected[way]] == client.produce(f"ours-{way}", [Outgoing(b"after ours")])


def test_kafkas_dump_finds_no_mismatch(placed: Mapping[str, Placed], java: Java) -> None:
    """kafka-dump-log compares each of our indexes with its log and has nothing to say on standard error."""
    indexes = [path for path in placed["clean"].ours.iterdir() if path.suffix in (".index", ".timeindex")]
    printed = tools.dump(java, sorted(indexes))
    assert not printed.stderr
    assert len(indexes) == printed.stdout.count("Dumping ")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
