"""The requests to coordinators of groups, in values: as a member of the classic protocol, and about positions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.coordinators import GROUP, Codes, Coordinators, by_topic
from topicfs.cluster.errors import (
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    MEMBER_ID_REQUIRED,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSTABLE_OFFSET_COMMIT,
    Passing,
    UnreachableError,
    error_of,
    kind_of,
)
from topicfs.cluster.protocol.connection import ANSWER_SECONDS, Connection
from topicfs.coordination.groups.requests import JoinedMember, Protocol
from topicfs.coordination.membership import CommittedPosition, Position
from topicfs.protocol.group_messages import (
    DELETE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from topicfs.protocol.notation import Api
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.errors import UnknownGroupError
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.wire import Values

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
"""In the name of no member."""
COMMIT_BY_ID = 10
"""The first version of OffsetCommit that names topics by their ids: that of Kafka 4.1."""
MOST_GROUPS = 200
"""Groups in one request."""


class Joined(NamedTuple):
    """The answer to a join."""

    code: int
    member_id: str
    generation: int
    protocol: str | None
    leader: str
    skips_assignment: bool
    """True if the leader is to leave the assignment as it is."""
    members: tuple[JoinedMember, ...]
    """All members, for the leader."""


class Synced(NamedTuple):
    """The answer to a sync."""

    code: int
    assignment: bytes


class Timeouts(NamedTuple):
    """The times that a coordinator waits for a member, in milliseconds."""

    session_ms: int
    """For a heartbeat."""
    rebalance_ms: int
    """For it to join again."""


class GroupClient:
    """The requests about one group. Calls block, and raise ClusterError, UnreachableError, GroupError, NotAuthorizedError."""

    def __init__(self, coordinators: Coordinators, group: str) -> None:
        self.group = group
        self._coordinators = coordinators

    # As a member.

    def join(
        self,
        member_id: str,
        protocol: Protocol,
        timeouts: Timeouts,
        lent: Callable[[Connection | None], None],
    ) -> Joined:
        """Join, or join again; it takes as long as others take to join. `lent` is told of the connection that waits.

        Codes that do not pass are part of the answer. Raises UnreachableError also while there is no coordinator.
        """
        request = {
            "groupId": self.group,
            "sessionTimeoutMs": timeouts.session_ms,
            "rebalanceTimeoutMs": timeouts.rebalance_ms,
            "memberId": member_id,
            "groupInstanceId": None,
            "protocolType": PROTOCOL_TYPE,
            "protocols": [{"name": protocol.name, "metadata": protocol.metadata}],
        }
        seconds = timeouts.rebalance_ms / 1000 + ANSWER_SECONDS
        coordinators = self._coordinators
        node = coordinators.node(GROUP, self.group, what=self._what)
        with coordinators.brokers.connection(node, coordinator=True) as connection:
            lent(connection)
            try:
                answer = connection.call(JOIN_GROUP, request, seconds=seconds)
            finally:
                lent(None)
        self._raise_passing(answer["errorCode"])
        return Joined(
            code=answer["errorCode"],
            member_id=answer["memberId"],
            generation=answer["generationId"],
            protocol=answer["protocolName"],
            leader=answer["leader"],
            skips_assignment=answer.get("skipAssignment", False),
            members=tuple(
                JoinedMember(one["memberId"], one["groupInstanceId"], one["metadata"])
                for one in answer["members"]
            ),
        )

    def sync(self, joined: Joined, assignments: Mapping[str, bytes], timeouts: Timeouts) -> Synced:
        """Ask for the assignment; the leader brings all of them."""
        request = {
            "groupId": self.group,
            "generationId": joined.generation,
            "memberId": joined.member_id,
            "groupInstanceId": None,
            "protocolType": PROTOCOL_TYPE,
            "protocolName": joined.protocol,
            "assignments": [{"memberId": member, "assignment": data} for member, data in assignments.items()],
        }
        answer = self._ask_once(SYNC_GROUP, request, timeouts.rebalance_ms / 1000 + ANSWER_SECONDS)
        return Synced(answer["errorCode"], answer["assignment"])

    def heartbeat(self, member_id: str, generation: int) -> int:
        """Say that a member lives; Kafka's code."""
        request = {
            "groupId": self.group,
            "generationId": generation,
            "memberId": member_id,
            "groupInstanceId": None,
        }
        return int(self._ask_once(HEARTBEAT, request, ANSWER_SECONDS)["errorCode"])

    def leave(self, member_id: str, reason: str) -> None:
        """End a membership; nothing happens where it has ended already."""
        leaving = {"memberId": member_id, "groupInstanceId": None, "reason": reason}
        request = {"groupId": self.group, "members": [leaving]}
        self._ask(LEAVE_GROUP, request, lambda answer: [answer["errorCode"]])

    def commit(
        self,
        positions: Mapping[TopicPartition, Position],
        ids: Mapping[str, str],
        member_id: str,
        generation: int,
    ) -> dict[TopicPartition, int]:
        """Commit positions in the topics that have these ids; return Kafka's error code of each partition.

        A topic of the same name that was made again keeps its positions: the code is UNKNOWN_TOPIC_ID.
        """
        known = {one.topic: ids[one.topic] for one in positions if one.topic in ids}
        current = known.keys() - self._made_again(known)
        codes = {one: UNKNOWN_TOPIC_ID for one in positions if one.topic not in current}
        topics = [
            {
                "name": topic,
                "topicId": decode_id(known[topic]),
                "partitions": [
                    {
                        "partitionIndex": number,
                        "committedOffset": positions[TopicPartition(topic, number)].offset,
                        "committedLeaderEpoch": positions[TopicPartition(topic, number)].leader_epoch,
                        "committedMetadata": positions[TopicPartition(topic, number)].metadata,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in by_topic(positions.keys() - codes.keys()).items()
        ]
        if not topics:
            return codes
        request = {
            "groupId": self.group,
            "generationIdOrMemberEpoch": generation,
            "memberId": member_id,
            "groupInstanceId": None,
            "topics": topics,
        }
        answer = self._ask(OFFSET_COMMIT, request, _coordinators_codes)
        names = {decode_id(one): name for name, one in known.items()}
        return codes | {
            TopicPartition(topic.get("name") or names.get(topic["topicId"], ""), one["partitionIndex"]): one[
                "errorCode"
            ]
            for topic in answer["topics"]
            for one in topic["partitions"]
        }

    def _made_again(self, topics: Mapping[str, str]) -> set[str]:
        """Return the topics (ids by name) that have other ids now, if the coordinator takes names alone (blocking).

        They are asked for right before a commit. From Kafka 4.1 on the coordinator itself compares the ids.
        """
        node = self._coordinators.node(GROUP, self.group, what=self._what)
        brokers = self._coordinators.brokers
        with brokers.connection(node, coordinator=True) as connection:
            if connection.version(OFFSET_COMMIT) >= COMMIT_BY_ID:
                return set()
        now = brokers.topic_ids(node, topics, seconds=ANSWER_SECONDS, coordinator=True)
        return {name for name, one in topics.items() if now.get(name, one) != one}

    # About positions, and the group as a whole.

    def positions(self) -> dict[TopicPartition, CommittedPosition]:
        """Return all positions."""
        return _committed(self._fetch(None, stable=False))

    def fetch_stable(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, CommittedPosition], frozenset[TopicPartition]]:
        """Return the positions in those of the partitions that have one, and which ones a transaction may still move."""
        answers = self._fetch(partitions, stable=True)
        unstable = frozenset(
            one for one, answer in answers.items() if answer["errorCode"] == UNSTABLE_OFFSET_COMMIT
        )
        return _committed(answers), unstable

    def _fetch(
        self, partitions: Collection[TopicPartition] | None, *, stable: bool
    ) -> dict[TopicPartition, Values]:
        topics = (
            None
            if partitions is None
            else [
                {"name": topic, "partitionIndexes": numbers}
                for topic, numbers in by_topic(partitions).items()
            ]
        )
        request = {
            "groupId": self.group,
            "topics": topics,
            "groups": [{"groupId": self.group, "memberId": None, "memberEpoch": -1, "topics": topics}],
            "requireStable": stable,
        }
        answer = self._ask(OFFSET_FETCH, request, _fetched_codes)
        (found,) = answer.get("groups") or [answer]
        return _by_partition(found)

    def delete_positions(self, partitions: Collection[TopicPartition]) -> None:
        """Delete positions. Raises UnknownGroupError, GroupNotEmptyError."""
        topics = [
            {"name": topic, "partitions": [{"partitionIndex": number} for number in numbers]}
            for topic, numbers in by_topic(partitions).items()
        ]
        self._ask(OFFSET_DELETE, {"groupId": self.group, "topics": topics}, _deleted_codes)

    def delete(self) -> None:
        """Delete the group. Raises UnknownGroupError, GroupNotEmptyError."""
        self._ask(
            DELETE_GROUPS,
            {"groupsNames": [self.group]},
            lambda answer: (one["errorCode"] for one in answer["results"]),
        )

    def described(self, api: Api, names: str) -> Values | None:
        """Return what `api` tells about the group, asked for under the name `names`; None: not of its kind, or not there."""
        request = {names: [self.group], "includeAuthorizedOperations": False}
        try:
            answer = self._ask(api, request, lambda found: (one["errorCode"] for one in found["groups"]))
        except UnknownGroupError:
            return None
        found: Values = answer["groups"][0]
        return found

    @property
    def _what(self) -> str:
        return f"group {self.group}"

    def _ask(self, api: Api, request: Values, codes: Codes) -> Values:
        return self._coordinators.ask(GROUP, self.group, api, request, codes=codes, what=self._what)

    def _ask_once(self, api: Api, request: Values, seconds: float) -> Values:
        """Ask as a member. Codes that do not pass are part of the answer."""
        node = self._coordinators.node(GROUP, self.group, what=self._what)
        answer = self._coordinators.brokers.ask(node, api, request, seconds=seconds, coordinator=True)
        self._raise_passing(answer["errorCode"])
        return answer

    def forget_coordinator(self) -> None:
        """Look for the coordinator again the next time."""
        self._coordinators.forget(GROUP, self.group)

    def _raise_passing(self, code: int) -> None:
        """Raise UnreachableError for a code that says that another broker coordinates the group, or this one later."""
        if kind_of(code).passing is not Passing.NO:
            raise UnreachableError(str(error_of(code, self._what)))


def is_member_id_required(joined: Joined) -> bool:
    """Return whether a member got its id, and has to join with that."""
    return joined.code == MEMBER_ID_REQUIRED


def _coordinators_codes(answer: Values) -> Iterator[int]:
    """Yield the error codes that another coordinator, or a later attempt, may not give. A missing topic is not among them."""
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            code = one["errorCode"]
            absent = code in {UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID}
            if not absent and kind_of(code).passing is not Passing.NO:
                yield code


def _fetched_codes(answer: Values) -> Iterator[int]:
    for group in answer.get("groups") or [answer]:
        if group["errorCode"] != GROUP_ID_NOT_FOUND:
            yield group["errorCode"]
        for topic in group["topics"]:
            for one in topic["partitions"]:
                if one["errorCode"] not in {UNKNOWN_TOPIC_OR_PARTITION, UNSTABLE_OFFSET_COMMIT}:
                    yield one["errorCode"]


def _by_partition(group: Values) -> dict[TopicPartition, Values]:
    """Return what an answer tells of a group's partitions."""
    return {
        TopicPartition(topic["name"], one["partitionIndex"]): one
        for topic in group["topics"]
        for one in topic["partitions"]
    }


def _committed(answers: Mapping[TopicPartition, Values]) -> dict[TopicPartition, CommittedPosition]:
    """Return the positions in those partitions that have one."""
    return {
        place: CommittedPosition(
            Offset(one["committedOffset"]), one["committedLeaderEpoch"], one["metadata"] or ""
        )
        for place, one in answers.items()
        if one["errorCode"] == NONE and one["committedOffset"] >= 0
    }


def _deleted_codes(answer: Values) -> Iterator[int]:
    yield answer["errorCode"]
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            if one["errorCode"] != UNKNOWN_TOPIC_OR_PARTITION:
                yield one["errorCode"]


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
    positions = {
        one["groupId"]: _committed(_by_partition(one)) for one in answers if one["errorCode"] == NONE
    }
    return TopicPositions(
        {group: own for group, own in positions.items() if own},
        [one["groupId"] for one in answers if one["errorCode"] not in answered],
    )
