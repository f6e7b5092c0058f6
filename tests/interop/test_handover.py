"""Tests of `topicfs handover` and `topicfs takeover` with a real broker, run from the command line."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from testing.broker.broker import Broker, running_broker
from testing.broker.client import Client, Outgoing
from testing.broker.libraries import Java
from tests.doubles import kafka_tools
from tests.doubles.broker_away import back_again
from tests.doubles.kafka_tools import console_consume
from tests.interop import ours
from tests.interop.test_brokers_files_under_us import START_TIME, plain_records, write_transactions
from tests.interop.test_our_files_under_a_broker import COMPACTED, write_compacted
from topicfs.coordination.engine import Engine
from topicfs.main import cli
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import scan
from topicfs.storage.log.log import Log
from topicfs.storage.model import Isolation, Record, TopicPartition

pytestmark = pytest.mark.java


class Bench(NamedTuple):
    """The broker, and one of our data directories with the topics of one test."""

    broker: Broker
    client: Client
    prefix: str
    """The prefix of the test's topics."""
    data: Path
    records: dict[TopicPartition, list[Record]]

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments)

    def handover(self, *more: str) -> Result:
        return self.run(
            *("handover", str(self.data), "--bootstrap-server", self.broker.bootstrap_server),
            *("--log-dir", str(self.broker.log_dir), *more),
        )


@pytest.fixture(scope="module")
def node(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    # A snapshot of the metadata is made after nearly every change, so the commands also read snapshots.
    snapshots = {"metadata.log.max.record.bytes.between.snapshots": "500"}
    with running_broker(tmp_path_factory.mktemp("handover") / "node", java, snapshots) as broker:
        yield broker


@pytest.fixture
def bench(node: Broker, tmp_path: Path) -> Iterator[Bench]:
    prefix = f"{tmp_path.name.strip('_')}-"
    engine = open_engine(tmp_path / "data")
    records = fill(engine, prefix)
    engine.close()
    with back_again(node):
        yield Bench(node, Client(node.bootstrap_server), prefix, tmp_path / "data", records)


def fill(engine: Engine, prefix: str) -> dict[TopicPartition, list[Record]]:
    """Write topics: two partitions with several segments, a log start in a batch, a cleaned log and an empty log."""
    settings = {"retention.ms": "-1", "internal.segment.bytes": "4000", "index.interval.bytes": "300"}
    orders = engine.create_topic(f"{prefix}orders", partitions=2, overrides=settings)
    for number, partition in orders.partitions().items():
        for start in range(0, 300, 6):
            partition.append(ours.batch_of(plain_records(start + number, start + number + 6)))
    trimmed = engine.create_topic(f"{prefix}trimmed", overrides=settings).partitions()[0]
    for start in range(0, 200, 10):
        trimmed.append(ours.batch_of(plain_records(start, start + 10)))
    trimmed.delete_records(123)
    compacted = engine.create_topic(f"{prefix}compacted", overrides={**settings, **COMPACTED}).partitions()[0]
    assert isinstance(compacted, Log)
    write_compacted(compacted)
    engine.create_topic(f"{prefix}empty", overrides={"retention.ms": "3600000"})
    return {
        TopicPartition(topic.name, number): ours.read_records(partition)
        for topic in engine.topics().values()
        for number, partition in topic.partitions().items()
    }


def test_handover_in_one_run(bench: Bench) -> None:
    """One run creates the topics, waits until the broker stops, and moves the files; then the broker serves them."""
    results: list[Result] = []
    worker = threading.Thread(target=lambda: results.append(bench.handover()))
    worker.start()
    wait_for_topics(bench, worker)
    bench.broker.stop()
    worker.join()
    [result] = results
    assert 0 == result.exit_code, result.output
    assert "in place: start the broker" in result.output
    bench.broker.start()
    check_served(bench)
    verified = bench.handover()
    assert 0 == verified.exit_code, verified.output
    assert "done: the broker has everything" in verified.output


def test_handover_in_steps(bench: Bench) -> None:
    """With --no-wait, each run prints the next step.

    Additional runs change nothing. The handover also works if the broker was killed.
    """
    waiting = bench.handover("--no-wait")
    assert (1, True) == (waiting.exit_code, "still runs: stop it" in str(waiting.exception))
    assert 1 == bench.handover("--no-wait").exit_code
    bench.broker.kill()
    placed = bench.handover()
    assert 0 == placed.exit_code, placed.output
    assert "not stopped cleanly" in placed.output
    again = bench.handover()
    assert 0 == again.exit_code, again.output
    bench.broker.start()
    check_served(bench)
    kept = {each: messages for each in bench.records if (messages := kcat_offsets(bench, each))}
    assert {
        each: [record.offset for record in records] for each, records in bench.records.items() if records
    } == kept


def test_nothing_that_the_broker_has_is_overwritten(bench: Bench) -> None:
    """If the broker has a topic with records and the same name, the handover stops before it changes anything."""
    name = f"{bench.prefix}orders"
    bench.client.create_topic(name, partitions=2)
    bench.client.produce(name, [Outgoing(b"theirs")])
    result = bench.handover("--no-wait")
    assert 1 == result.exit_code
    assert f"{name}: the cluster has a topic of that name with records" in str(result.exception)
    assert [b"theirs"] == [record.value for record in bench.client.records(name)]


def test_a_refused_placing_changes_nothing_of_the_broker(bench: Bench) -> None:
    """If the broker has new records, a handover is refused and changes no file of the broker."""
    name = f"{bench.prefix}trimmed"
    assert 1 == bench.handover("--no-wait").exit_code
    theirs = plain_records(0, 3)
    bench.client.produce(name, theirs)
    bench.broker.stop()
    before = bytes_below(bench.broker.log_dir), bytes_below(bench.data)
    result = bench.handover("--no-wait")
    assert (1, True) == (result.exit_code, "has other records" in str(result.exception))
    assert before == (bytes_below(bench.broker.log_dir), bytes_below(bench.data))
    bench.broker.start()
    assert [one.value for one in theirs] == [record.value for record in bench.client.records(name)]


def test_a_refused_takeover_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    """If the source has deleted records beyond the end of our copy, a takeover is refused.

    The refused takeover changes no file on either side.
    """
    name, taken = f"{bench.prefix}theirs", tmp_path / "taken"
    bench.client.create_topic(name)
    bench.client.produce(name, plain_records(0, 20), batch=5)
    bench.broker.stop()
    assert 0 == bench.run("takeover", str(bench.broker.log_dir), str(taken)).exit_code
    copied = records_in(taken, name)
    bench.broker.start()
    bench.client.create_topic(f"{bench.prefix}newer")
    bench.client.produce(name, plain_records(20, 40), batch=5)
    bench.client.delete_records(name, 30)
    kept = bench.client.records(name)
    bench.broker.stop()
    before = bytes_below(bench.broker.log_dir), bytes_below(taken)
    result = bench.run("takeover", str(bench.broker.log_dir), str(taken))
    assert (1, True) == (result.exit_code, "has other records" in str(result.exception))
    assert before == (bytes_below(bench.broker.log_dir), bytes_below(taken))
    assert (20, copied) == (len(copied), records_in(taken, name))
    bench.broker.start()
    assert kept == bench.client.records(name)


def bytes_below(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def records_in(directory: Path, topic: str) -> list[Record]:
    engine = open_engine(directory)
    records = ours.read_records(engine.partition(topic, 0))
    engine.close()
    return records


@pytest.mark.parametrize("link", [False, True])
def test_takeover(bench: Bench, tmp_path: Path, link: bool) -> None:
    """A takeover after a clean stop or SIGKILL copies topic ids, settings and the records that consumers got."""
    name = f"{bench.prefix}theirs"
    settings = {"internal.segment.bytes": "4000", "max.message.bytes": "70000", "segment.ms": "86400000"}
    topic_id = bench.client.create_topic(name, partitions=2, settings=settings)
    bench.client.set_setting(name, "segment.ms", "3600000000")
    bench.client.produce(name, plain_records(0, 400), batch=8)
    bench.client.produce(name, plain_records(0, 50), batch=8, partition=1)
    consumed = [bench.client.records(name, partition=number) for number in range(2)]
    (bench.broker.kill if link else bench.broker.stop)()
    assert list(bench.broker.log_dir.glob("__cluster_metadata-0/*.checkpoint"))
    before = bytes_below(bench.broker.log_dir)
    result = bench.run("takeover", *["--link"] * link, str(bench.broker.log_dir), str(tmp_path / "taken"))
    assert 0 == result.exit_code, result.output
    engine = open_engine(tmp_path / "taken")
    topic = engine.topic(name)
    assert (topic_id, {"retention.ms": "-1", **settings, "segment.ms": "3600000000"}) == (
        topic.topic_id,
        topic.overrides,
    )
    assert consumed == [ours.read_records(topic.partitions()[number]) for number in range(2)]
    topic.partitions()[0].append(ours.batch_of([Outgoing(b"more", timestamp=START_TIME)]))
    engine.close()
    assert before == bytes_below(bench.broker.log_dir)
    bench.broker.start()
    assert consumed == [bench.client.records(name, partition=number) for number in range(2)]


def test_from_one_cluster_to_another(bench: Bench, java: Java, tmp_path: Path) -> None:
    """A takeover and then a handover move topics from one cluster to another.

    The topics have transactions, all codecs and several leader epochs. A group that has read half of a topic
    continues as soon as the other broker has started. The test also reads with the Java consumer. This consumer takes
    a batch with an epoch above the leader's epoch as a sign of a new leader.
    """
    plain, transactions = f"{bench.prefix}plain", f"{bench.prefix}transactions"
    bench.client.create_topic(plain)
    bench.client.produce(plain, plain_records(0, 60), batch=20)
    with bench.broker.stopped():
        pass
    bench.client.produce(plain, plain_records(60, 120), batch=20, compression_type="zstd")
    write_transactions(bench.client, transactions)
    consumed = read_all(bench.client, (plain, transactions))
    group, committed = f"{bench.prefix}group", consumed[plain, Isolation.READ_COMMITTED]
    read = bench.client.consume_in_group(group, plain, 60)
    bench.broker.stop()
    taken = tmp_path / "taken"
    assert 0 == bench.run("takeover", str(bench.broker.log_dir), str(taken)).exit_code
    assert last_epoch(taken / f"{plain}-0") > 0
    with running_broker(tmp_path / "second", java) as second:
        other = bench._replace(broker=second, client=Client(second.bootstrap_server), data=taken)
        assert 1 == other.handover("--no-wait").exit_code
        second.stop()
        assert 0 == other.handover().exit_code
        second.start()
        read += other.client.consume_in_group(group, plain, 10)
        verified = other.handover()
        assert 0 == verified.exit_code, verified.output
        assert f"group {group}: {plain}-0: at 70 in the cluster, at 60 here; not changed" in verified.output
        assert committed == read + other.client.consume_in_group(group, plain, 50)
        assert consumed == read_all(other.client, (plain, transactions))
        expected = [record.offset for record in committed]
        lines = console_consume(
            java,
            second.bootstrap_server,
            plain,
            *("--formatter-property", "print.offset=true", "--formatter-property", "print.value=false"),
            count=len(expected),
        )
        assert [f"Offset:{offset}" for offset in expected] == lines


def read_all(client: Client, topics: Iterable[str]) -> dict[tuple[str, Isolation], list[Record]]:
    return {
        (topic, isolation): client.records(topic, isolation=isolation)
        for topic in topics
        for isolation in Isolation
    }


def last_epoch(directory: Path) -> int:
    """Return the highest leader epoch of a directory's batches."""
    return max(batch.leader_epoch for log in directory.glob("*.log") for batch in scan(log.read_bytes()))


def test_takeover_wants_the_broker_stopped(bench: Bench, tmp_path: Path) -> None:
    """While the broker runs, a takeover fails with the name of the process that has the lock, and creates nothing."""
    result = bench.run("takeover", str(bench.broker.log_dir), str(tmp_path / "taken"))
    assert 1 == result.exit_code
    assert re.search(r"in use by process \d+", str(result.exception))
    assert not (tmp_path / "taken").exists()


def wait_for_topics(bench: Bench, worker: threading.Thread) -> None:
    """Wait until the command has written every topic to its journal, or has ended."""
    journal = bench.data / "topicfs.handover"
    topics = {partition.topic for partition in bench.records}
    while not (journal.exists() and all(f'"{topic}"' in journal.read_text() for topic in topics)):
        worker.join(0.05)
        if not worker.is_alive():
            return


def check_served(bench: Bench) -> None:
    """Check that librdkafka reads all records, and that each partition has the right next offset."""
    for (topic, number), records in bench.records.items():
        assert records == bench.client.records(topic, partition=number)
    for (topic, number), records in bench.records.items():
        expected = records[-1].offset + 1 if records else 0
        assert expected == bench.client.offset_for(topic, partition=number)


def kcat_offsets(bench: Bench, partition: TopicPartition) -> list[int]:
    messages = kafka_tools.consume_by_kcat(
        bench.broker.bootstrap_server, partition.topic, partition=partition.partition
    )
    return [message["offset"] for message in messages]
