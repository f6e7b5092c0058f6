"""Tests of `topicfs.serve` and of the pytest plugin's fixtures: a Kafka broker for programs and their tests."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import topicfs
from tests.doubles.waiting import TIMEOUT_SECONDS
from topicfs.storage.errors import InvalidConfigError, StorageError

USES_FIXTURES = """
import pytest
from confluent_kafka import Consumer, Producer


def send(server, topic):
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    producer.produce(topic, b"hello")
    assert 0 == producer.flush(60)


def test_one(topicfs_server, topicfs_prefix):
    send(topicfs_server, topicfs_prefix + "orders")
    consumer = Consumer({
        "bootstrap.servers": topicfs_server.bootstrap_servers,
        "group.id": topicfs_prefix + "billing",
        "auto.offset.reset": "earliest",
    })
    consumer.subscribe([topicfs_prefix + "orders"])
    assert b"hello" == consumer.poll(60).value()
    consumer.close()


@pytest.mark.parametrize("word", ["a/b c"])
def test_another(topicfs_server, topicfs_prefix, word):
    send(topicfs_server, topicfs_prefix + "orders")
"""


def test_a_client_reads_what_a_client_wrote(tmp_path: Path) -> None:
    """A client reads what a client wrote. A missing directory is created, and keeps the records after `close`."""
    with topicfs.serve(tmp_path / "data") as server:
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        producer.produce("orders", b"one")
        assert 0 == producer.flush(TIMEOUT_SECONDS)
        config = {"bootstrap.servers": server.bootstrap_servers, "group.id": "g"}
        with closing(Consumer({**config, "auto.offset.reset": "earliest"})) as consumer:
            consumer.subscribe(["orders"])
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None
            assert b"one" == message.value()
    with topicfs.open(tmp_path / "data") as topics:
        assert [b"one"] == [record.value for record in topics["orders"].records()]


def test_a_brokers_settings(tmp_path: Path) -> None:
    """Settings have Kafka's names; a name that topicfs does not use is refused before anything is created."""
    settings = {"num.partitions": 3, "auto.create.topics.enable": True}
    with topicfs.serve(tmp_path / "data", settings=settings) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        producer.produce("orders", b"one")
        assert 0 == producer.flush(TIMEOUT_SECONDS)
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        assert 3 == len(admin.list_topics(timeout=TIMEOUT_SECONDS).topics["orders"].partitions)
    with pytest.raises(InvalidConfigError, match="this setting; did you mean num.partitions?"):
        topicfs.serve(tmp_path / "other", settings={"num.partition": "3"})
    assert not (tmp_path / "other").exists()


def test_replicas_by_default(tmp_path: Path) -> None:
    """With `default.replication.factor` each partition has copies in several directories."""
    both = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    with topicfs.serve(both, settings={"default.replication.factor": 2}) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        producer.produce("orders", b"one")
        assert 0 == producer.flush(TIMEOUT_SECONDS)
    assert [True, True] == [(tmp_path / one / "orders-0").is_dir() for one in ("one", "two")]


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    """A second server of a directory is refused. After `close`, which may be called twice, the directory is free."""
    server = topicfs.serve(tmp_path / "data")
    with pytest.raises(StorageError, match="in use"):
        topicfs.serve(tmp_path / "data")
    with pytest.raises(StorageError, match=r'topicfs.open\("kafka://" \+ server.bootstrap_servers\)'):
        topicfs.open(tmp_path / "data")
    with topicfs.open("kafka://" + server.bootstrap_servers) as topics:
        topics.create("orders")
    server.close()
    server.close()
    topicfs.serve(tmp_path / "data").close()


def test_an_address_that_others_reach(tmp_path: Path) -> None:
    """`serve` refuses an address that other machines can reach; its error names no option of the command."""
    with pytest.raises(
        topicfs.errors.ListenerError, match="listen at 127.0.0.1, or use the command"
    ) as caught:
        topicfs.serve(tmp_path / "data", listen="0.0.0.0:0")
    assert "--" not in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_the_fixtures_of_the_plugin(tmp_path: Path) -> None:
    """The plugin's fixtures give all tests of a session one broker, and each test its own prefix for names."""
    (tmp_path / "test_it.py").write_text(USES_FIXTURES)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_it.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr
