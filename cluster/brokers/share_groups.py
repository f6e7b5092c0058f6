"""Stores share groups in a cluster: their start offsets, and the records to deliver again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.coordinators import GROUP, SHARE, Codes, Coordinators, by_topic
from topicfs.cluster.errors import GROUP_ID_NOT_FOUND, NONE
from topicfs.coordination.records.share_state_records import ShareState
from topicfs.protocol.group_messages import (
    ALTER_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    WRITE_SHARE_GROUP_STATE,
)
from topicfs.protocol.notation import Api
from topicfs.storage.checkpoints.identifiers import decode_id, encode_id
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.wire import Values

NOT_COMPARED = -1
"""The epoch in a request that makes the coordinator skip the comparison of epochs."""


class ShareGroupAdmin:
    """Sends requests to the coordinators of share groups. Blocks; raises ClusterError, UnreachableError."""

    def __init__(self, brokers: Brokers) -> None:
        self._coordinators = Coordinators(brokers)

    def positions(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return a group's start offset in each of the partitions; partitions without one are left out."""
        topics = [
            {"topicName": name, "partitions": numbers} for name, numbers in by_topic(partitions).items()
        ]
        request = {"groups": [{"groupId": group, "topics": topics}]}
        (answer,) = self._ask(GROUP, group, DESCRIBE_SHARE_GROUP_OFFSETS, request, _described)["groups"]
        return {
            TopicPartition(topic["topicName"], one["partitionIndex"]): Offset(one["startOffset"])
            for topic in answer["topics"]
            for one in topic["partitions"]
            if one["errorCode"] == NONE and one["startOffset"] >= 0
        }

    def put(
        self, group: str, states: Mapping[TopicPartition, ShareState], topic_ids: Mapping[str, str]
    ) -> None:
        """Store an empty group's start offsets and records to deliver again. Raises ClusterError if it has members."""
        topics = [
            {
                "topicName": name,
                "partitions": [
                    {
                        "partitionIndex": number,
                        "startOffset": max(0, states[TopicPartition(name, number)].start_offset),
                    }
                    for number in numbers
                ],
            }
            for name, numbers in by_topic(list(states)).items()
        ]
        request = {"groupId": group, "topics": topics}
        self._ask(GROUP, group, ALTER_SHARE_GROUP_OFFSETS, request, _altered)
        for partition, state in states.items():
            if state.batches:
                self._write(group, partition.partition, decode_id(topic_ids[partition.topic]), state)

    def _write(self, group: str, partition: int, topic_id: UUID, state: ShareState) -> None:
        batches = [
            {
                "firstOffset": one.first,
                "lastOffset": one.last,
                "deliveryState": one.state,
                "deliveryCount": one.deliveries,
            }
            for one in state.batches
        ]
        written = {
            "partition": partition,
            "stateEpoch": NOT_COMPARED,
            "leaderEpoch": NOT_COMPARED,
            "startOffset": state.start_offset,
            "deliveryCompleteCount": state.complete_count,
            "stateBatches": batches,
        }
        request = {"groupId": group, "topics": [{"topicId": topic_id, "partitions": [written]}]}
        key = f"{group}:{encode_id(topic_id)}:{partition}"
        self._ask(SHARE, key, WRITE_SHARE_GROUP_STATE, request, _written)

    def _ask(self, kind: int, key: str, api: Api, request: Values, codes: Codes) -> Values:
        return self._coordinators.ask(kind, key, api, request, codes=codes, what=f"share group {key}")


def _described(answer: Values) -> Iterator[int]:
    """Yield the error codes in an answer, except the code for a group that does not exist.

    A group that does not exist has no positions, which is not an error.
    """
    return (one["errorCode"] for one in answer["groups"] if one["errorCode"] != GROUP_ID_NOT_FOUND)


def _altered(answer: Values) -> Iterator[int]:
    yield answer["errorCode"]
    for topic in answer["responses"]:
        for one in topic["partitions"]:
            yield one["errorCode"]


def _written(answer: Values) -> Iterator[int]:
    return (one["errorCode"] for topic in answer["results"] for one in topic["partitions"])
