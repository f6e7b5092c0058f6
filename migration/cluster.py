"""The requests of a handover to a running Kafka cluster, and the client that sends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topicfs.cluster.brokers.admin import Admin
from topicfs.cluster.brokers.bounds import ask_leader_for_bounds
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.coordinators import Coordinators
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.errors import UNKNOWN_TOPIC_OR_PARTITION, error_of
from topicfs.cluster.groups.requests import NO_GENERATION, GroupClient
from topicfs.coordination.membership import Position
from topicfs.protocol.messages import METADATA
from topicfs.storage.checkpoints.identifiers import encode_id
from topicfs.storage.errors import ClusterError, GroupError, UnknownTopicError
from topicfs.storage.model import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicDescription:
    topic_id: str
    partitions: int
    node_ids: frozenset[int]


class KafkaCluster:
    """A running cluster. Its methods block and raise ClusterError, UnknownTopicError, NotAuthorizedError."""

    def __init__(self, brokers: Brokers) -> None:
        """Read the cluster's metadata (blocking). Raises the errors of `Brokers.metadata`."""
        self._leaders = Leaders(brokers)
        self._admin = Admin(self._leaders)
        self._coordinators = Coordinators(brokers)

    def cluster_id(self) -> str:
        return self._leaders.metadata.cluster_id

    def find_topic(self, name: str) -> TopicDescription | None:
        asked = {"topics": [{"name": name}], "allowAutoTopicCreation": False}
        (found,) = self._leaders.brokers.ask_any(METADATA, asked)["topics"]
        if found["errorCode"] == UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if found["errorCode"]:
            raise error_of(found["errorCode"], name)
        nodes = frozenset(node for one in found["partitions"] for node in one["replicaNodes"])
        return TopicDescription(encode_id(found["topicId"]), len(found["partitions"]), nodes)

    def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, str], node_id: int
    ) -> TopicDescription:
        """Create a topic with one replica per partition, all on the broker `node_id`; return once brokers know it."""
        self._admin.create_topic(name, partitions=partitions, overrides=settings, node=node_id)

        def is_known() -> bool:
            found = self.find_topic(name)
            return found is not None and found.partitions == partitions

        self._admin.wait_until(is_known, name)
        return self._described(name)

    def change_settings(self, name: str, settings: Mapping[str, str]) -> None:
        if settings:
            self._admin.alter_settings(name, settings)

    def offsets(self, name: str, partitions: int) -> dict[int, range]:
        """Return each partition's offsets, from log start to log end."""
        topic_id = self._described(name).topic_id
        found = {}
        for number in range(partitions):
            bounds = ask_leader_for_bounds(self._leaders, TopicPartition(name, number), topic_id)
            found[number] = range(bounds.log_start_offset, bounds.high_watermark)
        return found

    def positions(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return a group's positions; partitions without a position are left out."""
        found = GroupClient(self._coordinators, group).positions()
        return {one: found[one].offset for one in partitions if one in found}

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Set a group's positions, after `positions` was called. A cluster refuses this if the group has members."""
        ids = {topic: self._described(topic).topic_id for topic in {one.topic for one in positions}}
        try:
            codes = GroupClient(self._coordinators, group).commit(positions, ids, "", NO_GENERATION)
            for place, code in codes.items():
                if code:
                    raise error_of(code, f"group {group}: {place}")
        except GroupError as error:
            raise ClusterError(str(error)) from error

    def _described(self, name: str) -> TopicDescription:
        found = self.find_topic(name)
        if found is None:
            raise UnknownTopicError.of(name)
        return found
