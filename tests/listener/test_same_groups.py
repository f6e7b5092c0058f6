"""A real broker and a served directory give the same answers to the same requests about groups."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.doubles.waiting import wait_until
from tests.listener.serving import RawClient, Served
from tests.listener.test_same_answers import both, create, differences, same, shown  # noqa: F401 (`both` is a fixture)
from topicfs.protocol.group_messages import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from topicfs.protocol.notation import Api

pytestmark = pytest.mark.java

NO_MEMBER = {"memberId": "nobody", "groupInstanceId": None, "generationId": 3}
LOADING = {14, 15, 16}
"""Codes with which a broker asks clients to retry while it creates and loads __consumer_offsets."""


def version_of(api: Api, values: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the fields of `values` that version `version` of the request has."""
    return {one.name: values[one.name] for one in api.request.fields if one.in_version(version)}


@pytest.fixture
def clients(both: tuple[RawClient, RawClient]) -> tuple[RawClient, RawClient]:  # noqa: F811
    """Clients of both servers; the fixture waits until the broker coordinates groups."""

    def serves() -> bool:
        asked = {"keyType": 0, "coordinatorKeys": ["any"]}
        (found,) = both[0].ask(FIND_COORDINATOR, asked)["coordinators"]
        if found["errorCode"]:
            return False
        heard = both[0].ask(HEARTBEAT, {"groupId": "any", **NO_MEMBER})
        return heard["errorCode"] not in LOADING

    wait_until(serves, "the broker coordinates groups")
    return both


@pytest.mark.parametrize("version", FIND_COORDINATOR.request.versions)
def test_find_coordinator(clients: Any, version: int) -> None:
    """FindCoordinator names the broker as a group's coordinator in every version."""
    values = {"key": "g", "keyType": 0, "coordinatorKeys": ["g", "h"]}
    same(clients, RawClient.ask, FIND_COORDINATOR, version_of(FIND_COORDINATOR, values, version), version)


def joining(group: str, **how: Any) -> dict[str, Any]:
    asked = {"groupId": group, "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 10_000, "memberId": ""}
    asked |= {"groupInstanceId": None, "protocolType": "consumer", "reason": None}
    asked |= {"protocols": [{"name": "range", "metadata": b"meta"}]}
    return {**asked, **how}


def join(client: RawClient, version: int, **how: Any) -> dict[str, Any]:
    """Join a group; if the answer requires a member id, join again with the id in the answer."""
    asked = joining(**how)
    answer = client.ask(JOIN_GROUP, version_of(JOIN_GROUP, asked, version), version)
    if answer["errorCode"] == 79:
        again = {**asked, "memberId": answer["memberId"]}
        answer = client.ask(JOIN_GROUP, version_of(JOIN_GROUP, again, version), version)
    return answer


def without_ids(answer: dict[str, Any]) -> Any:
    """Return an answer with member ids replaced, so that two answers can be compared."""
    own = answer["memberId"]
    text = {key: "own" if value == own else value for key, value in answer.items()}
    text["members"] = [{**one, "memberId": "own"} for one in answer["members"]]
    return text


@pytest.mark.parametrize("version", JOIN_GROUP.request.versions)
def test_the_life_of_a_member(clients: Any, version: int) -> None:
    """The listener and a broker answer join, sync, heartbeat and leave alike, even if the generation is wrong."""
    group = f"life-{version}-{uuid4()}"
    joined = [join(client, version, group=group) for client in clients]
    assert [] == list(differences(*(shown(without_ids(one)) for one in joined)))
    assert 1 == joined[1]["generationId"]
    own = {id(client): one["memberId"] for client, one in zip(clients, joined, strict=True)}

    def ask(client: RawClient, api: Api, **values: Any) -> dict[str, Any]:
        member = own[id(client)]
        asked = {"groupId": group, "generationId": 1, "memberId": member, "groupInstanceId": None, **values}
        asked |= {"members": [{"memberId": member, "groupInstanceId": None, "reason": None}]}
        asked |= {"protocolType": "consumer", "protocolName": "range"}
        which = min(version, api.request.versions[-1])
        answer = client.ask(api, version_of(api, asked, which), which)
        answer.get("members", [{}])[:1] and [one.pop("memberId") for one in answer.get("members", [])]
        return answer

    assignments = lambda client: [{"memberId": own[id(client)], "assignment": b"all"}]  # noqa: E731
    synced = same(clients, lambda one: ask(one, SYNC_GROUP, assignments=assignments(one)))
    assert b"all" == synced["assignment"]
    same(clients, ask, HEARTBEAT)
    same(clients, ask, HEARTBEAT, generationId=7)
    same(clients, ask, SYNC_GROUP, assignments=[], generationId=7)
    same(clients, ask, LEAVE_GROUP)
    same(clients, ask, HEARTBEAT)
    same(clients, ask, LEAVE_GROUP)


@pytest.mark.parametrize(
    "how",
    [
        {"group": ""},
        {"sessionTimeoutMs": 1},
        {"sessionTimeoutMs": 2**31 - 1},
        {"memberId": "nobody"},
        {"protocols": []},
        {"protocolType": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize("version", [1, 4, 9])
def test_joins_that_are_refused(clients: Any, served: Served, how: dict[str, Any], version: int) -> None:
    """Refused joins get the same answers. Afterwards the group does not exist here; a broker may have kept it."""
    group = {"group": f"refused-{uuid4()}", **how}
    same(clients, join, version, **group)
    assert {} == dict(served.engine.groups.listed())


def test_a_pending_id_with_an_instance_id(clients: Any) -> None:
    """A join that names a pending id and an instance id is refused."""
    asked = joining(f"pending-{uuid4()}")

    def ask(client: RawClient) -> dict[str, Any]:
        pending = client.ask(JOIN_GROUP, asked)
        assert 79 == pending["errorCode"]
        return client.ask(JOIN_GROUP, {**asked, "memberId": pending["memberId"], "groupInstanceId": "one"})

    assert -1 == same(clients, ask)["errorCode"]


@pytest.mark.parametrize("version", OFFSET_COMMIT.request.versions)
@pytest.mark.parametrize("generation", [-1, 4])
def test_commits(clients: Any, version: int, generation: int) -> None:
    """OffsetCommit agrees for a topic's partitions, and for a missing topic or partition."""
    topic, group = f"commits-{version}-{generation}", f"commits-{uuid4()}"
    made = create(clients, topic, numPartitions=2, replicationFactor=1)
    assert not made["topics"][0]["errorCode"]
    ids = [client.topic(topic)["topicId"] for client in clients]

    def commit(client: RawClient) -> dict[str, Any]:
        partitions = [
            {
                "partitionIndex": number,
                "committedOffset": 5,
                "committedLeaderEpoch": 0,
                "committedMetadata": text,
            }
            for number, text in ((0, "a"), (1, "x" * 5000), (7, None))
        ]
        topics = [
            {"name": name, "topicId": unique, "partitions": partitions}
            for name, unique in ((topic, ids[clients.index(client)]), ("missing", UUID(int=9)))
        ]
        topics = [version_topic(one, version) for one in topics]
        asked = {"groupId": group, "generationIdOrMemberEpoch": generation, "memberId": ""}
        asked |= {"groupInstanceId": None, "retentionTimeMs": -1, "topics": topics}
        return client.ask(OFFSET_COMMIT, version_of(OFFSET_COMMIT, asked, version), version)

    same(clients, commit)
    for which in OFFSET_FETCH.request.versions:
        same(
            clients,
            lambda one, which=which: fetch(one, group, topic, which, topic_id=ids[clients.index(one)]),
        )
        if which >= 2:
            same(clients, fetch, group, None, which)
    same(clients, fetch, "unknown", topic, 9)
    same(clients, delete_positions, group, topic)
    same(clients, fetch, group, None, 9)
    same(clients, delete_positions, "unknown", topic)


def version_topic(one: dict[str, Any], version: int) -> dict[str, Any]:
    partitions = [dict(each) for each in one["partitions"]]
    if version < 6:
        for each in partitions:
            del each["committedLeaderEpoch"]
    name = {"topicId": one["topicId"]} if version >= 10 else {"name": one["name"]}
    return {**name, "partitions": partitions}


def fetch(
    client: RawClient, group: str, topic: str | None, version: int, *, topic_id: UUID | None = None
) -> dict[str, Any]:
    topics: Any = None
    if topic is not None:
        both = ((topic, topic_id or UUID(int=8)), ("missing", UUID(int=9)))
        topics = [
            {**({"topicId": unique} if version >= 10 else {"name": name}), "partitionIndexes": [0, 1, 7]}
            for name, unique in both
        ]
    one = {"groupId": group, "topics": topics}
    one |= {"memberId": None, "memberEpoch": -1} if version >= 9 else {}
    asked = {"groupId": group, "topics": topics, "groups": [one], "requireStable": True}
    return client.ask(OFFSET_FETCH, version_of(OFFSET_FETCH, asked, version), version)


def delete_positions(client: RawClient, group: str, topic: str) -> dict[str, Any]:
    topics = [
        {"name": name, "partitions": [{"partitionIndex": number} for number in (0, 1, 7)]}
        for name in (topic, "missing")
    ]
    return client.ask(OFFSET_DELETE, {"groupId": group, "topics": topics})


@pytest.mark.parametrize("version", DESCRIBE_GROUPS.request.versions)
def test_descriptions(clients: Any, version: int) -> None:
    """DescribeGroups agrees for a group that only has positions, and for a missing group."""
    group = group_with_a_position(clients, f"described-{version}")
    values = {"groups": [group, "unknown", ""], "includeAuthorizedOperations": True}
    same(clients, RawClient.ask, DESCRIBE_GROUPS, version_of(DESCRIBE_GROUPS, values, version), version)


def group_with_a_position(clients: Any, topic: str) -> str:
    """Let a new group commit a position in a new topic on both servers; return the name of the group."""
    group = f"group-{uuid4()}"
    create(clients, topic, numPartitions=1, replicationFactor=1)
    partitions = [
        {"partitionIndex": 0, "committedOffset": 0, "committedLeaderEpoch": -1, "committedMetadata": None}
    ]
    asked = {"groupId": group, "generationIdOrMemberEpoch": -1, "memberId": "", "groupInstanceId": None}
    asked |= {"topics": [{"name": topic, "partitions": partitions}]}
    same(clients, RawClient.ask, OFFSET_COMMIT, asked, 9)
    return group


@pytest.mark.parametrize("version", LIST_GROUPS.request.versions)
def test_listings(clients: Any, version: int) -> None:
    """ListGroups lists the groups whose states and types match the filters, as in a broker."""
    for states, types in (([], []), (["stable"], []), (["Empty"], ["classic"]), ([], ["share"])):
        values = version_of(LIST_GROUPS, {"statesFilter": states, "typesFilter": types}, version)
        answers = [client.ask(LIST_GROUPS, values, version) for client in clients]
        assert 0 == answers[0]["errorCode"] == answers[1]["errorCode"]
        names = ("protocolType", "groupState", "groupType")
        theirs, ours = ({tuple(map(one.get, names)) for one in answer["groups"]} for answer in answers)
        assert ours <= theirs


@pytest.mark.parametrize("version", DELETE_GROUPS.request.versions)
def test_deletions(clients: Any, version: int) -> None:
    """DeleteGroups agrees for a group without members, and for a missing group."""
    group = group_with_a_position(clients, f"deleted-{version}")
    for _ in range(2):
        same(clients, RawClient.ask, DELETE_GROUPS, {"groupsNames": [group, ""]}, version)
