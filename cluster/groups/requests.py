"""The requests to group coordinators: membership in the classic protocol, and positions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from topicfs.cluster import errors
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.coordinators import GROUP, Codes, Coordinators, by_topic
from topicfs.cluster.protocol.connection import ANSWER_TIMEOUT_SECONDS, Connection
from topicfs.coordination.groups.requests import Code, JoinAnswer, JoinedMember, Protocol
from topicfs.coordination.membership import CommittedPosition, Position
from topicfs.protocol import group_messages
from topicfs.protocol.notation import Api
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.errors import UnknownGroupError
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.wire import Values

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
"""The generation in a commit that does not come from a member."""
COMMIT_BY_ID = 10
"""The first version of OffsetCommit with topic ids (Kafka 4.1)."""
SESSION_MS = 10_000
"""Session timeout: other members get the partitions of a killed process after this time without heartbeats."""
GIVEN_UP = frozenset({errors.UNKNOWN_MEMBER_ID, errors.ILLEGAL_GENERATION, errors.FENCED_INSTANCE_ID})
"""Error codes that mean that the coordinator has removed the member."""
MAX_GROUPS_PER_REQUEST = 200
"""Maximum number of groups that one request names."""


class GivenUpError(Exception):
    """Raised if the coordinator has removed the member."""


class RebalanceError(Exception):
    """Raised during a rebalance: the member has to rejoin."""


class GroupClient:
    """The requests about one group. Blocks; raises ClusterError, UnreachableError, GroupError, NotAuthorizedError."""

    def __init__(self, coordinators: Coordinators, group: str) -> None:
        self.group = group
        self._coordinators = coordinators

    # Membership.

    def join(
        self, member_id: str, protocol: Protocol, rebalance_ms: int, lent: Callable[[Connection | None], None]
    ) -> JoinAnswer:
        """Join or rejoin; blocks until the other members have joined.

        `lent` is called with the waiting connection, and then with None. If the answer's code is MEMBER_ID_REQUIRED,
        the member must rejoin with the id in the answer. For other error codes, raises the errors of `check_member`.
        Also raises UnreachableError if the group has no coordinator.
        """
        request = {
            "groupId": self.group,
            "sessionTimeoutMs": SESSION_MS,
            "rebalanceTimeoutMs": rebalance_ms,
            "memberId": member_id,
            "groupInstanceId": None,
            "protocolType": PROTOCOL_TYPE,
            "protocols": [{"name": protocol.name, "metadata": protocol.metadata}],
        }
        seconds = rebalance_ms / 1000 + ANSWER_TIMEOUT_SECONDS
        coordinators = self._coordinators
        node = coordinators.node(GROUP, self.group, what=self._what)
        with coordinators.brokers.connection(node, coordinator=True) as connection:
            lent(connection)
            try:
                answer = connection.call(group_messages.JOIN_GROUP, request, seconds=seconds)
            finally:
                lent(None)
        if answer["errorCode"] == Code.MEMBER_ID_REQUIRED:
            return JoinAnswer(code=Code.MEMBER_ID_REQUIRED, member_id=answer["memberId"])
        check_member(answer["errorCode"], self.group)
        return JoinAnswer(
            member_id=answer["memberId"],
            generation=answer["generationId"],
            protocol=answer["protocolName"],
            leader=answer["leader"],
            members=tuple(
                JoinedMember(one["memberId"], one["groupInstanceId"], one["metadata"])
                for one in answer["members"]
            ),
        )

    def sync(self, joined: JoinAnswer, assignments: Mapping[str, bytes], rebalance_ms: int) -> bytes:
        """Return the member's assignment; the leader sends all assignments. Raises the errors of `check_member`."""
        request = {
            "groupId": self.group,
            "generationId": joined.generation,
            "memberId": joined.member_id,
            "groupInstanceId": None,
            "protocolType": PROTOCOL_TYPE,
            "protocolName": joined.protocol,
            "assignments": [{"memberId": member, "assignment": data} for member, data in assignments.items()],
        }
        found: bytes = self._ask_as_member(
            group_messages.SYNC_GROUP, request, rebalance_ms / 1000 + ANSWER_TIMEOUT_SECONDS
        )["assignment"]
        return found

    def heartbeat(self, member_id: str, generation: int) -> None:
        """Send a heartbeat. Raises the errors of `check_member`."""
        request = {
            "groupId": self.group,
            "generationId": generation,
            "memberId": member_id,
            "groupInstanceId": None,
        }
        self._ask_as_member(group_messages.HEARTBEAT, request, ANSWER_TIMEOUT_SECONDS)

    def leave(self, member_id: str, reason: str) -> None:
        """Leave the group. Do nothing if the membership has ended."""
        leaving = {"memberId": member_id, "groupInstanceId": None, "reason": reason}
        request = {"groupId": self.group, "members": [leaving]}
        self._ask(group_messages.LEAVE_GROUP, request, lambda answer: [answer["errorCode"]])

    def commit(
        self,
        positions: Mapping[TopicPartition, Position],
        ids: Mapping[str, str],
        member_id: str,
        generation: int,
    ) -> dict[TopicPartition, int]:
        """Commit positions; return Kafka's error code for each partition.

        `ids` maps topic names to ids. If a topic now has another id, its partitions get the code UNKNOWN_TOPIC_ID.
        """
        known = {one.topic: ids[one.topic] for one in positions if one.topic in ids}
        current = known.keys() - self._made_again(known)
        codes = {one: errors.UNKNOWN_TOPIC_ID for one in positions if one.topic not in current}
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
        answer = self._ask(group_messages.OFFSET_COMMIT, request, _coordinators_codes)
        names = {decode_id(one): name for name, one in known.items()}
        return codes | {
            TopicPartition(topic.get("name") or names.get(topic["topicId"], ""), one["partitionIndex"]): one[
                "errorCode"
            ]
            for topic in answer["topics"]
            for one in topic["partitions"]
        }

    def _made_again(self, topics: Mapping[str, str]) -> set[str]:
        """Return the topics that were created again (blocking): their id in the cluster differs from `topics`.

        Called right before a commit. Coordinators since Kafka 4.1 compare the ids themselves, so the result is then
        empty.
        """
        node = self._coordinators.node(GROUP, self.group, what=self._what)
        brokers = self._coordinators.brokers
        with brokers.connection(node, coordinator=True) as connection:
            if connection.version(group_messages.OFFSET_COMMIT) >= COMMIT_BY_ID:
                return set()
        now = brokers.topic_ids(node, topics, seconds=ANSWER_TIMEOUT_SECONDS, coordinator=True)
        return {name for name, one in topics.items() if now.get(name, one) != one}

    # Positions, and the group as a whole.

    def positions(self) -> dict[TopicPartition, CommittedPosition]:
        return _committed(self._fetch(None, stable=False))

    def fetch_stable(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, CommittedPosition], frozenset[TopicPartition]]:
        """Return the positions in `partitions`, and the partitions whose position an open transaction may change."""
        answers = self._fetch(partitions, stable=True)
        unstable = frozenset(
            one for one, answer in answers.items() if answer["errorCode"] == errors.UNSTABLE_OFFSET_COMMIT
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
        request = _positions_request([self.group], topics, stable=stable)
        answer = self._ask(group_messages.OFFSET_FETCH, request, _fetched_codes)
        (found,) = answer.get("groups") or [answer]
        return _by_partition(found)

    def delete_positions(self, partitions: Collection[TopicPartition]) -> None:
        """Delete positions. Raises UnknownGroupError, GroupNotEmptyError."""
        topics = [
            {"name": topic, "partitions": [{"partitionIndex": number} for number in numbers]}
            for topic, numbers in by_topic(partitions).items()
        ]
        self._ask(group_messages.OFFSET_DELETE, {"groupId": self.group, "topics": topics}, _deleted_codes)

    def delete(self) -> None:
        """Delete the group. Raises UnknownGroupError, GroupNotEmptyError."""
        self._ask(
            group_messages.DELETE_GROUPS,
            {"groupsNames": [self.group]},
            lambda answer: (one["errorCode"] for one in answer["results"]),
        )

    def described(self, api: Api, names: str) -> Values | None:
        """Call `api` for the group, and return the group's description; None if the group does not exist.

        `names` is the request's field for the names of groups.
        """
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

    def _ask_as_member(self, api: Api, request: Values, seconds: float) -> Values:
        node = self._coordinators.node(GROUP, self.group, what=self._what)
        answer = self._coordinators.brokers.ask(node, api, request, seconds=seconds, coordinator=True)
        check_member(answer["errorCode"], self.group)
        return answer

    def forget_coordinator(self) -> None:
        """Make the next request look up the coordinator again."""
        self._coordinators.forget(GROUP, self.group)


def check_member(code: int, group: str) -> None:
    """Raise the exception for an error code in an answer to a member.

    Raises GivenUpError and RebalanceError. Raises UnreachableError if a retry, perhaps at another coordinator, may
    succeed. Otherwise raises the exception of the code.
    """
    if code in GIVEN_UP:
        raise GivenUpError(f"the coordinator has removed the member: {errors.kind_of(code).name}")
    if code == errors.REBALANCE_IN_PROGRESS:
        raise RebalanceError
    if code != errors.NONE:
        error = errors.error_of(code, f"group {group}")
        raise (
            error
            if errors.kind_of(code).retry is errors.RetryCondition.NO
            else errors.UnreachableError(str(error))
        )


def _coordinators_codes(answer: Values) -> Iterator[int]:
    """Yield the error codes after which a retry, perhaps at another coordinator, may succeed.

    The error code for a missing topic is left out.
    """
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            code = one["errorCode"]
            absent = code in {errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNKNOWN_TOPIC_ID}
            if not absent and errors.kind_of(code).retry is not errors.RetryCondition.NO:
                yield code


def _positions_request(groups: Sequence[str], topics: list[Values] | None, *, stable: bool) -> Values:
    return {
        "groupId": groups[0],
        "topics": topics,
        "groups": [{"groupId": one, "memberId": None, "memberEpoch": -1, "topics": topics} for one in groups],
        "requireStable": stable,
    }


def _fetched_codes(answer: Values) -> Iterator[int]:
    for group in answer.get("groups") or [answer]:
        if group["errorCode"] != errors.GROUP_ID_NOT_FOUND:
            yield group["errorCode"]
        for topic in group["topics"]:
            for one in topic["partitions"]:
                if one["errorCode"] not in {errors.UNKNOWN_TOPIC_OR_PARTITION, errors.UNSTABLE_OFFSET_COMMIT}:
                    yield one["errorCode"]


def _by_partition(group: Values) -> dict[TopicPartition, Values]:
    """Return the parts of an answer about a group, by partition."""
    return {
        TopicPartition(topic["name"], one["partitionIndex"]): one
        for topic in group["topics"]
        for one in topic["partitions"]
    }


def _committed(answers: Mapping[TopicPartition, Values]) -> dict[TopicPartition, CommittedPosition]:
    """Return the committed positions; partitions that have none are left out."""
    return {
        place: CommittedPosition(
            Offset(one["committedOffset"]), one["committedLeaderEpoch"], one["metadata"] or ""
        )
        for place, one in answers.items()
        if one["errorCode"] == errors.NONE and one["committedOffset"] >= 0
    }


def _deleted_codes(answer: Values) -> Iterator[int]:
    yield answer["errorCode"]
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            if one["errorCode"] != errors.UNKNOWN_TOPIC_OR_PARTITION:
                yield one["errorCode"]


class TopicPositions(NamedTuple):
    """The positions that one coordinator returned."""

    found: Mapping[str, Mapping[TopicPartition, CommittedPosition]]
    """The positions of the groups that have a position in the topic."""
    unanswered: Sequence[str]
    """The groups whose positions must be requested one by one: either their coordinator is now another broker, or
    this broker is too old for a request about several groups.
    """


def fetch_positions(
    brokers: Brokers, node: int, groups: Sequence[str], topic: str, numbers: Collection[int]
) -> Iterator[TopicPositions]:
    """Ask a broker for positions in one topic, and yield the answers (blocking). Raises the errors of `Brokers.ask`.

    `groups` names the groups that the broker coordinates, `numbers` the topic's partitions.
    """
    topics = [{"name": topic, "partitionIndexes": sorted(numbers)}]
    for first in range(0, len(groups), MAX_GROUPS_PER_REQUEST):
        some = groups[first : first + MAX_GROUPS_PER_REQUEST]
        answer = brokers.ask(
            node, group_messages.OFFSET_FETCH, _positions_request(some, topics, stable=False)
        )
        # A broker before Kafka 3.0 accepts only one group in each request.
        yield _read(answer["groups"]) if "groups" in answer else TopicPositions({}, some)


def _read(answers: Sequence[Values]) -> TopicPositions:
    answered = {errors.NONE, errors.GROUP_ID_NOT_FOUND, errors.GROUP_AUTHORIZATION_FAILED}
    positions = {
        one["groupId"]: _committed(_by_partition(one)) for one in answers if one["errorCode"] == errors.NONE
    }
    return TopicPositions(
        {group: own for group, own in positions.items() if own},
        [one["groupId"] for one in answers if one["errorCode"] not in answered],
    )
