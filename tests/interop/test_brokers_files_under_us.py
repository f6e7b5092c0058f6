"""Tests of a broker's log directory in our engine: after a clean stop, after SIGKILL, and returned to the broker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing, send
from tests.doubles.broker_away import away, back_again
from tests.interop import ours
from topicfs.coordination.engine import Engine
from topicfs.replication import open_engine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk import names
from topicfs.storage.model import Isolation, Record, TopicPartition

pytestmark = pytest.mark.java

START_TIME = 1_700_000_000_000
DENSE_INDEX = {"index.interval.bytes": "300"}
CODECS = ("gzip", "snappy", "lz4", "zstd")
SAME_BATCHES = ("segments", "idempotent", *CODECS, "mixed", "transactions")
"""Kinds of topics whose logs still have their first batch."""
Consumed = Mapping[tuple[TopicPartition, Isolation], list[Record]]
"""The records that a consumer got, by partition and isolation level."""
SMALL_SEGMENTS = {"internal.segment.bytes": "4000", **DENSE_INDEX}


@dataclass(frozen=True, slots=True)
class State:
    """A copy of the broker's log directory, and the records that consumers had got before the copy."""

    directory: Path
    consumed: Consumed

    def partitions(self) -> list[TopicPartition]:
        return sorted({partition for partition, _ in self.consumed})


@dataclass(frozen=True, slots=True)
class States:
    """Copies of one broker's log directory at three moments."""

    stopped: State
    """The state after a clean stop. Indexes are trimmed, the clean-shutdown marker exists, and nothing was ever
    recovered.
    """
    killed: State
    """The state after more records and SIGKILL. Indexes are preallocated, and there is no clean-shutdown marker."""
    recovered: State
    """The state `killed` after the broker's own recovery and a clean stop."""


def plain_records(start: int, end: int) -> list[Outgoing]:
    """Return records that differ in keys, nulls and headers."""
    return [
        Outgoing(
            None if number % 13 == 0 else b"value %d" % number,
            None if number % 5 == 0 else b"key %d" % (number % 50),
            [("number", b"%d" % number), ("null", None)] if number % 3 == 0 else [],
            START_TIME + number * 10,
        )
        for number in range(start, end)
    ]


def write_topics(client: Client, prefix: str) -> Consumed:
    """Write topics of every kind; return the records that consumers get from them."""
    client.create_topic(prefix, partitions=2, settings=DENSE_INDEX)
    client.produce(prefix, plain_records(0, 500), batch=7)
    client.produce(prefix, plain_records(500, 520), partition=1, batch=20)
    client.create_topic(f"{prefix}-segments", settings=SMALL_SEGMENTS)
    client.produce(f"{prefix}-segments", plain_records(0, 900), batch=6)
    client.create_topic(f"{prefix}-idempotent", settings=SMALL_SEGMENTS)
    producer = client.producer(enable_idempotence=True, linger_ms=1000)
    send(producer, f"{prefix}-idempotent", plain_records(0, 300), batch=10)
    client.create_topic(f"{prefix}-trimmed", settings=SMALL_SEGMENTS)
    client.produce(f"{prefix}-trimmed", plain_records(0, 400), batch=9)
    client.delete_records(f"{prefix}-trimmed", 217)
    for codec in CODECS:
        settings = {**SMALL_SEGMENTS, "compression.type": codec}
        client.create_topic(f"{prefix}-{codec}", settings=settings)
        client.produce(f"{prefix}-{codec}", plain_records(0, 400), batch=40)
    client.create_topic(f"{prefix}-mixed", settings=SMALL_SEGMENTS)
    for number, codec in enumerate(("none", *CODECS) * 3):
        records = plain_records(number * 30, number * 30 + 30)
        client.produce(f"{prefix}-mixed", records, batch=30, compression_type=codec)
    write_transactions(client, f"{prefix}-transactions")
    kinds = ("segments", "idempotent", "trimmed", *CODECS, "mixed", "transactions")
    partitions = [TopicPartition(prefix, 0), TopicPartition(prefix, 1)]
    partitions += [TopicPartition(f"{prefix}-{kind}", 0) for kind in kinds]
    return {
        (each, isolation): client.records(each.topic, partition=each.partition, isolation=isolation)
        for each in partitions
        for isolation in Isolation
    }


def write_transactions(client: Client, topic: str) -> None:
    """Write with two producers in turn over several segments, and abort every third transaction."""
    client.create_topic(topic, settings=SMALL_SEGMENTS)
    writers = [client.producer(transactional_id=f"{topic}-{number}", linger_ms=1000) for number in range(2)]
    for writer in writers:
        writer.init_transactions(30)
    for number in range(18):
        records = [record._replace(timestamp=0) for record in plain_records(number * 12, number * 12 + 12)]
        with client.transaction(writers[number % 2], commit=number % 3 != 1):
            send(writers[number % 2], topic, records, batch=6)
    client.wait_for_end(topic, 18 * (12 + 1))


@pytest.fixture(scope="module")
def states(broker: Broker, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[States]:
    folder = tmp_path_factory.mktemp("states")
    first = write_topics(client, "before-stop")
    with broker.stopped() as log_dir:
        stopped = State(shutil.copytree(log_dir, folder / "stopped"), first)
    both = {**first, **write_topics(client, "before-kill")}
    with back_again(broker):
        broker.kill()
        killed = State(shutil.copytree(broker.log_dir, folder / "killed"), both)
    with broker.stopped() as log_dir:
        recovered = State(shutil.copytree(log_dir, folder / "recovered"), both)
    yield States(stopped, killed, recovered)
    client.delete_topics({partition.topic for partition in recovered.partitions()})


@pytest.fixture(params=["stopped", "killed"])
def state(request: pytest.FixtureRequest, states: States) -> State:
    return getattr(states, request.param)


@pytest.fixture
def looked_into(state: State) -> Iterator[Engine]:
    engine = open_engine(state.directory, read_only=True)
    yield engine
    engine.close()


@pytest.mark.parametrize("isolation", Isolation)
def test_records_are_the_consumers(state: State, looked_into: Engine, isolation: Isolation) -> None:
    """A read-only engine shows every offset, time, key, value and header as librdkafka got them from the broker."""
    for partition in state.partitions():
        found = ours.read_records(looked_into.partition(*partition), isolation)
        assert state.consumed[partition, isolation] == found


def test_reading_changes_nothing(state: State) -> None:
    """Opening the broker's directory read-only changes no bytes and no file names in it."""
    before = fingerprint(state.directory)
    engine = open_engine(state.directory, read_only=True)
    for partition in state.partitions():
        ours.read_records(engine.partition(*partition))
    engine.maintenance(engine.partition("before-stop", 0).status().last_timestamp)
    engine.close()
    assert before == fingerprint(state.directory)


def test_lookups_by_time_agree(state: State, looked_into: Engine) -> None:
    """A lookup at, just before or just after a record's time finds the first record with that time or a later one."""
    for (place, isolation), records in state.consumed.items():
        if isolation is Isolation.READ_COMMITTED:
            continue
        partition = looked_into.partition(*place)
        for record in records[:: max(1, len(records) // 40)]:
            for time in (record.timestamp - 1, record.timestamp, record.timestamp + 1):
                expected = next((each.offset for each in records if each.timestamp >= time), None)
                found = partition.offset_for_timestamp(time, isolation=isolation)
                assert expected == (found and found.offset)


def test_recovery_makes_the_brokers_files(states: States, tmp_path: Path) -> None:
    """After a kill, our recovery and clean close make the same files as the broker's recovery and clean close."""
    directory = tmp_path / "recovered"
    shutil.copytree(states.killed.directory, directory)
    # A broker keeps topic settings in its metadata log; these settings are common to all topics.
    settings = EngineConfig(topic_defaults=TopicConfig.from_overrides(DENSE_INDEX))
    open_engine(directory, config=settings).close()
    for partition in states.recovered.partitions():
        name = names.partition_directory(partition)
        assert segment_files(states.recovered.directory / name) == segment_files(directory / name)


@pytest.mark.parametrize(
    "name", ["before-stop-0", "before-stop-1", *(f"before-stop-{kind}-0" for kind in SAME_BATCHES)]
)
def test_the_same_batches_make_the_same_files(states: States, tmp_path: Path, name: str) -> None:
    """When our engine appends the broker's batches one by one, logs, indexes and snapshots equal the broker's files."""
    theirs = states.stopped.directory / name
    settings = DENSE_INDEX if name in ("before-stop-0", "before-stop-1") else SMALL_SEGMENTS
    log = ours.load(tmp_path / name, settings, clean=True)
    for file in sorted(theirs.glob("*.log")):
        for batch in ours.batches_in(file.read_bytes()):
            # Only a coordinator makes markers. So batches of topics with markers are appended as a follower
            # appends them.
            (log.appender.append_as_follower if "transactions" in name else log.append)(batch)
    log.close()
    assert segment_files(theirs, ".snapshot") == segment_files(tmp_path / name, ".snapshot")


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_the_broker_starts_again_on_what_we_closed(
    broker: Broker, client: Client, states: States, ending: str
) -> None:
    """The broker serves all records after our engine has opened its directory, written to it and closed it."""
    with away(broker, ending), closing(open_engine(broker.log_dir)) as engine:
        partition = engine.partition("before-stop", 1)
        before = ours.read_records(partition)
        added = [Outgoing(b"ours", b"key", [("header", None)], START_TIME + 1_000_000)]
        offset = partition.append(ours.batch_of(added)).base_offset
    after = client.records("before-stop", partition=1)
    assert before == after[:-1]
    assert (offset, b"ours") == (after[-1].offset, after[-1].value)
    for ((topic, number), isolation), records in states.killed.consumed.items():
        if (topic, number) != ("before-stop", 1):
            assert records == client.records(topic, partition=number, isolation=isolation)


def test_the_broker_rebuilds_the_indexes_of_what_we_wrote(broker: Broker, client: Client) -> None:
    """The broker starts after our engine has written with the topic settings in the broker's metadata log.

    If our engine used a larger segment size, a segment could need more index entries than the broker's index can
    hold. The broker would then not start.
    """
    name, settings = "small-indexes", {"segment.index.bytes": "800", "index.interval.bytes": "0"}
    client.create_topic(name, settings=settings)
    broker.stop()
    engine = open_engine(broker.log_dir)
    topic = engine.topic(name)
    for number in range(300):
        topic.partitions()[0].append(ours.batch_of(plain_records(number, number + 1)))
    engine.close()
    for index in (broker.log_dir / f"{name}-0").glob("*.index"):
        index.unlink()
    broker.start()
    assert 300 == len(client.records(name))
    assert {"retention.ms": "-1", **settings} == topic.overrides


def fingerprint(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return the modification time and content of every file, by name."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def segment_files(directory: Path, *more: str) -> dict[str, bytes]:
    """Return the contents of a partition's logs and indexes, and of files with the suffixes `more`."""
    kinds = (".log", ".index", ".timeindex", ".txnindex", *more)
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in kinds}
