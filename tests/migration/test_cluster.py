"""A cluster's answers about groups, including groups whose coordinators are not known yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from tests.doubles.mock_kafka import OFFSET_FETCH, MockKafka, mock_kafka
from topicfs.migration.cluster import GroupPosition, KafkaCluster
from topicfs.storage.errors import ClusterError
from topicfs.storage.model import Offset, TopicPartition

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with mock_kafka() as cluster:
        cluster.create_topic("orders", partitions=len(PARTITIONS))
        yield cluster


@pytest.fixture
def cluster(kafka: MockKafka) -> KafkaCluster:
    """A cluster in which the group `billing` has positions in two of three partitions."""
    client = KafkaCluster(kafka.bootstrap_server)
    stands = {PARTITIONS[0]: GroupPosition(Offset(5)), PARTITIONS[2]: GroupPosition(Offset(0), "note")}
    client.set_positions("billing", stands)
    return client


def test_only_partitions_with_a_position_are_returned(cluster: KafkaCluster) -> None:
    """Only partitions with a position are returned (0 is a position); an unknown group or empty request has none."""
    assert {PARTITIONS[0]: 5, PARTITIONS[2]: 0} == cluster.positions("billing", PARTITIONS)
    assert {} == cluster.positions("nobody", PARTITIONS)
    assert {} == cluster.positions("billing", [])


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_is_not_there_yet_is_waited_for(
    kafka: MockKafka, cluster: KafkaCluster, code: int
) -> None:
    """The answer of a starting broker is retried; librdkafka's admin client would end the whole process instead."""
    kafka.answer_next(OFFSET_FETCH, [code] * 3)
    assert {PARTITIONS[0]: 5, PARTITIONS[2]: 0} == cluster.positions("billing", PARTITIONS)


def test_a_group_that_may_not_be_seen_is_an_error(kafka: MockKafka, cluster: KafkaCluster) -> None:
    """If the user may not see a group, a one-line error that names the cluster is raised without a retry."""
    kafka.answer_next(OFFSET_FETCH, [KafkaError.GROUP_AUTHORIZATION_FAILED] * 3)
    with pytest.raises(ClusterError, match=rf"{kafka.bootstrap_server}.*[Gg]roup.*auth") as caught:
        cluster.positions("billing", PARTITIONS)
    assert "\n" not in str(caught.value)
