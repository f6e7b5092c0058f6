"""Real clients use a served directory: kcat, librdkafka for Python, and readers of the engine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from tests.doubles.producing import batch
from tests.listener.serving import RawClient, Served, fetching
from topicfs.listener.limits import ListenerLimits
from topicfs.protocol.messages import DESCRIBE_CONFIGS, FETCH, INCREMENTAL_ALTER_CONFIGS, METADATA, PRODUCE
from topicfs.storage.codec.columns import decode
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.model import Isolation

TIMEOUT_SECONDS = 60


def kcat(*arguments: str, lines: Sequence[str] = ()) -> str:
    done = subprocess.run(
        ["kcat", *arguments],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
        text=True,
    )
    return done.stdout


def values_of(batches: Any) -> list[bytes | None]:
    return [record.value for columns in decode(batches) for record in columns]


def values(served: Served, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return the values that the engine reads from a partition."""
    found: list[bytes | None] = []
    log = served.engine.partition(topic, partition)
    offset = log.log_start_offset
    while offset < log.visible_end(Isolation.READ_COMMITTED):
        fetched = log.read(offset, max_bytes=1 << 20)
        found += values_of(fetched.data)
        offset = fetched.next_offset
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_in_and_out(served: Served, codec: str) -> None:
    """kcat writes to an auto-created topic and reads from it with every codec. The engine reads the same records."""
    lines = [f"line {number}" for number in range(1000)]
    kcat("-P", "-b", served.address, "-t", "lines", "-z", codec, lines=lines)
    assert [line.encode() for line in lines] == values(served, "lines")
    assert lines == kcat("-C", "-b", served.address, "-t", "lines", "-e", "-q").splitlines()


def test_kcat_sees_what_is_appended_to_files(served: Served) -> None:
    """A consumer waiting at the end of a log gets records that the engine appends."""
    served.engine.create_topic("t")
    reader = subprocess.Popen(
        ["kcat", "-C", "-b", served.address, "-t", "t", "-o", "beginning", "-c", "2", "-q", "-u"],
        stdout=subprocess.PIPE,
    )
    assert reader.stdout is not None
    served.engine.partition("t", 0).append(batch(b"first"))
    assert b"first\n" == reader.stdout.readline()
    served.engine.partition("t", 0).append(batch(b"second"))
    assert b"second\n" == reader.stdout.readline()
    assert 0 == reader.wait(TIMEOUT_SECONDS)
    reader.stdout.close()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_an_idempotent_producer(served: Served, acks: str) -> None:
    """An idempotent producer, and a producer with acks=0, write each record once."""
    idempotent = acks == "all"
    producer = Producer({"bootstrap.servers": served.address, "acks": acks, "enable.idempotence": idempotent})
    sent = [str(number).encode() for number in range(5000)]
    served.engine.create_topic("t")
    for value in sent:
        producer.produce("t", value, partition=0)
        producer.poll(0)
    assert 0 == producer.flush(TIMEOUT_SECONDS)
    consumer = Consumer({"bootstrap.servers": served.address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    got: list[Any] = []
    while len(got) < len(sent):
        got += [message.value() for message in consumer.consume(1000, timeout=TIMEOUT_SECONDS)]
    consumer.close()
    assert sent == got == values(served, "t")


def test_an_admin_client(served: Served) -> None:
    """An admin client creates, extends, describes, alters and deletes topics, and deletes records."""
    admin = AdminClient({"bootstrap.servers": served.address})
    created = admin.create_topics([NewTopic("t", num_partitions=2, config={"retention.ms": "5000"})])
    assert created["t"].result(TIMEOUT_SECONDS) is None
    assert {0, 1} == set(served.engine.topic("t").partitions())
    assert "5000" == served.engine.topic("t").overrides["retention.ms"]
    assert admin.create_partitions([NewPartitions("t", 3)])["t"].result(TIMEOUT_SECONDS) is None
    assert 3 == len(admin.list_topics(timeout=TIMEOUT_SECONDS).topics["t"].partitions)
    resource = ConfigResource("topic", "t")
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
    assert ("5000", 1) == (described["retention.ms"].value, described["retention.ms"].source)
    served.engine.partition("t", 0).append(batch(b"a", b"b"))
    deleted = admin.delete_records([TopicPartition("t", 0, 1)])
    assert 1 == next(iter(deleted.values())).result(TIMEOUT_SECONDS).low_watermark
    assert admin.delete_topics(["t"])["t"].result(TIMEOUT_SECONDS) is None
    assert {} == dict(served.engine.topics())


def test_an_admin_client_replaces_settings(served: Served) -> None:
    """AlterConfigs, which older clients and aiokafka send, removes the settings that it does not name."""
    served.engine.create_topic("t", overrides={"retention.ms": "1", "segment.ms": "2"})
    admin = AdminClient({"bootstrap.servers": served.address})
    wanted = {"segment.ms": "3", "cleanup.policy": "compact"}
    resource = ConfigResource("topic", "t", wanted)
    with pytest.deprecated_call():
        altered = admin.alter_configs([resource])[resource]
    assert altered.result(TIMEOUT_SECONDS) is None
    assert wanted == served.engine.topic("t").overrides


def test_sources_of_settings(start: Callable[..., Served]) -> None:
    """A setting of a broker's file is described with its broker name and source. Only topic settings can change."""
    served = start(topic_defaults=TopicConfig(retention_bytes=5_000), num_partitions=3)
    served.engine.create_topic("t", partitions=1, overrides={"retention.bytes": "1000"})
    served.engine.create_topic("u", partitions=1)

    def described(kind: int, name: str, setting: str) -> Any:
        asked = {"resources": [{"resourceType": kind, "resourceName": name, "configurationKeys": [setting]}]}
        asked |= {"includeSynonyms": True, "includeDocumentation": False}
        [result] = served.client().ask(DESCRIBE_CONFIGS, asked)["results"]
        return [
            (
                one["readOnly"],
                one["configSource"],
                [(each["name"], each["value"], each["source"]) for each in one["synonyms"]],
            )
            for one in result["configs"]
        ]

    ours = ("retention.bytes", "1000", 1)
    inherited = [("log.retention.bytes", "5000", 4), ("log.retention.bytes", "-1", 5)]
    assert [(False, 1, [ours, *inherited])] == described(2, "t", "retention.bytes")
    assert [(False, 4, inherited)] == described(2, "u", "retention.bytes")
    assert [(True, 4, [("num.partitions", "3", 4), ("num.partitions", "1", 5)])] == described(
        4, "1", "num.partitions"
    )
    assert [] == described(4, "", "num.partitions")


def test_a_directory_keeps_its_node_id(start: Callable[..., Served]) -> None:
    """The broker has the node ID of the directory's meta.properties, whatever the settings say later."""
    start(node_id=7).close()
    for settings in ({}, {"node_id": 9}):
        with closing(start(**settings)) as served:
            metadata = served.client().ask(METADATA, {"topics": [], "allowAutoTopicCreation": False}, 12)
            assert [7] == [one["nodeId"] for one in metadata["brokers"]]
            resource = {"resourceType": 4, "resourceName": "7", "configurationKeys": ["node.id"]}
            asked = {"resources": [resource], "includeSynonyms": False, "includeDocumentation": False}
            [result] = served.client().ask(DESCRIBE_CONFIGS, asked)["results"]
            assert ["7"] == [one["value"] for one in result["configs"]]


def test_a_list_of_throttled_replicas_is_extended(served: Served) -> None:
    """Values can be appended to each setting that is a list."""
    served.engine.create_topic("t", partitions=1)
    change = {"name": "leader.replication.throttled.replicas", "configOperation": 2, "value": "0:1"}
    asked = {"resources": [{"resourceType": 2, "resourceName": "t", "configs": [change]}]}
    [answer] = served.client().ask(INCREMENTAL_ALTER_CONFIGS, {**asked, "validateOnly": False})["responses"]
    assert 0 == answer["errorCode"]
    assert "0:1" == served.engine.topic("t").overrides["leader.replication.throttled.replicas"]


def test_topics_are_created_only_if_the_settings_say_so(start: Any) -> None:
    """With auto.create.topics.enable=false, no topic is created on demand."""
    client = start(auto_create_topics=False).client()
    assert 3 == client.topic("t")["errorCode"]


def test_topics_are_created_with_the_partitions_of_the_settings(start: Any) -> None:
    """A topic created on demand has num.partitions partitions."""
    assert 4 == len(start(num_partitions=4).client().topic("t")["partitions"])


def test_what_a_read_only_directory_answers(start: Any, tmp_path: Path) -> None:
    """Clients can read a read-only directory but cannot change it."""
    served = start()
    served.client().topic("t")
    served.client().produce("t", bytes(batch(b"a")))
    served.close()
    with closing(Served([tmp_path / "data"], ListenerLimits(), EngineConfig(), read_only=True)) as reading:
        client = reading.client()
        assert [b"a"] == values_of(client.fetch("t")["records"])
        assert 29 == client.produce("t", bytes(batch(b"b")))["errorCode"]
        assert 3 == client.topic("other")["errorCode"]


def test_replicas(tmp_path: Path, start: Any) -> None:
    """When a produce request with acks=all is answered, its batch is on every replica's disk and can be fetched."""
    served = start(tmp_path / "one", tmp_path / "two", replication_factor=2)
    client = served.client()
    client.topic("t")
    for value in (b"a", b"b"):
        assert 0 == client.produce("t", batch(value))["errorCode"]
    fetched = client.fetch("t")
    assert [b"a", b"b"] == values_of(fetched["records"])
    names = [path / "t-0" / f"{0:020d}.log" for path in (tmp_path / "one", tmp_path / "two")]
    assert names[0].read_bytes() == names[1].read_bytes() == bytes(fetched["records"])


def test_requests_that_were_sent_ahead(client: RawClient) -> None:
    """Pipelined requests are answered in order, and a request for which the client wants no answer gets none."""
    client.topic("t")
    data = [{"name": "t", "partitionData": [{"index": 0, "records": bytes(batch(b"a"))}]}]
    for acks in (1, 0, 1):
        client.send(PRODUCE, {"acks": acks, "timeoutMs": 1000, "topicData": data, "transactionalId": None}, 9)
    answers = [client.receive_frame() for _ in range(2)]
    offsets = [
        PRODUCE.response.read(answer[5:], 9)["responses"][0]["partitionResponses"][0]["baseOffset"]
        for answer in answers
    ]
    assert [0, 2] == offsets


def test_a_deleted_topic_of_the_same_name(client: RawClient, served: Served) -> None:
    """A client that fetches by topic id does not get records of a new topic with the same name."""
    old = client.topic("t")["topicId"]
    served.engine.delete_topic("t")
    served.engine.create_topic("t")
    asked = fetching("t")
    asked["topics"][0]["topicId"] = old
    (answer,) = client.ask(FETCH, asked, 16)["responses"]
    assert 100 == answer["partitions"][0]["errorCode"]
    answer = client.ask(METADATA, {"topics": [{"topicId": old, "name": None}]}, 12)["topics"][0]
    assert (100, None) == (answer["errorCode"], answer["name"])
