"""What a handover reads from a running cluster, and changes in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer

from testing.broker.broker import Broker, running_broker
from testing.broker.client import Client, Outgoing
from testing.broker.libraries import Java
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.place import cluster_address
from topicfs.coordination.membership import Position
from topicfs.migration.cluster import KafkaCluster
from topicfs.storage.errors import ClusterError
from topicfs.storage.model import TopicPartition

pytestmark = pytest.mark.java
NODE = 1
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


@pytest.fixture(scope="module")
def broker(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("cluster") / "node", java) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[KafkaCluster]:
    """A cluster with the topic `orders`."""
    with closing(Brokers(cluster_address(f"kafka://{broker.bootstrap_server}"))) as brokers:
        found = KafkaCluster(brokers)
        found.create_topic("orders", partitions=3, settings={"retention.ms": "-1"}, node_id=NODE)
        yield found


def test_a_new_topic_has_its_replicas_on_the_named_broker(broker: Broker, cluster: KafkaCluster) -> None:
    """A new topic has its partitions and settings, and one replica of each partition, on the named broker."""
    found = cluster.find_topic("orders")
    assert found is not None
    assert (3, {NODE}) == (found.partitions, found.node_ids)
    client = Client(broker.bootstrap_server)
    assert client.topic_id("orders") == found.topic_id
    client.produce("orders", [Outgoing(b"one"), Outgoing(b"two")], partition=1)
    assert {0: range(0), 1: range(2), 2: range(0)} == cluster.offsets("orders", 3)
    assert cluster.find_topic("clicks") is None


def test_only_partitions_with_a_position_are_returned(cluster: KafkaCluster) -> None:
    """Only partitions with a position, which may be 0, are returned; an unknown group or an empty request has none."""
    assert {} == cluster.positions("billing", PARTITIONS)
    cluster.set_positions("billing", {PARTITIONS[0]: Position(5), PARTITIONS[2]: Position(0, "note")})
    assert {PARTITIONS[0]: 5, PARTITIONS[2]: 0} == cluster.positions("billing", PARTITIONS)
    assert {} == cluster.positions("nobody", PARTITIONS)
    assert {} == cluster.positions("billing", [])


def test_the_positions_of_a_group_with_members_are_not_set(broker: Broker, cluster: KafkaCluster) -> None:
    """If a group has members, setting its positions is refused, and the positions do not change."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_server, "group.id": "busy"})
    with closing(consumer):
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.1)
        with pytest.raises(ClusterError, match="group busy: orders-0: the cluster answers UNKNOWN_MEMBER_ID"):
            cluster.set_positions("busy", {PARTITIONS[0]: Position(5)})
    assert {} == cluster.positions("busy", PARTITIONS)
