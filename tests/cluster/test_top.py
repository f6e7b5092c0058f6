"""`topicfs top` shows ends, sizes, lags and the newest record of a cluster, as the brokers report them."""

from __future__ import annotations

import pytest

from testing.broker.client import Client, Outgoing
from tests.doubles.waiting import wait_until
from topicfs.cluster.place import ClusterAddress
from topicfs.coordination.membership import Position
from topicfs.places import Place, open_cluster, security_of
from topicfs.storage.model import TopicPartition
from topicfs.top.engine_source import EngineSource

pytestmark = pytest.mark.java


def test_new_records_are_seen_at_the_next_refresh(client: Client, address: ClusterAddress):
    """Each refresh asks the brokers again, and also shows the lag of groups."""
    client.create_topic("watched", partitions=2)
    client.produce("watched", [Outgoing(b"one", timestamp=1000), Outgoing(b"two", timestamp=2000)])
    source = EngineSource(Place(cluster=address), str(address))
    wait_until(lambda: source.sample().topics["watched"].appended_records == 2, "both records are counted")
    client.produce("watched", [Outgoing(b"three", key=b"k", timestamp=3000)], partition=1)
    wait_until(lambda: source.sample().topics["watched"].appended_records == 3, "the third record is counted")
    found = source.sample().topics["watched"]
    assert (2, 3, 3, 0) == (found.partitions, found.records, found.end_offsets, found.offline)


def test_groups_of_the_cluster_have_their_lag(client: Client, address: ClusterAddress):
    """A group's lag is the sum over the topic's partitions."""
    client.create_topic("lagging", partitions=1)
    client.produce("lagging", [Outgoing(b"x", timestamp=1000) for _ in range(5)])
    engine = open_cluster(address, security_of(None), read_only=False)
    engine.groups.set_positions("watchers", {TopicPartition("lagging", 0): Position(2)})
    engine.close()
    sample = EngineSource(Place(cluster=address), str(address)).sample()
    assert {"watchers": 3} == sample.topics["lagging"].lags
