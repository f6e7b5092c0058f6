"""Kafka clients as members of a served directory's groups, together with readers of the mount."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from tests.doubles.group_coordinator import subscribed
from tests.doubles.kafka_tools import run_tool
from tests.doubles.producing import batch
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.listener.daemon import Daemon
from tests.listener.serving import RawClient, Served
from topicfs.coordination.groups.requests import Code
from topicfs.coordination.membership import GroupState, Membership, Position, Subscription
from topicfs.listener.limits import ListenerLimits
from topicfs.protocol.group_messages import (
    DELETE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    SYNC_GROUP,
)
from topicfs.replication import open_engine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.model import TopicPartition

GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def consumer(served: Served) -> Iterator[Callable[..., Consumer]]:
    """A function that starts consumers; they are closed after the test."""
    with ExitStack() as stack:

        def start(group: str, **settings: Any) -> Consumer:
            config = {"bootstrap.servers": served.address, "group.id": group, "auto.offset.reset": "earliest"}
            return stack.enter_context(closing(Consumer({**config, **settings})))

        yield start


def fill(served: Served, topic: str, partitions: int) -> None:
    """Create a topic with ten records in each partition."""
    for number, partition in served.engine.create_topic(topic, partitions=partitions).partitions().items():
        partition.append(batch(*(b"%d-%d" % (number, at) for at in range(10))))


def drain(consumer: Consumer, count: int) -> list[bytes]:
    """Return the values of the next `count` records."""
    found = [message.value() for message in consumer.consume(count, timeout=TIMEOUT_SECONDS)]
    assert count == len(found)
    return found


def everything(partitions: int) -> list[bytes]:
    return sorted(b"%d-%d" % (number, at) for number in range(partitions) for at in range(10))


def position(served: Served, group: str, number: int) -> int | None:
    found = served.engine.groups.positions(group).committed.get(TopicPartition("t", number))
    return None if found is None else found.offset


def test_a_consumer_continues_at_its_position(served: Served, consumer: Callable[..., Consumer]) -> None:
    """A group's next consumer begins at the last committed position."""
    fill(served, "t", 1)
    with closing(consumer("g", **{"enable.auto.commit": False})) as first:
        first.subscribe(["t"])
        assert [b"0-0", b"0-1", b"0-2"] == drain(first, 3)
        first.commit(offsets=[Place("t", 0, 3)], asynchronous=False)
    assert 3 == position(served, "g", 0)
    second = consumer("g")
    second.subscribe(["t"])
    assert [b"0-3", b"0-4"] == drain(second, 2)


def test_a_consumer_that_is_no_member_commits(served: Served, consumer: Callable[..., Consumer]) -> None:
    """A consumer that assigns its own partitions can commit positions to a group without members."""
    fill(served, "t", 1)
    alone = consumer("g")
    alone.assign([Place("t", 0, 5)])
    assert [b"0-5"] == drain(alone, 1)
    alone.commit(offsets=[Place("t", 0, 6, "note")], asynchronous=False)
    (found,) = alone.committed([Place("t", 0)], timeout=TIMEOUT_SECONDS)
    assert (6, "note") == (found.offset, found.metadata)
    assert GroupState.EMPTY is served.engine.groups.describe("g").state


def test_kcat_members_share_a_topic(served: Served) -> None:
    """Two kcat processes in one group together read each record once."""
    fill(served, "t", 4)
    command = ["kcat", "-b", served.address, "-q", "-u", "-o", "beginning", "-G", "g", "t"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdout=subprocess.PIPE) as other,
    ):
        try:
            wait_until(lambda: 2 == len(members(served, "g")), "both processes are members")
            wait_until(lambda: is_stable(served, "g"), "the group is stable")
            wait_until(
                lambda: all(10 == position(served, "g", number) for number in range(4)),
                "all records are read",
            )
        finally:
            for process in (one, other):
                process.terminate()
        texts = [process.communicate(timeout=TIMEOUT_SECONDS)[0].split() for process in (one, other)]
    assert everything(4) == sorted({value for text in texts for value in text})


def members(served: Served, group: str) -> list[str]:
    if group not in served.engine.groups.listed():
        return []
    return [member.member_id for member in served.engine.groups.describe(group).members]


def is_stable(served: Served, group: str) -> bool:
    return served.engine.groups.describe(group).state is GroupState.STABLE


def joined(served: Served, group: str) -> tuple[Membership, Event]:
    """Return a membership of a reader in this process, which joins as a reader of a mount does."""
    changed = Event()
    wanted = Subscription(topics=frozenset({"t"}))
    return served.engine.groups.join(group, wanted, client_id="cat", listener=changed.set), changed


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_a_consumer_and_a_reader_of_the_mount_share_a_group(
    served: Served, consumer: Callable[..., Consumer], assignor: str
) -> None:
    """A consumer and a reader get different partitions; when one leaves, the other gets all partitions."""
    fill(served, "t", 4)
    served.engine.groups.create("g")
    served.engine.groups.alter_config("g", {"assignor": assignor})
    reader, _ = joined(served, "g")
    wait_until(lambda: 4 == len(reader.held().partitions), "the reader has all partitions")
    client = consumer("g", **{"partition.assignment.strategy": assignor})
    client.subscribe(["t"])

    def poll_and_give_up() -> bool:
        client.poll(0.05)
        held = reader.held()
        if held.wanted_back:
            reader.give_up(held.wanted_back)
        return 2 == len(client.assignment()) and 2 == len(reader.held().partitions)

    wait_until(poll_and_give_up, "both have two partitions")
    theirs = {TopicPartition(one.topic, one.partition) for one in client.assignment()}
    assert not theirs & reader.held().partitions
    reader.leave().result(TIMEOUT_SECONDS)
    wait_until(
        lambda: client.poll(0.05) is None and 4 == len(client.assignment()), "the client has all partitions"
    )


def test_a_reader_without_a_common_assignor(served: Served, consumer: Callable[..., Consumer]) -> None:
    """A reader whose assignor the other members do not offer gets an error that names the assignors they offer."""
    fill(served, "t", 1)
    client = consumer("g", **{"partition.assignment.strategy": "roundrobin,range"})
    client.subscribe(["t"])
    wait_until(lambda: client.poll(0.05) is None and client.assignment(), "the client has joined")
    reader, _ = joined(served, "g")
    wait_until(lambda: reader.held().lost is not None, "the reader gets the error")
    assert (
        "g: this member has no assignor in common with the other members, which offer range, roundrobin; "
        "end the members, then: echo assignor=range >> @groups/g/config" == str(reader.held().lost)
    )
    client.close()
    served.engine.groups.alter_config("g", {"assignor": "range"})
    again, _ = joined(served, "g")
    wait_until(lambda: again.held().partitions, "the reader has the partition")


def test_a_member_without_heartbeats_is_removed(served: Served) -> None:
    """A member that sends no heartbeats is removed after its session timeout."""
    fill(served, "t", 1)
    command = ["kcat", "-b", served.address, "-q", "-X", "session.timeout.ms=6000", "-G", "g", "t"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as client:
        try:
            wait_until(lambda: 1 == len(members(served, "g")), "the consumer is a member")
        finally:
            client.kill()
    wait_until(lambda: not members(served, "g"), "the member is removed")


def test_a_daemon_that_starts_again(start: Callable[..., Served], tmp_path: Any) -> None:
    """After a restart of the daemon, members join again and continue at their positions."""
    with closing(start()) as before:
        fill(before, "t", 1)
        before.engine.groups.set_positions("g", {TopicPartition("t", 0): Position(4)})
    after = start()
    with closing(
        Consumer({"bootstrap.servers": after.address, "group.id": "g", "auto.offset.reset": "earliest"})
    ) as client:
        client.subscribe(["t"])
        assert [b"0-4"] == drain(client, 1)


def joined_by_request(client: RawClient) -> dict[str, Any]:
    """Join the group `g`, and return the fields that identify the member in its further requests."""
    wanted = {"protocols": [{"name": "range", "metadata": subscribed("t")}]}
    named = joining(**wanted, memberId=client.ask(JOIN_GROUP, joining(**wanted))["memberId"])
    answer = client.ask(JOIN_GROUP, named)
    assert Code.NONE == answer["errorCode"]
    member = {"groupId": "g", "memberId": answer["memberId"], "groupInstanceId": None}
    member["generationId"] = answer["generationId"]
    given = {"memberId": answer["memberId"], "assignment": b"mine"}
    asked = {**member, "protocolType": "consumer", "protocolName": "range"}
    asked["assignments"] = [given] if answer["leader"] == answer["memberId"] else []
    assert Code.NONE == client.ask(SYNC_GROUP, asked)["errorCode"]
    return member


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_clients_stay_members_while_the_daemon_starts_again(
    daemon: Callable[..., Daemon], tmp_path: Path, ending: signal.Signals
) -> None:
    """While the daemon starts again, clients stay members of their groups in the same generation, as with a broker.

    A worker of Kafka Connect that had to join again would get no tasks for five minutes.
    """
    server = daemon()
    with closing(RawClient(server.address)) as client:
        member = joined_by_request(client)
        server.end(ending)
    server.start()
    with closing(RawClient(server.address)) as client:
        assert Code.NONE == client.ask(HEARTBEAT, member)["errorCode"]
        server.end(ending)
    with closing(open_engine(tmp_path / "data")) as unserved:
        assert GroupState.EMPTY is unserved.groups.describe("g").state


def test_only_readers_of_the_mount_leave_while_the_daemon_starts_again(start: Callable[..., Served]) -> None:
    """After a restart, a client in a group with a reader of the mount learns that the reader is gone."""
    with closing(start()) as before:
        fill(before, "t", 2)
        before.engine.groups.create("g")
        before.engine.groups.alter_config("g", {"assignor": "range"})
        reader, changed = joined(before, "g")
        wait_until(lambda: 2 == len(reader.held().partitions), "the reader has all partitions")
        with ThreadPoolExecutor() as threads:
            member = threads.submit(joined_by_request, before.client())
            while not member.done():
                changed.wait(0.01)
                if wanted := reader.held().wanted_back:
                    reader.give_up(wanted)
        wait_until(lambda: is_stable(before, "g"), "the group is stable")
        assert 2 == len(members(before, "g"))
    after = start()
    assert [member.result()["memberId"]] == members(after, "g")
    assert Code.REBALANCE_IN_PROGRESS == after.client().ask(HEARTBEAT, member.result())["errorCode"]


def test_an_admin_client_manages_groups(served: Served, consumer: Callable[..., Consumer]) -> None:
    """An admin client lists, describes and deletes groups; a group with members is not deleted."""
    fill(served, "t", 1)
    client = consumer("g")
    client.subscribe(["t"])
    drain(client, 10)
    admin = AdminClient({"bootstrap.servers": served.address})
    listed = admin.list_consumer_groups().result(TIMEOUT_SECONDS)
    assert [("g", False)] == [(one.group_id, one.is_simple_consumer_group) for one in listed.valid]
    described = admin.describe_consumer_groups(["g"])["g"].result(TIMEOUT_SECONDS)
    (member,) = described.members
    assert [("t", 0)] == [(one.topic, one.partition) for one in member.assignment.topic_partitions]
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["g"])["g"].result(TIMEOUT_SECONDS)
    client.close()
    admin.delete_consumer_groups(["g"])["g"].result(TIMEOUT_SECONDS)
    assert {} == dict(served.engine.groups.listed())


@pytest.mark.java
def test_kafka_consumer_groups(java: Any, served: Served) -> None:
    """kafka-consumer-groups lists and describes groups, sets their positions, and deletes positions and groups."""
    fill(served, "t", 2)
    served.engine.groups.set_positions("g", {TopicPartition("t", 0): Position(4)})
    at = ("--bootstrap-server", served.address)
    assert "g\n" == run_tool(java, GROUPS_TOOL, *at, "--list").stdout
    described = run_tool(java, GROUPS_TOOL, *at, "--describe", "--group", "g").stdout
    assert ["g", "t", "0", "4", "10", "6"] in [line.split()[:6] for line in described.splitlines()]
    run_tool(
        java, GROUPS_TOOL, *at, "--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--execute"
    )
    assert (10, 10) == (position(served, "g", 0), position(served, "g", 1))
    run_tool(java, GROUPS_TOOL, *at, "--delete-offsets", "--group", "g", "--topic", "t:1")
    assert (10, None) == (position(served, "g", 0), position(served, "g", 1))
    run_tool(java, GROUPS_TOOL, *at, "--delete", "--group", "g")
    assert {} == dict(served.engine.groups.listed())


LONG = "x" * 40_000
"""A string that fits into a request but not into a record."""


def joining(group: str = "g", instance: str | None = None, **how: Any) -> dict[str, Any]:
    """Return the fields of a join by a new member, static if `instance` is given."""
    asked = {"groupId": group, "sessionTimeoutMs": 6_000, "rebalanceTimeoutMs": 60_000, "memberId": ""}
    asked |= {"groupInstanceId": instance, "protocolType": "consumer", "reason": None}
    return {**asked, "protocols": [{"name": "range", "metadata": b""}], **how}


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (Code.INVALID_GROUP_ID, joining(LONG)),
        (Code.INVALID_REQUEST, joining(instance=LONG)),
        (Code.INVALID_REQUEST, joining(instance="x" * 32_731)),
        (Code.INVALID_REQUEST, joining(protocolType=LONG)),
        (Code.INVALID_REQUEST, joining(protocols=[{"name": LONG, "metadata": b""}])),
    ],
    ids=["group", "instance", "member", "type", "assignor"],
)
def test_a_member_that_no_record_can_hold_is_refused(
    served: Served, code: Code, fields: dict[str, Any]
) -> None:
    """A join whose fields fit in no record is refused, because the group could not store the member's assignment."""
    assert code == served.client().ask(JOIN_GROUP, fields)["errorCode"]
    assert {} == dict(served.engine.groups.listed())


def test_a_position_of_a_group_that_no_record_can_hold_is_refused(served: Served) -> None:
    """A commit is refused if the group's name is too long for a record. Deleting such a group finds no group."""
    fill(served, "t", 1)
    assert Code.INVALID_GROUP_ID == committed(served, LONG, 9)
    assert Code.GROUP_ID_NOT_FOUND == deleted(served, LONG)


def committed(served: Served, group: str, version: int, **how: Any) -> int:
    """Commit a position without being a member, and return the error code."""
    position = {"partitionIndex": 0, "committedOffset": 1, "committedLeaderEpoch": -1}
    asked = {"groupId": group, "generationIdOrMemberEpoch": -1, "memberId": "", "groupInstanceId": None}
    asked |= {"topics": [{"name": "t", "partitions": [{**position, "committedMetadata": None}]}], **how}
    return int(served.client().ask(OFFSET_COMMIT, asked, version)["topics"][0]["partitions"][0]["errorCode"])


def deleted(served: Served, group: str) -> int:
    return int(served.client().ask(DELETE_GROUPS, {"groupsNames": [group]})["results"][0]["errorCode"])


def test_a_position_is_kept_for_as_long_as_a_request_can_say(served: Served) -> None:
    """A commit may have a retention time so long that the time of its end exceeds 64 bits."""
    fill(served, "t", 1)
    assert Code.NONE == committed(served, "g", 2, retentionTimeMs=2**63 - 1)
    assert 1 == position(served, "g", 0)


def test_a_client_that_disconnects_does_not_keep_its_connection(start: Callable[..., Served]) -> None:
    """If a client disconnects while its join waits for other members, its connection is closed."""
    served = start(limits=ListenerLimits(max_connections=2))
    hours = {"rebalanceTimeoutMs": 2**31 - 1, "sessionTimeoutMs": 1_800_000}
    first = served.client()
    assert Code.NONE == first.ask(JOIN_GROUP, joining(instance="one", **hours))["errorCode"]
    with closing(RawClient(served.address)) as second:
        second.send(JOIN_GROUP, joining(instance="two", **hours), 9)
        wait_until(lambda: 2 == len(members(served, "g")), "the second member has joined")

    def is_served() -> bool:
        with closing(RawClient(served.address)) as third, suppress(OSError, EOFError):
            return bool(third.ask(LIST_GROUPS, {"statesFilter": [], "typesFilter": []})["groups"])
        return False

    wait_until(is_served, "there is a place for another client")
    assert Code.REBALANCE_IN_PROGRESS == first.ask(HEARTBEAT, beating(served))["errorCode"]


def test_a_join_that_waits_holds_no_memory(start: Callable[..., Served]) -> None:
    """While a join waits for other members, the memory of its request is free for other clients' requests."""
    served = start(limits=ListenerLimits(max_memory_bytes=1 << 20, stall_seconds=5.0))
    fill(served, "t", 1)
    hours = {"rebalanceTimeoutMs": 1_800_000, "sessionTimeoutMs": 1_800_000}
    first, second, third = served.client(), served.client(), served.client()
    assert Code.NONE == first.ask(JOIN_GROUP, joining(instance="one", **hours))["errorCode"]
    large = [{"name": "range", "metadata": bytes(900_000)}]
    second.send(JOIN_GROUP, joining(instance="two", protocols=large, **hours), 9)
    wait_until(lambda: 2 == len(members(served, "g")), "it waits for the first one")
    assert Code.NONE == third.produce("t", bytes(batch(bytes(900_000))))["errorCode"]


def test_a_member_that_would_hold_much_memory_is_refused(served: Served) -> None:
    """Metadata and assignments that fit into no record are refused, because waiting members keep them in memory."""
    half = [{"name": name, "metadata": bytes(600_000)} for name in ("range", "roundrobin")]
    client = served.client()
    assert Code.INVALID_REQUEST == client.ask(JOIN_GROUP, joining(protocols=half))["errorCode"]
    joined = client.ask(JOIN_GROUP, joining(instance="one"))
    asked = {"groupId": "g", "memberId": joined["memberId"], "generationId": 1, "groupInstanceId": "one"}
    asked |= {"protocolType": "consumer", "protocolName": "range"}
    asked |= {"assignments": [{"memberId": "two", "assignment": bytes(2_000_000)}]}
    assert Code.UNKNOWN_SERVER_ERROR == client.ask(SYNC_GROUP, asked)["errorCode"]


def beating(served: Served) -> dict[str, Any]:
    """Return the fields of a heartbeat of the static member `one`."""
    described = served.engine.groups.describe("g")
    (member,) = [one for one in described.members if one.instance_id == "one"]
    asked = {"groupId": "g", "memberId": member.member_id, "groupInstanceId": "one"}
    return {**asked, "generationId": described.generation}


def test_groups_of_a_read_only_directory_are_shown_and_not_changed(
    start: Callable[..., Served], tmp_path: Any
) -> None:
    """In a read-only directory, a request that would change a group gets an error that is not retriable.

    With a retriable error, the client would retry forever.
    """
    with closing(start()) as before:
        fill(before, "t", 1)
        before.engine.groups.set_positions("g", {TopicPartition("t", 0): Position(4)})
    with closing(Served([tmp_path / "data"], ListenerLimits(), EngineConfig(), read_only=True)) as reading:
        client = reading.client()
        one = {"groupId": "g", "memberId": "one", "groupInstanceId": None, "generationId": 1}
        refused = [
            client.ask(JOIN_GROUP, joining())["errorCode"],
            client.ask(SYNC_GROUP, {**one, "protocolType": None, "protocolName": None, "assignments": []})[
                "errorCode"
            ],
            client.ask(HEARTBEAT, one)["errorCode"],
            client.ask(LEAVE_GROUP, {"groupId": "g", "members": [{**one, "reason": None}]})["members"][0][
                "errorCode"
            ],
            committed(reading, "g", 9),
            client.ask(
                OFFSET_DELETE,
                {"groupId": "g", "topics": [{"name": "t", "partitions": [{"partitionIndex": 0}]}]},
            )["errorCode"],
            deleted(reading, "g"),
        ]
        assert [Code.GROUP_AUTHORIZATION_FAILED] * 7 == refused
        assert 4 == position(reading, "g", 0)


def test_a_group_whose_coordinator_does_not_serve_is_not_deleted(start: Callable[..., Served]) -> None:
    """For a group whose coordinator is unavailable, a deletion is answered with a retriable error."""
    with closing(start()) as before:
        before.engine.groups.create("g")
        place = before.engine.groups.describe("g").coordinator
        before.engine.partition(place.topic, place.partition).append(batch(b"", key=b"\0\2"))
    damaged = start()
    assert Code.NOT_COORDINATOR == damaged.client().ask(HEARTBEAT, NOBODY)["errorCode"]
    assert Code.NOT_COORDINATOR == deleted(damaged, "g")


NOBODY = {"groupId": "g", "memberId": "nobody", "groupInstanceId": None, "generationId": 1}
