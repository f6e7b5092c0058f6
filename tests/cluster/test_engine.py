"""Tests of a cluster as an engine: its known topics, the requests it sends, and the calls it refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka.admin import AclOperation

from testing.broker.client import Client, Outgoing
from tests.doubles.producing import found
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.engine import ClusterEngine, open_engine
from topicfs.cluster.place import ClusterAddress, Server
from topicfs.cluster.protocol.sasl import Credentials, plain
from topicfs.cluster.protocol.security import Security
from topicfs.coordination.engine import Engine
from topicfs.storage.errors import NotAuthorizedError, PartitionOfflineError, ReadOnlyError, UnknownTopicError
from topicfs.storage.model import Isolation, Offset

pytestmark = pytest.mark.java


@pytest.fixture
def engine(address: ClusterAddress, client: Client) -> Iterator[ClusterEngine]:
    with closing(open_engine(address, read_only=True)) as engine:
        yield engine


def test_topics_show_with_their_ids_and_bounds(address, client):
    """When the engine is open, topics are listed in order of names, with their ids and bounds."""
    topic_id = client.create_topic("known-b", partitions=2)
    client.create_topic("known-a")
    client.produce("known-b", [Outgoing(b"a"), Outgoing(b"b")], partition=1)
    client.delete_records("known-b", 1, partition=1)
    with closing(open_engine(address)) as opened:
        engine: Engine = opened
        names = [name for name in engine.topics() if name.startswith("known-")]
        assert ["known-a", "known-b"] == names
        topic = engine.topic("known-b")
        assert (topic_id, False, [0, 1]) == (topic.topic_id, topic.internal, list(topic.partitions()))
        found = engine.partition("known-b", 1).offsets()
        assert (1, 2, 2, 2) == (
            found.log_start_offset,
            found.last_stable_offset,
            found.high_watermark,
            found.log_end_offset,
        )
        with pytest.raises(UnknownTopicError):
            engine.topic("nowhere")
        with pytest.raises(UnknownTopicError):
            engine.partition("known-b", 2)


def test_settings_are_those_of_the_cluster(address, client):
    """Settings come from the topic and its brokers; unknown names are left out."""
    client.create_topic("settings", settings={"retention.ms": "77", "cleanup.policy": "compact"})
    with closing(open_engine(address)) as engine:
        topic = engine.topic("settings")
        assert {"retention.ms": "77", "cleanup.policy": "compact"} == topic.overrides
        assert (77, True, 65536) == (
            topic.config.retention_ms,
            topic.config.compacts,
            topic.config.segment_index_bytes,
        )
        assert topic.config == engine.partition("settings", 0).config


def test_batches_are_read_up_to_the_end(address, client):
    """Reads return whole batches, and nothing after the last batch."""
    client.create_topic("read")
    client.produce("read", [Outgoing(b"a"), Outgoing(b"b"), Outgoing(b"c")], batch=2)
    with closing(open_engine(address)) as engine:
        partition = engine.partition("read", 0)
        first = partition.read(Offset(1), max_bytes=1)
        assert 2 == first.next_offset
        rest = partition.read(first.next_offset, max_bytes=1 << 20, isolation=Isolation.READ_UNCOMMITTED)
        assert 3 == rest.next_offset
        assert not partition.read(Offset(3), max_bytes=1).data


def test_a_read_only_cluster_refuses_changes(engine, client):
    """A cluster opened read-only refuses changes."""
    client.create_topic("refused")
    partition = found(engine, "refused")
    for change in (
        lambda: partition.append(bytearray()),
        lambda: partition.delete_records(Offset(-1)),
        lambda: engine.create_topic("other"),
        lambda: engine.add_partitions("refused", total=2),
        lambda: engine.delete_topic("refused"),
        lambda: engine.alter_config("refused", {}),
    ):
        with pytest.raises(ReadOnlyError, match="opened read-only"):
            change()


def test_closing_ends_waiting_calls(broker, address, client):
    """Closing ends calls that wait for a paused broker, over old and new connections."""
    client.create_topic("waiting")
    client.produce("waiting", [Outgoing(b"a")])
    engine = open_engine(address)
    partition = engine.partition("waiting", 0)
    ends = []

    def read():
        try:
            partition.read(Offset(0), max_bytes=1)
        except PartitionOfflineError as error:
            ends.append(str(error))

    with broker.paused():
        threads = [threading.Thread(target=read) for _ in range(12)]
        for one in threads:
            one.start()
        brokers = engine.leaders.brokers
        wait_until(lambda: len(brokers._lent_out) >= len(threads), "all threads have sent a request")
        engine.close()
        for one in threads:
            one.join(TIMEOUT_SECONDS)
        assert not any(one.is_alive() for one in threads)
    assert ["waiting-0: the engine was closed"] * 12 == ends
    with pytest.raises(PartitionOfflineError):
        partition.read(Offset(0), max_bytes=1)


def test_a_topic_without_the_right_to_read_is_listed(broker, client):
    """A describable topic has bounds, but reads of its records fail; a topic that is not describable is not listed."""
    for name in ("may-describe", "may-nothing"):
        client.create_topic(name)
        client.produce(name, [Outgoing(b"a")])
    client.allow("may-describe", "alice", AclOperation.DESCRIBE)
    client.allow("may-nothing", "bob", AclOperation.READ)
    address = ClusterAddress((Server("localhost", broker.ports["SASL_PLAINTEXT"]),))
    alice = Security(credentials=Credentials("PLAIN", "alice", partial(plain, "alice", "alice-secret")))
    with closing(open_engine(address, alice)) as engine:
        assert "may-nothing" not in engine.topics()
        partition = engine.partition("may-describe", 0)
        assert 1 == partition.visible_end(Isolation.READ_COMMITTED)
        with pytest.raises(NotAuthorizedError, match="may-describe-0: .*TOPIC_AUTHORIZATION_FAILED"):
            partition.read(Offset(0), max_bytes=1)
        with pytest.raises(NotAuthorizedError, match="may-describe: .*DescribeConfigs"):
            engine.topic("may-describe").settings()
        client.produce("may-describe", [Outgoing(b"b")])
        partition.listen(lambda: None)
        wait_until(
            lambda: partition.visible_end(Isolation.READ_COMMITTED) == 2, "the sweeper has seen the records"
        )


def test_sizes_are_those_on_the_brokers_disk(broker, address, client):
    """A partition's size is the size of its log on the broker's disk."""
    client.create_topic("sized")
    client.produce("sized", [Outgoing(bytes(1000)) for _ in range(10)])
    with closing(open_engine(address)) as engine:
        status = engine.partition("sized", 0).status()
    [log] = (broker.log_dir / "sized-0").glob("*.log")
    assert (log.stat().st_size, None, None) == (status.log_bytes, status.segments, status.offline)
