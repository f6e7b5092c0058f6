"""Descriptions of groups, as their coordinators tell them, in the words of `coordination.membership`.

Groups of the protocol of Kafka 4 are shown, too: who joins one of them from here is taken in by the coordinator as a
member of the classic protocol, where the cluster allows that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from topicfs.cluster.errors import UnsupportedVersionError
from topicfs.cluster.groups.requests import GroupClient
from topicfs.coordination.groups.runtime.assignment import read_assignment, read_topics
from topicfs.coordination.membership import GroupDescription, GroupListing, GroupState, MemberDescription
from topicfs.protocol.group_messages import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS
from topicfs.storage.errors import CorruptBatchError, UnknownGroupError
from topicfs.storage.model import TopicPartition
from topicfs.storage.wire import Values

SHARE = "share"
STATES = {
    **{state.value: state for state in GroupState},
    "Assigning": GroupState.PREPARING_REBALANCE,
    "Reconciling": GroupState.COMPLETING_REBALANCE,
}
"""The states by their names: those of Kafka 4's protocol have their nearest relatives here."""
CLASSIC = ("", "consumer")
"""Protocol types of groups whose members share partitions."""


def state_of(name: str) -> GroupState:
    """Return the state of that name; one that is not known is DEAD."""
    return STATES.get(name, GroupState.DEAD)


def read_listing(answer: Values) -> Iterator[GroupListing]:
    """Yield the groups that one broker coordinates, but for share groups and what is no consumer's."""
    for one in answer["groups"]:
        if one["protocolType"] in CLASSIC and one.get("groupType", "").lower() != SHARE:
            yield GroupListing(name=one["groupId"], state=state_of(one["groupState"]))


def describe(client: GroupClient, coordinator: TopicPartition) -> GroupDescription:
    """Ask for a group as it is now (blocking). Raises UnknownGroupError."""
    found = client.described(DESCRIBE_GROUPS, "groups")
    if found is not None and found["groupState"] != GroupState.DEAD.value:
        generation, assignor, read = -1, found["protocolData"], _classic
    else:
        found = None
        with suppress(UnsupportedVersionError):  # Kafka 3 has no groups of the newer kind.
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
    return MemberDescription(
        member_id=member["memberId"],
        instance_id=member["instanceId"],
        client_id=member["clientId"],
        host=member["clientHost"],
        topics=tuple(sorted(member["subscribedTopicNames"])),
        partitions=tuple(sorted(_partitions(member["assignment"]["topicPartitions"]))),
    )


def _partitions(topics: Iterable[Values]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic["topicName"], number) for topic in topics for number in topic["partitions"])
