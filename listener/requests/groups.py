"""Requests about groups: finding their coordinator, membership, positions, descriptions, deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar, cast
from uuid import UUID

from topicfs.coordination.groups.group import Group, GroupMember
from topicfs.coordination.groups.offsets import NO_TOPIC_ID, StoredOffset
from topicfs.coordination.groups.requests import (
    Code,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    OffsetCommitRequest,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from topicfs.coordination.groups.runtime.client_requests import ClientRequests, Fetched
from topicfs.coordination.groups.runtime.service import EmbeddedGroups
from topicfs.coordination.membership import GroupState, Position
from topicfs.listener.broker import Broker, Request, names_in
from topicfs.listener.errors import RefusedError, answer_or_error
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.checkpoints.identifiers import decode_id, encode_id
from topicfs.storage.errors import ReadOnlyError, UnknownTopicError
from topicfs.storage.model import NO_LEADER_EPOCH, TopicPartition
from topicfs.storage.wire import Values

T = TypeVar("T")

COORDINATED = frozenset({0, 1})
"""The key types of groups and of transactional ids in FindCoordinator."""
CLASSIC = "Classic"
NO_OPERATIONS = -(2**31)
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
"""All operations on a group (read, delete, describe, settings); Kafka's numbers count the bits."""
SINCE_NO_PROTOCOL = 7
"""Since this version of JoinGroup, the answer to a failed request has a null protocol name. In earlier versions, the
name is empty.
"""
SINCE_TOPIC_IDS = 10
"""From this version on, OffsetFetch identifies topics by their ids."""
SINCE_UNKNOWN_IS_AN_ERROR = 6
"""Since this version of DescribeGroups, a missing group is answered with an error. In earlier versions, it is
answered with the state Dead.
"""
MAX_WAIT_SECONDS = 5.0
"""Seconds after which a thread that waits for a rebalance checks again whether its client is still connected."""


def find_coordinator(broker: Broker, request: Request) -> Values:
    """Answer FindCoordinator: this broker coordinates all consumer groups and all transactional ids."""
    values = request.values
    host, port = broker.advertised

    def coordinator(key: str) -> Values:
        def find() -> Values:
            if values.get("keyType", 0) not in COORDINATED:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "share groups have no coordinator here")
            return {"nodeId": broker.node_id, "host": host, "port": port}

        return answer_or_error({"key": key, "nodeId": -1, "host": "", "port": -1}, find)

    if "coordinatorKeys" in values:
        return {"coordinators": [coordinator(key) for key in values["coordinatorKeys"]]}
    alone = coordinator(values["key"])
    del alone["key"]
    return alone


def groups_of(broker: Broker) -> EmbeddedGroups:
    return cast(EmbeddedGroups, broker.engine.groups)


def _requests(broker: Broker) -> ClientRequests:
    return groups_of(broker).client_requests


def _answer(broker: Broker, request: Request, ask: Callable[[Callable[[T], None]], None]) -> T:
    """Call `ask`, which hands a callback to the coordinator; wait until the callback gets the answer, and return it.

    Raises ConnectionAbortedError if the listener ends first, ConnectionResetError if the client disconnects.
    """
    answers: list[T] = []
    waiting = request.client.waiting

    def reply(answer: T) -> None:
        answers.append(answer)
        waiting.wake()

    waiting.arm()
    ask(reply)
    if not answers:
        with broker.rest():
            while not answers:
                if not waiting.wait(MAX_WAIT_SECONDS):
                    raise ConnectionAbortedError("the listener is closing")
                if not answers and not waiting.is_connected():
                    raise ConnectionResetError("the client disconnected while it waited for its group")
    return answers[0]


# Members.


def join_group(broker: Broker, request: Request) -> Values:
    """Answer JoinGroup once the group's join phase ends."""
    values = request.values
    session_ms: int = values["sessionTimeoutMs"]
    asked = JoinRequest(
        group=values["groupId"],
        member_id=values["memberId"],
        instance_id=values.get("groupInstanceId"),
        client_id=request.client_id,
        client_host=f"/{request.client.host}",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=values.get("rebalanceTimeoutMs", session_ms),
        protocol_type=values["protocolType"],
        protocols=tuple(Protocol(one["name"], bytes(one["metadata"])) for one in values["protocols"]),
        version=request.version,
        reason=values.get("reason") or "",
    )
    request.forget()
    answer: JoinAnswer = _answer(broker, request, partial(_requests(broker).join, asked))
    return {
        "errorCode": answer.code,
        "generationId": answer.generation,
        "protocolType": answer.protocol_type,
        "protocolName": answer.protocol if request.version >= SINCE_NO_PROTOCOL else answer.protocol or "",
        "leader": answer.leader,
        "skipAssignment": answer.skip_assignment,
        "memberId": answer.member_id,
        "members": [
            {"memberId": one.member_id, "groupInstanceId": one.instance_id, "metadata": one.metadata}
            for one in answer.members
        ],
    }


def sync_group(broker: Broker, request: Request) -> Values:
    """Answer SyncGroup once the leader has sent the assignments."""
    values = request.values
    asked = SyncRequest(
        group=values["groupId"],
        member_id=values["memberId"],
        generation=values["generationId"],
        instance_id=values.get("groupInstanceId"),
        protocol_type=values.get("protocolType"),
        protocol=values.get("protocolName"),
        assignments={one["memberId"]: bytes(one["assignment"]) for one in values["assignments"]},
    )
    request.forget()
    answer: SyncAnswer = _answer(broker, request, partial(_requests(broker).sync, asked))
    return {
        "errorCode": answer.code,
        "protocolType": answer.protocol_type,
        "protocolName": answer.protocol,
        "assignment": answer.assignment,
    }


def heartbeat(broker: Broker, request: Request) -> Values:
    """Answer Heartbeat."""
    values = request.values
    member = (values["groupId"], values["memberId"], values["generationId"], values.get("groupInstanceId"))
    code: Code = _answer(broker, request, partial(_requests(broker).heartbeat, *member))
    return {"errorCode": code}


def leave_group(broker: Broker, request: Request) -> Values:
    """Answer LeaveGroup; from version 3 on, several members may leave together."""
    values = request.values
    members = values.get("members", [{"memberId": values.get("memberId"), "groupInstanceId": None}])
    leaving = [
        LeavingMember(one["memberId"], one["groupInstanceId"], one.get("reason") or "") for one in members
    ]
    codes: list[Code] = _answer(broker, request, partial(_requests(broker).leave, values["groupId"], leaving))
    if "members" not in values:
        return {"errorCode": codes[0]}
    shown = [
        {"memberId": one.member_id, "groupInstanceId": one.instance_id, "errorCode": code}
        for one, code in zip(leaving, codes, strict=True)
    ]
    return {"errorCode": ErrorCode.NONE, "members": shown}


# Positions.


def offset_commit(broker: Broker, request: Request) -> Values:
    """Answer OffsetCommit; from version 10 on, topics are identified by their ids."""
    values = request.values
    named = [(_name_of(broker, one), one) for one in values["topics"]]
    retention = values.get("retentionTimeMs", -1)
    asked = OffsetCommitRequest(
        group=values["groupId"],
        positions={
            TopicPartition(name, each["partitionIndex"]): Position(
                each["committedOffset"],
                each["committedMetadata"] or "",
                each.get("committedLeaderEpoch", NO_LEADER_EPOCH),
                topic_id=encode_id(one["topicId"]) if "topicId" in one else "",
            )
            for name, one in named
            if name is not None
            for each in one["partitions"]
        },
        member_id=values["memberId"],
        instance_id=values.get("groupInstanceId"),
        generation=values["generationIdOrMemberEpoch"],
        retention_ms=None if retention < 0 else retention,
        version=request.version,
    )
    codes: Code | Mapping[TopicPartition, Code] = _answer(
        broker, request, partial(_requests(broker).commit, asked)
    )

    def code_of(name: str | None, number: int) -> int:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        place = TopicPartition(name, number)
        if isinstance(codes, Code):
            return codes if broker.has(place) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return codes[place]

    return {"topics": with_codes(named, code_of)}


def _name_of(broker: Broker, one: Values) -> str | None:
    """Return the name of the topic that a part of a request identifies; None for an unknown id."""
    if "name" in one:
        return cast(str, one["name"])
    try:
        return broker.topic_of(one).name
    except (RefusedError, UnknownTopicError):
        return None


def with_codes(
    named: Sequence[tuple[str | None, Values]], code_of: Callable[[str | None, int], int]
) -> list[Values]:
    """Return the topics of a request with the code from `code_of` for each partition."""
    return [
        {
            **names_in(one),
            "partitions": [
                {"partitionIndex": each["partitionIndex"], "errorCode": code_of(name, each["partitionIndex"])}
                for each in one["partitions"]
            ],
        }
        for name, one in named
    ]


def offset_fetch(broker: Broker, request: Request) -> Values:
    """Answer OffsetFetch: the positions of a group or, from version 8 on, of several groups; from version 10 on, by topic ids."""
    values = request.values
    stable = values.get("requireStable", False)
    if "groups" in values:
        groups = [
            {"groupId": one["groupId"], **_positions(broker, request, one, require_stable=stable)}
            for one in values["groups"]
        ]
        return {"groups": groups}
    return _positions(broker, request, values, require_stable=stable)


def _positions(broker: Broker, request: Request, one: Values, *, require_stable: bool) -> Values:
    by_id = request.version >= SINCE_TOPIC_IDS
    asked = None if one["topics"] is None else [(_name_of(broker, each), each) for each in one["topics"]]
    places = None
    if asked is not None:
        named = ((name, each) for name, each in asked if name is not None)
        places = [TopicPartition(name, number) for name, each in named for number in each["partitionIndexes"]]
    found: Fetched | Code = _answer(
        broker,
        request,
        partial(_requests(broker).fetch, one["groupId"], places, require_stable=require_stable),
    )
    code, positions = (found, {}) if isinstance(found, Code) else (Code.NONE, found)
    gone: set[UUID] = set()
    if asked is None:
        asked = _topics_with_positions(broker, positions, by_id=by_id)
    elif by_id:
        # The name of a topic never changes. If a topic with this ID exists, the position under its name is its own.
        gone = {each["topicId"] for _, each in asked} - broker.topics_by_id().keys()

    def position(name: str | None, each: Values, number: int) -> Values:
        if name is None or each.get("topicId") in gone:
            return _position(number, ErrorCode.UNKNOWN_TOPIC_ID, code)
        return _position(number, positions.get(TopicPartition(name, number)), code)

    topics = [
        {
            **names_in(each),
            "partitions": [position(name, each, number) for number in each["partitionIndexes"]],
        }
        for name, each in asked
    ]
    return {"topics": topics, "errorCode": code}


def _topics_with_positions(
    broker: Broker, positions: Fetched, *, by_id: bool
) -> list[tuple[str | None, Values]]:
    """Return the topics of `positions` in the form of a request. With `by_id`, leave out topics whose id is unknown."""
    topics: dict[tuple[str, UUID], list[int]] = {}
    present = broker.engine.topics()
    for place, stored in positions.items():
        unique = stored.position.topic_id if isinstance(stored, StoredOffset) else NO_TOPIC_ID
        if unique == NO_TOPIC_ID and place.topic in present:
            unique = decode_id(present[place.topic].topic_id)
        topics.setdefault((place.topic, unique), []).append(place.partition)
    return [
        (name, {**({"topicId": unique} if by_id else {"name": name}), "partitionIndexes": numbers})
        for (name, unique), numbers in topics.items()
        if not by_id or unique != NO_TOPIC_ID
    ]


def _position(number: int, stored: StoredOffset | int | None, code: Code) -> Values:
    if not isinstance(stored, StoredOffset):
        nothing = {"committedOffset": -1, "committedLeaderEpoch": NO_LEADER_EPOCH, "metadata": ""}
        return {"partitionIndex": number, "errorCode": code if stored is None else stored, **nothing}
    position = stored.position
    return {
        "partitionIndex": number,
        "committedOffset": position.offset,
        "committedLeaderEpoch": position.leader_epoch,
        "metadata": position.metadata,
        "errorCode": Code.NONE,
    }


def offset_delete(broker: Broker, request: Request) -> Values:
    """Answer OffsetDelete."""
    named = [(cast(str, one["name"]), one) for one in request.values["topics"]]
    places = [
        TopicPartition(name, each["partitionIndex"]) for name, one in named for each in one["partitions"]
    ]
    known = [place for place in places if broker.has(place)]
    codes: Code | Mapping[TopicPartition, Code] = _answer(
        broker,
        request,
        partial(_requests(broker).delete_positions, request.values["groupId"], known),
    )
    if isinstance(codes, Code):
        return {"errorCode": codes, "topics": []}

    def code_of(name: str | None, number: int) -> int:
        return codes.get(TopicPartition(name or "", number), Code.UNKNOWN_TOPIC_OR_PARTITION)

    return {"errorCode": Code.NONE, "topics": with_codes(named, code_of)}


# Groups.


def list_groups(broker: Broker, request: Request) -> Values:
    """Answer ListGroups. Queues are not listed, because they are not classic groups."""
    states = {state.casefold() for state in request.values.get("statesFilter", [])}
    types = {kind.casefold() for kind in request.values.get("typesFilter", [])}
    found: list[Values] | Code = _answer(broker, request, partial(_requests(broker).list, _listed))
    code, groups = (found, []) if isinstance(found, Code) else (Code.NONE, found)
    shown = [
        one
        for one in groups
        if (not states or one["groupState"].casefold() in states)
        and (not types or CLASSIC.casefold() in types)
    ]
    return {"errorCode": code, "groups": shown}


def _listed(group: Group) -> Values:
    return {
        "groupId": group.name,
        "protocolType": group.protocol_type or "",
        "groupState": group.state.value,
        "groupType": CLASSIC,
    }


def describe_groups(broker: Broker, request: Request) -> Values:
    """Answer DescribeGroups."""
    values = request.values
    operations = GROUP_OPERATIONS if values.get("includeAuthorizedOperations", False) else NO_OPERATIONS

    def one(name: str) -> Values:
        found: Values | Code = _answer(broker, request, partial(_requests(broker).describe, name, _described))
        if not isinstance(found, Code):
            return {**found, "authorizedOperations": operations}
        is_dead = found is Code.GROUP_ID_NOT_FOUND and request.version < SINCE_UNKNOWN_IS_AN_ERROR
        return {
            "errorCode": Code.NONE if is_dead else found,
            "errorMessage": f"Group {name} not found." if found is Code.GROUP_ID_NOT_FOUND else None,
            "groupId": name,
            "groupState": GroupState.DEAD.value,
            "protocolType": "",
            "protocolData": "",
            "members": [],
            "authorizedOperations": operations if is_dead else NO_OPERATIONS,
        }

    return {"groups": [one(name) for name in values["groups"]]}


def _described(group: Group) -> Values:
    is_stable = group.state is GroupState.STABLE
    return {
        "errorCode": Code.NONE,
        "errorMessage": None,
        "groupId": group.name,
        "groupState": group.state.value,
        "protocolType": group.protocol_type or "",
        "protocolData": group.protocol or "" if is_stable else "",
        "members": [_member(one, group.protocol if is_stable else None) for one in group.members.values()],
    }


def _member(member: GroupMember, protocol: str | None) -> Values:
    return {
        "memberId": member.member_id,
        "groupInstanceId": member.instance_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "memberMetadata": b"" if protocol is None else member.metadata(protocol),
        "memberAssignment": b"" if protocol is None else member.assignment,
    }


def delete_groups(broker: Broker, request: Request) -> Values:
    """Answer DeleteGroups."""

    def delete(name: str) -> None:
        try:
            with broker.rest():
                broker.engine.groups.delete(name)
        except ReadOnlyError as error:
            raise RefusedError(ErrorCode.GROUP_AUTHORIZATION_FAILED, str(error)) from error

    return {
        "results": [
            answer_or_error({"groupId": name}, partial(delete, name))
            for name in request.values["groupsNames"]
        ],
    }
