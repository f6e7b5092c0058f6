"""Requests to a broker without a mount: what an append, or a record, takes at least that comes from there.

One connection, one request at a time. The messages are those of the mount; nothing is looked up, and the answer is only
checked for an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.frame.question import WrongResultError
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.fetch import FetchPartition, fetch
from topicfs.cluster.place import cluster_address
from topicfs.cluster.protocol.messages import PRODUCE
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.model import Offset, TopicPartition

ACKS_ALL = -1
PATIENCE_MS = 10_000


class BareRequests:
    """A connection to the one broker of a cluster, and requests about the first partitions of its topics."""

    def __init__(self, bootstrap_server: str) -> None:
        self._brokers = Brokers(cluster_address(f"kafka://{bootstrap_server}"))
        metadata = self._brokers.metadata()
        self._ids = {name: topic.topic_id for name, topic in metadata.topics.items()}
        self._node, self._server = next(iter(metadata.brokers.items()))

    def close(self) -> None:
        self._brokers.close()

    def append(self, topic: str, batches: Sequence[bytearray]) -> None:
        """Append batches one after the other, each when the one before is answered."""
        for batch in batches:
            partition = {"index": 0, "records": batch}
            request = {
                "transactionalId": None,
                "acks": ACKS_ALL,
                "timeoutMs": PATIENCE_MS,
                "topicData": [{"topicId": decode_id(self._ids[topic]), "partitionData": [partition]}],
            }
            [answered] = self._brokers.ask(self._node, PRODUCE, request)["responses"]
            [one] = answered["partitionResponses"]
            if one["errorCode"]:
                raise WrongResultError(f"{topic}: error {one['errorCode']}")

    def batch_with(self, topic: str, offset: int) -> None:
        """Fetch the batch that holds a record."""
        partition = TopicPartition(topic, 0)
        wanted = FetchPartition(partition, self._ids[topic], Offset(offset), max_bytes=1)
        answer = fetch(self._brokers, self._node, [wanted], max_bytes=1)
        if not answer.partitions[partition].records:
            raise WrongResultError(f"{topic}: no record {offset}")
