"""The sizes of partitions' logs on their brokers' disks."""

from __future__ import annotations

from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS
from topicfs.cluster.protocol.messages import DESCRIBE_LOG_DIRS
from topicfs.storage.model import TopicPartition


def log_size(brokers: Brokers, node: int, partition: TopicPartition) -> int | None:
    """Return the bytes of a partition's log at one broker; None if the broker does not say, as without the right to ask (blocking).

    Raises what `Connection.call` does.
    """
    request = {"topics": [{"topic": partition.topic, "partitions": [partition.partition]}]}
    answer = brokers.ask(node, DESCRIBE_LOG_DIRS, request, seconds=ATTEMPT_SECONDS)
    sizes = [
        one["partitionSize"]
        for directory in answer["results"]
        for topic in directory["topics"]
        for one in topic["partitions"]
        if (topic["name"], one["partitionIndex"]) == partition and not one["isFutureKey"]
    ]
    return int(sizes[0]) if sizes else None
