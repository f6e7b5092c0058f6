"""Tests of jobs whose topics are in a Kafka cluster instead of a data directory."""

from __future__ import annotations

import contextlib
import subprocess

import pytest

from testing.broker.client import Client, Outgoing
from tests.doubles.engines import read_lines
from tests.doubles.waiting import wait_until
from topicfs.pipeline.archiving.plan import batches, plan, source_options
from topicfs.pipeline.errors import DataLossError
from topicfs.pipeline.places.cluster_records import opened_cluster, partition_of, read_columns
from topicfs.pipeline.places.place import SparkPlace, place_of
from topicfs.pipeline.report.collector import collect
from topicfs.pipeline.source.query.schema import arrow_schema, full_schema
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode
from topicfs.storage.model import Header, Isolation, Offset, Record, Timestamp, TopicPartition

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError

from topicfs.jobs.run import cause
from topicfs.main import run
from topicfs.pipeline.jobs.archive import ArchiveOptions, TopicNote, archive, read_notes
from topicfs.pipeline.jobs.replay import ReplayOptions, replay
from topicfs.pipeline.jobs.restore.restore import RestoreOptions, restore
from topicfs.pipeline.report.collector import find_lags
from topicfs.pipeline.report.numbers import GroupLag

pytestmark = [pytest.mark.spark, pytest.mark.java]

NEW_YEAR = 1_767_225_600_000
RECORDS = [
    Outgoing(b"old", b"a", [("h", b"v")], timestamp=NEW_YEAR - 1),
    Outgoing(b"new", b"b", timestamp=NEW_YEAR),
    Outgoing(None, b"b", timestamp=NEW_YEAR + 1),
]


@pytest.fixture
def client(broker):
    return Client(broker.bootstrap_server)


def rows(frame):
    return [tuple(row) for row in frame.collect()]


def contents(client, topic):
    """Return key, value and headers of each record in a topic of one partition."""
    return [(record.key, record.value, record.headers) for record in client.records(topic)]


def test_archive_a_clusters_topic(spark, client, broker, tmp_path):
    """A cluster's topic is archived by topic and date, without aborted records. A second run adds the new records."""
    client.create_topic("archived")
    client.produce("archived", RECORDS)
    writer = client.producer(transactional_id="archived", linger_ms=10)
    writer.init_transactions(30)
    with client.transaction(writer, commit=False):
        writer.produce("archived", b"aborted", timestamp=NEW_YEAR)
    place = f"kafka://{broker.bootstrap_server}"
    options = ArchiveOptions(path=place, topics="archived", target=tmp_path / "archive")

    def run():
        return [(topic, str(date), *rest) for topic, date, *rest in rows(archive(spark, options))]

    assert [("archived", "2025-12-31", 0, 0, 1), ("archived", "2026-01-01", 0, 1, 2)] == run()
    client.produce("archived", [Outgoing(b"later", timestamp=NEW_YEAR + 2)])
    for _ in range(2):
        assert [("archived", "2025-12-31", 0, 0, 1), ("archived", "2026-01-01", 0, 1, 3)] == run()


def test_a_topic_created_again_after_the_plan_is_not_archived(client, broker):
    """A topic that was created again after the plan is not read, neither in that round nor in a repetition of it."""
    place = place_of(f"kafka://{broker.bootstrap_server}")
    options, schema = (
        source_options(place, "again", Isolation.READ_COMMITTED),
        arrow_schema(full_schema(include_headers=True)),
    )
    client.create_topic("again")
    client.produce("again", RECORDS)
    end, (piece,) = plan(place, options, None, None)
    assert [3] == [part.num_rows for part in batches(place, options, piece, schema)]
    client.delete_topics(["again"])
    client.create_topic("again")
    client.produce("again", RECORDS)
    with pytest.raises(DataLossError, match="created again, meanwhile"):
        list(batches(place, options, piece, schema))
    assert 1 == collect(place, [piece])[0].changed_segments
    with pytest.raises(DataLossError, match="created again, since it was archived"):
        plan(place, options, None, end)


def test_a_topic_created_again_between_its_check_and_its_read_is_not_read(client, broker):
    """A read requests the topic by the id that was checked. It does not look up the name again."""
    client.create_topic("twice")
    client.produce("twice", RECORDS)
    with opened_cluster(place_of(f"kafka://{broker.bootstrap_server}")) as engine:
        topic_id = engine.topics()["twice"].topic_id
        log = partition_of(engine, TopicPartition("twice", 0), topic_id)
        client.delete_topics(["twice"])
        client.create_topic("twice")
        client.produce("twice", RECORDS)

        def is_another():
            engine.look()
            return engine.topics()["twice"].topic_id != topic_id

        wait_until(is_another, "the new topic is known")
        with pytest.raises(DataLossError, match="records from offset 0 on are gone"):
            list(read_columns(log, range(len(RECORDS)), Isolation.READ_COMMITTED))


def test_an_archive_knows_a_brokers_topics(spark, client, broker, tmp_path):
    """An archive stores the partitions and settings of all topics, from a cluster or from a broker's directory."""
    settings = {"cleanup.policy": "compact", "max.message.bytes": "2000000", "retention.ms": "-1"}
    client.create_topic("known", partitions=2, settings=settings)
    for number, place in enumerate((f"kafka://{broker.bootstrap_server}", str(broker.log_dir))):
        target = tmp_path / str(number)
        archive(spark, ArchiveOptions(path=place, topics="known", target=target))
        assert {"known": TopicNote(2, settings)} == read_notes(target)


def test_replay_between_a_directory_and_a_cluster(spark, client, broker, tmp_path):
    """Replay copies all records, or only new ones, from a directory to a cluster, within a cluster, and back."""
    data, place = tmp_path / "data", f"kafka://{broker.bootstrap_server}"
    with contextlib.closing(open_engine(data)) as engine:
        engine.create_topic("back")
        records = [Record(Offset(0), Timestamp(NEW_YEAR), b"k", b"v", (Header(b"h", b"1"),))]
        engine.create_topic("here").partitions()[0].append(encode(records))
    for topic in ("there", "beyond"):
        client.create_topic(topic)

    def run(source, target, *, path, target_path=None, **how):
        options = ReplayOptions(path=path, source=source, target=target, target_path=target_path, **how)
        return rows(replay(spark, options))

    assert [("here", "there", 1)] == run("here", "there", path=str(data), target_path=place)
    expected = [(b"k", b"v", (Header(b"h", b"1"),))]
    assert expected == contents(client, "there")
    assert [("there", "beyond", 1)] == run("there", "beyond", path=place, where="value = 'v'")
    assert expected == contents(client, "beyond")
    since = {"path": place, "target_path": str(data), "checkpoint": str(tmp_path / "back")}
    assert [("there", "back", 1)] == run("there", "back", **since)
    client.produce("there", [Outgoing(b"later")])
    assert [("there", "back", 1)] == run("there", "back", **since)
    with contextlib.closing(open_engine(data, read_only=True)) as engine:
        assert ["v", "later"] == read_lines(engine.partition("back", 0))
    since = {"path": str(data), "target_path": place, "checkpoint": str(tmp_path / "there")}
    assert [("back", "beyond", 2)] == run("back", "beyond", **since)
    assert [("back", "beyond", 0)] == run("back", "beyond", **since)
    assert [b"v", b"v", b"later"] == [value for _, value, _ in contents(client, "beyond")]


@pytest.fixture
def alices(tmp_path, monkeypatch):
    """Write a file with a user's connection settings; the password is in the environment."""
    monkeypatch.setenv("ALICES_PASSWORD", "alice-secret")
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="${env:ALICES_PASSWORD}";\n'
    )
    return config


def test_jobs_say_who_they_are(spark, client, broker, tmp_path, alices):
    """One file of settings authenticates Spark's connector, librdkafka, and a mount."""
    place = SparkPlace(bootstrap_servers=f"localhost:{broker.ports['SASL_PLAINTEXT']}", client_config=alices)
    for topic in ("guarded", "guarded-copy", "guarded-again"):
        client.create_topic(topic)
    client.produce("guarded", RECORDS)
    copied = replay(spark, ReplayOptions(path=place, source="guarded", target="guarded-copy"))
    assert [("guarded", "guarded-copy", 3)] == rows(copied)
    target = tmp_path / "archive"
    archive(spark, ArchiveOptions(path=place, topics="guarded-copy", target=target))
    assert {"guarded-copy": TopicNote(1, {"retention.ms": "-1"})} == read_notes(target)
    again = {"topics": "guarded-copy", "into": "guarded-again", "without_offsets": True}
    restore(spark, RestoreOptions(archive=target, path=place, **again))
    assert contents(client, "guarded") == contents(client, "guarded-again")


@pytest.fixture
def kept(spark, monkeypatch):
    """Prevent a job from ending the session of other tests."""
    monkeypatch.setattr(type(spark), "stop", lambda session: None)


@pytest.mark.usefixtures("kept")
def test_a_jobs_progress_is_a_position_in_the_cluster(client, broker, tmp_path, alices, capfd):
    """With `--commit-group` kcat continues where the archive ends, and a report shows the archive's lag."""
    client.create_topic("counted", partitions=2)
    client.produce("counted", RECORDS, partition=0)
    client.produce("counted", RECORDS[:1], partition=1)
    address = f"localhost:{broker.ports['SASL_PLAINTEXT']}"
    place = ("--data", f"kafka://{address}", "--client-config", str(alices))
    command = ("pipeline", "archive", "counted", str(tmp_path / "archive"), "--commit-group", "archive")
    assert 0 == run([*command, *place]), capfd.readouterr().err
    for number in range(2):
        client.produce("counted", [Outgoing(b"later %d" % number)], partition=number)

    found = find_lags(SparkPlace(bootstrap_servers=address, client_config=alices), ["counted"])
    assert [(GroupLag("archive", 3, 1),), (GroupLag("archive", 1, 1),)] == [
        found[TopicPartition("counted", number)] for number in range(2)
    ]
    kcat = ["kcat", "-b", broker.bootstrap_server, "-G", "archive", "-q", "-c", "2"]
    read = subprocess.run(
        [*kcat, "-X", "auto.offset.reset=earliest", "counted"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ["later 0", "later 1"] == sorted(read.stdout.splitlines())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("TimeoutException", "Kafka: too late (TimeoutException)"),
        (
            "UnknownTopicOrPartitionException",
            "Kafka: a topic does not exist in the cluster (UnknownTopicOrPartitionException)",
        ),
    ],
)
def test_an_error_of_kafkas_client_is_told_by_its_class(spark, broker, name, line):
    """An error of Kafka's client is recognized by the class of a causing exception, whatever text Spark adds."""
    thrown = getattr(spark._jvm.org.apache.kafka.common.errors, name)("too late")
    aborted = spark._jvm.org.apache.spark.SparkException("Job aborted due to stage failure", thrown)
    assert line == cause(Py4JJavaError("An error occurred while calling o1.save.\n", aborted))
