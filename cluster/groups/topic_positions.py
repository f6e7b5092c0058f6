"""The positions of many groups in one topic: each coordinator is asked for all of its groups together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.errors import GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, NONE
from topicfs.cluster.groups.requests import read_position
from topicfs.cluster.protocol.group_messages import OFFSET_FETCH
from topicfs.coordination.membership import CommittedPosition
from topicfs.storage.model import TopicPartition
from topicfs.storage.wire import Values

MOST_GROUPS = 200
"""Groups in one request."""


class TopicPositions(NamedTuple):
    """The answer of one coordinator."""

    found: Mapping[str, Mapping[TopicPartition, CommittedPosition]]
    """The positions of the groups that have any in the topic."""
    unanswered: Sequence[str]
    """The groups that have to be asked for one by one: another broker has them now, or this one knows no other way."""


def fetch_positions(
    brokers: Brokers, node: int, groups: Sequence[str], topic: str, numbers: Collection[int]
) -> Iterator[TopicPositions]:
    """Yield the positions of groups that a broker coordinates (blocking). Raises what `Brokers.ask` does."""
    topics = [{"name": topic, "partitionIndexes": sorted(numbers)}]
    for first in range(0, len(groups), MOST_GROUPS):
        some = groups[first : first + MOST_GROUPS]
        request = {
            "groupId": some[0],
            "topics": topics,
            "groups": [
                {"groupId": one, "memberId": None, "memberEpoch": -1, "topics": topics} for one in some
            ],
            "requireStable": False,
        }
        answer = brokers.ask(node, OFFSET_FETCH, request)
        # Brokers before Kafka 3.0 tell of one group at a time.
        yield _read(answer["groups"]) if "groups" in answer else TopicPositions({}, some)


def _read(answers: Sequence[Values]) -> TopicPositions:
    answered = {NONE, GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED}
    positions = {one["groupId"]: _positions(one) for one in answers if one["errorCode"] == NONE}
    return TopicPositions(
        {group: own for group, own in positions.items() if own},
        [one["groupId"] for one in answers if one["errorCode"] not in answered],
    )


def _positions(answer: Values) -> dict[TopicPartition, CommittedPosition]:
    return {
        TopicPartition(topic["name"], one["partitionIndex"]): read_position(one)
        for topic in answer["topics"]
        for one in topic["partitions"]
        if one["errorCode"] == NONE and one["committedOffset"] >= 0
    }
