"""Converts coordinators' descriptions of groups into the descriptions of `coordination.membership`.

Groups of Kafka 4's consumer protocol are included. If the cluster allows it, a member in this process can join such a
group with the classic protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from topicfs.cluster.errors import UnsupportedVersionError
from topicfs.cluster.groups.requests import GroupClient
from topicfs.coordination.groups.runtime.assignment import read_assignment, read_topics
from topicfs.coordination.membership import GroupDescription, GroupListing, GroupState, MemberDescription
from topicfs.protocol.group_messages import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS
from topicfs.storage.errors import CorruptBatchError, UnknownGroupError
from topicfs.storage.model import TopicPartition
from topicfs.storage.wire import Values

SHARE_GROUP = "share"
STATES = {
    **{state.value: state for state in GroupState},
    "Assigning": GroupState.PREPARING_REBALANCE,
    "Reconciling": GroupState.COMPLETING_REBALANCE,
}
"""Group states by name. A state of Kafka 4's protocol is mapped to the most similar classic state."""
CLASSIC = ("", "consumer")
"""Protocol types of consumer groups; empty until a group's first member joins."""


def state_of(name: str) -> GroupState:
    """Return the state named `name`; DEAD if it is unknown."""
    return STATES.get(name, GroupState.DEAD)


def read_listing(answer: Values) -> Iterator[GroupListing]:
    """Yield the consumer groups that one broker coordinates; share groups are left out."""
    for one in answer["groups"]:
        if one["protocolType"] in CLASSIC and one.get("groupType", "").lower() != SHARE_GROUP:
            yield GroupListing(name=one["groupId"], state=state_of(one["groupState"]))


def describe(client: GroupClient, coordinator: TopicPartition) -> GroupDescription:
    """Ask the coordinator for a group's description (blocking). Raises UnknownGroupError."""
    found = client.described(DESCRIBE_GROUPS, "groups")
    if found is not None and found["groupState"] != GroupState.DEAD.value:
        generation, assignor, read = -1, found["protocolData"], _classic
    else:
        found = None
        with suppress(UnsupportedVersionError):  # Kafka 3 does not have groups of the new protocol.
            found = client.described(CONSUMER_GROUP_DESCRIBE, "groupIds")
        if found is None:
            raise UnknownGroupError(f"{client.group}: no such group")
        generation, assignor, read = found["groupEpoch"], found["assignorName"], _newer
    return GroupDescription(
        name=client.group,
        state=state_of(found["groupState"]),
        generation=generation,
        assignor=assignor,
        coordinator=coordinator,
        members=tuple(sorted(map(read, found["members"]), key=lambda one: one.member_id)),
    )


def _classic(member: Values) -> MemberDescription:
    try:
        partitions = read_assignment(member["memberAssignment"])
    except CorruptBatchError:
        partitions = frozenset()
    return MemberDescription(
        member_id=member["memberId"],
        instance_id=member["groupInstanceId"],
        client_id=member["clientId"],
        host=member["clientHost"],
        topics=read_topics(member["memberMetadata"]),
        partitions=tuple(sorted(partitions)),
    )


def _newer(member: Values) -> MemberDescription:
    topics = member["assignment"]["topicPartitions"]
    partitions = [
        TopicPartition(topic["topicName"], number) for topic in topics for number in topic["partitions"]
    ]
    return MemberDescription(
        member_id=member["memberId"],
        instance_id=member["instanceId"],
        client_id=member["clientId"],
        host=member["clientHost"],
        topics=tuple(sorted(member["subscribedTopicNames"])),
        partitions=tuple(sorted(partitions)),
    )
