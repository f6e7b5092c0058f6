"""Tests that each change of a cluster's topics happens once, and is visible when the call returns."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager

import pytest
from confluent_kafka.admin import AclOperation

from testing.broker.client import Outgoing
from tests.doubles.relay import Lost
from tests.doubles.waiting import wait_until
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.engine import CacheSettings, ClusterEngine, open_engine
from topicfs.cluster.place import cluster_address
from topicfs.cluster.protocol.security import read_security
from topicfs.protocol.messages import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS
from topicfs.storage import errors
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.config.listing import ConfigSource
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.model import Offset, Record, Timestamp

pytestmark = pytest.mark.java

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@contextmanager
def through(relay, address, timeout_seconds=30.0):
    leaders = Leaders(Brokers(address, relay.connect), timeout_seconds=timeout_seconds)
    with closing(ClusterEngine(leaders, read_only=False)) as engine:
        yield engine


def batch(value):
    # Brokers delete week-old records, so topics created here have Kafka's default retention.
    now = Timestamp(time.time_ns() // 1_000_000)
    return bytearray(encode([Record(Offset(0), now, None, value)], BatchStamp()))


def names(client):
    return set(client.admin.list_topics(timeout=30).topics)


def wait_until_deleted(client, name):
    """Wait until the broker has forgotten a topic; the controller answers the deletion earlier."""
    wait_until(lambda: name not in names(client), "the topic is gone")


def test_a_topic_is_made(engine, client):
    """A new topic has the given partitions and settings, is visible to other clients, and accepts appends."""
    topic = engine.create_topic("made", partitions=3, overrides={"retention.ms": "123456789"})
    assert (client.topic_id("made"), [0, 1, 2]) == (topic.topic_id, list(topic.partitions()))
    assert {"retention.ms": "123456789"} == topic.overrides
    assert 123456789 == topic.config.retention_ms
    assert engine.topics()["made"] is topic
    assert 0 == topic.partitions()[2].append(batch(b"a")).base_offset
    assert [b"a"] == [record.value for record in client.records("made", partition=2)]


def test_the_default_number_of_partitions_is_the_brokers_setting(engine):
    """A topic created without a number of partitions gets the brokers' num.partitions, which is 1 by default."""
    assert 1 == len(engine.create_topic("as-they-say").partitions())


@pytest.mark.parametrize(
    ("name", "given", "error", "text"),
    [
        ("there", {}, errors.TopicExistsError, "exists already"),
        ("with_dot", {}, errors.TopicExistsError, "collides with topic with.dot"),
        ("a/b", {}, errors.InvalidNameError, "a/b"),
        ("..", {}, errors.InvalidNameError, "must not be"),
        ("n" * 250, {}, errors.InvalidNameError, "249"),
        ("none", {"partitions": 0}, errors.InvalidConfigError, "partitions=0"),
        ("many", {"partitions": 10_001}, errors.InvalidConfigError, "10000"),
        ("nonsense", {"overrides": {"retention.ms": "soon"}}, errors.InvalidConfigError, "retention.ms"),
        ("unknown", {"overrides": {"no.such": "1"}}, errors.InvalidConfigError, r"no\.such"),
        ("own-id", {"topic_id": "A" * 22}, errors.InvalidConfigError, "itself"),
    ],
)
def test_an_invalid_topic_is_refused(engine, client, name, given, error, text):
    """An invalid topic is refused in one line that names the topic, and nothing is created."""
    for each in ("there", "with.dot"):
        if each not in engine.topics():
            engine.create_topic(each)
    before = names(client)
    with pytest.raises(error, match=text) as refused:
        engine.create_topic(name, **given)
    assert "\n" not in str(refused.value)
    assert not names(client) - before


def test_creating_a_topic_that_is_not_known_yet_fails(engine, client):
    """If a topic exists in the cluster, creating the topic fails even before the engine knows it."""
    client.create_topic("just-made")
    with pytest.raises(errors.TopicExistsError):
        engine.create_topic("just-made")


def test_partitions_are_added(engine, client):
    """Partitions are added up to the given number; a number below the present one changes nothing."""
    topic = engine.create_topic("grown-wider")
    engine.add_partitions("grown-wider", total=4)
    assert [0, 1, 2, 3] == list(topic.partitions())
    engine.add_partitions("grown-wider", total=2)
    assert 4 == len(client.admin.list_topics("grown-wider", timeout=30).topics["grown-wider"].partitions)
    with pytest.raises(errors.UnknownTopicError):
        engine.add_partitions("nowhere", total=2)
    with pytest.raises(errors.InvalidConfigError):
        engine.add_partitions("grown-wider", total=10_001)


def test_a_topic_is_deleted(engine, client):
    """A deleted topic and its partitions are gone when the call returns; a new topic of that name is another topic."""
    topic = engine.create_topic("removed")
    partition = topic.partitions()[0]
    partition.append(batch(b"a"))
    engine.delete_topic("removed")
    assert "removed" not in engine.topics()
    with pytest.raises(errors.PartitionGoneError):
        partition.append(batch(b"b"))
    with pytest.raises(errors.UnknownTopicError):
        engine.delete_topic("removed")
    again = engine.create_topic("removed")
    assert again.topic_id != topic.topic_id
    assert [] == client.records("removed")


def test_only_empty_topics_are_deleted_if_requested(engine, client):
    """With `with_records=False` a topic is deleted only if it is empty. The engine asks the partition leaders for this.

    Records that other clients have produced keep the topic until the records are deleted.
    """
    topic = engine.create_topic("emptied", partitions=2)
    for round_number in range(5):
        client.produce("emptied", [Outgoing(b"a")], partition=1)
        with pytest.raises(errors.TopicNotEmptyError, match="emptied: holds 1 records"):
            engine.delete_topic("emptied", with_records=False)
        assert round_number + 1 == topic.partitions()[1].delete_records(Offset(-1))
    engine.delete_topic("emptied", with_records=False)
    wait_until_deleted(client, "emptied")


def test_settings_are_changed(engine, client):
    """A call changes all of its settings or none. The value None removes a setting, and any setting name is accepted."""
    topic = engine.create_topic("settled-anew")
    changes = {"retention.ms": "5000", "cleanup.policy": "compact", "remote.log.copy.disable": "true"}
    engine.alter_config("settled-anew", changes)
    assert changes == topic.overrides
    assert (5000, True) == (topic.config.retention_ms, topic.config.compacts)
    engine.alter_config("settled-anew", {"retention.ms": None, "remote.log.copy.disable": None})
    assert {"cleanup.policy": "compact"} == topic.overrides
    for wrong in ({"no.such": "1"}, {"retention.ms": "soon"}):
        with pytest.raises(errors.InvalidConfigError, match=next(iter(wrong))):
            engine.alter_config("settled-anew", {"segment.bytes": "2000000", **wrong})
    assert {"cleanup.policy": "compact"} == topic.overrides
    with pytest.raises(errors.UnknownTopicError):
        engine.alter_config("nowhere", changes)


def test_settings_have_their_source(engine):
    """Each setting has its source: the topic, the brokers (with the broker setting's name) or Kafka's default."""
    topic = engine.create_topic("sources", overrides={"retention.ms": "1", "remote.log.copy.disable": "true"})
    found = {one.name: one for one in topic.settings()}
    assert ("1", ConfigSource.TOPIC, None) == found["retention.ms"][1:4]
    assert ("true", ConfigSource.TOPIC, None) == found["remote.log.copy.disable"][1:4]
    assert ("producer", ConfigSource.DEFAULT, None) == found["compression.type"][1:4]
    of_brokers = [one for one in found.values() if one.source is ConfigSource.BROKER]
    assert all(one.file_name for one in of_brokers)


def test_records_are_deleted(engine, client):
    """After DeleteRecords up to an offset (-1: all), the log start has risen, and reads below it are out of range."""
    partition = engine.create_topic("cut-off").partitions()[0]
    for number in range(10):
        partition.append(batch(b"%d" % number))
    assert 4 == partition.delete_records(Offset(4))
    assert (4, 4) == (partition.log_start_offset, client.records("cut-off")[0].offset)
    with pytest.raises(errors.OffsetOutOfRangeError):
        partition.read(Offset(3), max_bytes=1)
    with pytest.raises(errors.OffsetOutOfRangeError, match=r"offset 11 is outside \[4, 10\)"):
        partition.delete_records(Offset(11))
    assert 10 == partition.delete_records(Offset(-1))
    assert (10, 10) == (partition.log_start_offset, partition.offsets().log_end_offset)


def test_records_of_a_compacted_topic_are_not_deleted(engine):
    """Deleting records of a compacted topic fails with the cluster's error: only brokers check the cleanup policy."""
    partition = engine.create_topic("kept-by-key", overrides={"cleanup.policy": "compact"}).partitions()[0]
    with pytest.raises(errors.PolicyViolationError):
        partition.delete_records(Offset(-1))


def test_lost_answers_change_nothing_twice(address, client, relay):
    """If the answer to a create, add or delete request is lost, the change is still reported as done."""
    with through(relay, address) as engine:
        for lost in Lost:
            name = f"lost-{lost.name.lower()}"
            relay.do(CREATE_TOPICS, lost, lost)
            topic = engine.create_topic(name)
            assert client.topic_id(name) == topic.topic_id
            relay.do(CREATE_PARTITIONS, lost)
            engine.add_partitions(name, total=3)
            assert 3 == len(topic.partitions())
            topic.partitions()[0].append(batch(b"a"))
            relay.do(DELETE_RECORDS, lost)
            assert 1 == topic.partitions()[0].delete_records(Offset(-1))
            relay.do(DELETE_TOPICS, lost)
            engine.delete_topic(name)
            wait_until_deleted(client, name)
    assert all(map(relay.done, (CREATE_TOPICS, CREATE_PARTITIONS, DELETE_RECORDS, DELETE_TOPICS)))


def test_a_change_that_nobody_answers_ends(address, client, relay):
    """A change that gets no answer ends with a one-line error that says what is unknown."""
    with through(relay, address, timeout_seconds=0.3) as engine:
        relay.always(CREATE_TOPICS, Lost.ANSWER)
        with pytest.raises(
            errors.ClusterError, match=r"unanswered: no answer within 0\.3 s.*may have been made"
        ):
            engine.create_topic("unanswered")
        relay.always(CREATE_TOPICS, None)
    wait_until(lambda: "unanswered" in names(client), "the requested topic exists")


def test_a_read_only_engine_changes_nothing(address, client):
    """A read-only engine refuses every change."""
    client.create_topic("left-alone")
    with closing(open_engine(address, read_only=True)) as engine:
        wait_until(lambda: "left-alone" in engine.topics(), "the topic is known")
        partition = engine.partition("left-alone", 0)
        for change in (
            lambda: engine.create_topic("never"),
            lambda: engine.add_partitions("left-alone", total=2),
            lambda: engine.delete_topic("left-alone"),
            lambda: engine.alter_config("left-alone", {"retention.ms": "1"}),
            lambda: partition.delete_records(Offset(-1)),
        ):
            with pytest.raises(errors.ReadOnlyError):
                change()


def test_a_refusal_names_the_missing_right(broker, client, tmp_path):
    """If an ACL denies an append or a change of a topic, the error names the missing right.

    A user may change topics that have no ACLs.
    """
    settings = rights_of_alice(
        client, tmp_path, "for-readers", AclOperation.READ, AclOperation.DESCRIBE_CONFIGS
    )
    address = cluster_address(f"kafka://localhost:{broker.ports['SASL_PLAINTEXT']}")
    with closing(open_engine(address, read_security(settings))) as engine:
        partition = engine.partition("for-readers", 0)
        for change in (
            lambda: partition.append(batch(b"a")),
            lambda: partition.delete_records(Offset(-1)),
            lambda: engine.add_partitions("for-readers", total=2),
            lambda: engine.alter_config("for-readers", {"retention.ms": "1"}),
        ):
            with pytest.raises(errors.NotAuthorizedError, match=r"^for-readers.*ask for an ACL"):
                change()
        assert not partition.read(Offset(0), max_bytes=1).data
        engine.create_topic("for-all")
        engine.delete_topic("for-all")
        wait_until_deleted(client, "for-all")
    assert [] == client.records("for-readers")


def test_writing_needs_no_right_to_read_settings(broker, client, tmp_path):
    """Read and Write are enough for producers and consumers; only the settings need the right DescribeConfigs."""
    settings = rights_of_alice(client, tmp_path, "for-writers", AclOperation.READ, AclOperation.WRITE)
    address = cluster_address(f"kafka://localhost:{broker.ports['SASL_PLAINTEXT']}")
    kept = CacheSettings(tmp_path / "cache", 1 << 24)
    with closing(open_engine(address, read_security(settings), cache=kept)) as engine:
        partition = engine.partition("for-writers", 0)
        assert TopicConfig() == partition.config == engine.topic("for-writers").config
        partition.append(batch(b"a"), encoded_here=True)
        assert 1 == partition.read(Offset(0), max_bytes=1 << 20).next_offset
        for shown in (
            lambda: engine.topic("for-writers").settings(),
            lambda: engine.topic("for-writers").overrides,
        ):
            with pytest.raises(
                errors.NotAuthorizedError, match="for-writers: .*DescribeConfigs to see its settings"
            ):
                shown()
    assert [b"a"] == [record.value for record in client.records("for-writers")]
    assert not list(kept.directory.rglob("*.log"))


def rights_of_alice(client, tmp_path, topic, *operations):
    """Create a topic where only alice may do `operations`; return it and a settings file with which she connects."""
    client.create_topic(topic)
    client.allow(topic, "alice", *operations)
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} required username="alice" password="alice-secret";\n'
    )
    return settings
