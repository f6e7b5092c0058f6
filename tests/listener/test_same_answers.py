"""A real broker and a served directory give the same answers to the same requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.doubles.producing import batch
from tests.doubles.waiting import wait_until
from tests.listener.serving import RawClient, fetching
from topicfs.protocol import messages
from topicfs.protocol.messages import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from topicfs.protocol.transaction_messages import LIST_TRANSACTIONS
from topicfs.storage.codec.batch import set_producer
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import compress_batches

pytestmark = pytest.mark.java

OWN = {
    "port", "host", "clusterId", "topicId", "errorMessage", "batchIndexErrorMessage", "throttleTimeMs", "configs",
    "controllerId", "sessionId",
}  # fmt: skip
"""Fields that differ between any two brokers, and error messages, whose wording may differ."""
ALONE = {
    "assignments": [],
    "configs": [{"name": "retention.ms", "value": "-1"}],
    "numPartitions": -1,
    "replicationFactor": -1,
}
ZERO = UUID(int=0)


def shown(answer: Any) -> Any:
    """Return an answer without the fields that differ between brokers."""
    if isinstance(answer, dict):
        return {name: shown(value) for name, value in answer.items() if name not in OWN}
    if isinstance(answer, list):
        return sorted((shown(one) for one in answer), key=repr)  # Kafka orders unknown topics differently.
    return bytes(answer) if isinstance(answer, memoryview) else answer


@pytest.fixture
def both(broker: Any, served: Any) -> Iterator[tuple[RawClient, RawClient]]:
    clients = RawClient(broker.bootstrap_server), served.client()
    yield clients
    for client in clients:
        client.close()


def same(both: tuple[RawClient, RawClient], ask: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
    """Call `ask` with a client of each server and the arguments, and return the common answer of both servers."""
    theirs, ours = (shown(ask(client, *arguments, **how)) for client in both)
    assert [] == list(differences(theirs, ours))
    return ours


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Yield one line for each difference between two answers."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        for name in theirs:
            yield from differences(theirs[name], ours[name], f"{path}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif theirs != ours:
        yield f"{path}: {theirs!r} of the broker, {ours!r} of ours"


def create(both: Any, *names: str, **how: Any) -> Any:
    """Create topics on both servers, compare the answers, and wait until the broker leads the topics."""
    topics = [{"name": name, **ALONE, **how} for name in names]
    asked = {"topics": topics, "timeoutMs": 30_000, "validateOnly": False}
    answer = same(both, RawClient.ask, CREATE_TOPICS, asked)
    for one in answer["topics"]:
        if not one["errorCode"]:
            count = one["numPartitions"]
            wait_until(
                lambda one=one, count=count: leads(both[0], one["name"], count),
                "the broker leads all partitions",
            )
    return answer


def leads(broker: RawClient, topic: str, count: int) -> bool:
    """Return whether a broker leads all partitions of a topic; it learns of the topic later than the controller."""
    partitions = [
        {"partitionIndex": number, "currentLeaderEpoch": -1, "timestamp": -1} for number in range(count)
    ]
    asked = {"replicaId": -1, "isolationLevel": 0, "topics": [{"name": topic, "partitions": partitions}]}
    [answer] = broker.ask(LIST_OFFSETS, {**asked, "timeoutMs": 1000}, 9)["topics"]
    return not any(one["errorCode"] for one in answer["partitions"])


@pytest.mark.parametrize("version", METADATA.request.versions)
def test_metadata_in_every_version(both: Any, version: int) -> None:
    """Metadata answers agree for an existing topic, a missing topic and invalid names."""
    name = f"metadata-{version}"
    create(both, name, numPartitions=3, replicationFactor=1)
    names = [{"name": one} for one in (name, "missing", "not/a/name", "")]
    asked: dict[str, Any] = {"topics": names, "allowAutoTopicCreation": False}
    if version < 4:
        asked["topics"] = names[:1]  # Metadata for the missing names would create their topics.
    same(both, RawClient.ask, METADATA, {**asked, "includeTopicAuthorizedOperations": version > 8}, version)


def test_metadata_by_ids(both: Any) -> None:
    """Metadata answers agree for a topic's id and for an unknown id."""
    create(both, "by-id")

    def ask(client: RawClient) -> Any:
        unique = client.topic("by-id")["topicId"]
        return client.ask(METADATA, {"topics": [{"topicId": unique}, {"topicId": UUID(int=77)}]}, 13)

    same(both, ask)


def test_creating_topics(both: Any) -> None:
    """CreateTopics answers agree for topics that are created and for every reason to refuse a topic."""
    create(both, "made", numPartitions=2, replicationFactor=1)
    create(both, "made", "also-made", "twice", "twice", "not/a/name", "..", "")
    create(both, "zero", numPartitions=0)
    create(both, "minus", numPartitions=-2)
    create(both, "copies", replicationFactor=3)
    create(both, "none", replicationFactor=0)
    create(
        both,
        "assigned",
        assignments=[{"partitionIndex": 0, "brokerIds": [1]}, {"partitionIndex": 1, "brokerIds": [1]}],
    )
    create(both, "both", assignments=[{"partitionIndex": 0, "brokerIds": [1]}], numPartitions=1)
    create(both, "gap", assignments=[{"partitionIndex": 1, "brokerIds": [1]}])
    create(both, "elsewhere", assignments=[{"partitionIndex": 0, "brokerIds": [7]}])
    for name, value in (("retention.ms", "many"), ("no.such.setting", "1"), ("retention.ms", None)):
        create(both, "set", configs=[{"name": name, "value": value}])
    create(both, "a.b")
    create(both, "a_b")


def test_adding_partitions(both: Any) -> None:
    """CreatePartitions answers agree for a larger, an equal, a smaller and a zero count."""
    create(both, "growing", numPartitions=2, replicationFactor=1)
    for name, count, assignments in (
        *(("growing", count, None) for count in (4, 4, 3, 0, -1)),
        ("growing", 5, [{"brokerIds": [1]}]),
        ("growing", 6, [{"brokerIds": [9]}]),
        ("growing", 6, [{"brokerIds": [1]}, {"brokerIds": [1]}]),
        ("growing", 6, []),
        ("missing", 2, None),
    ):
        topics = [{"name": name, "count": count, "assignments": assignments}]
        asked = {"topics": topics, "timeoutMs": 30_000, "validateOnly": False}
        same(both, RawClient.ask, CREATE_PARTITIONS, asked)


def test_deleting_topics(both: Any) -> None:
    """DeleteTopics answers agree by name and by id, and for missing topics."""
    create(both, "gone-1", "gone-2")

    def by_id(client: RawClient) -> Any:
        unique = client.topic("gone-2")["topicId"]
        topics = [{"name": None, "topicId": unique}, {"name": None, "topicId": UUID(int=99)}]
        return client.ask(DELETE_TOPICS, {"topics": topics, "timeoutMs": 30_000}, 6)

    same(both, RawClient.ask, DELETE_TOPICS, {"topicNames": ["gone-1", "missing"], "timeoutMs": 30_000}, 5)
    same(both, by_id)


def numbered(producer_id: int, epoch: int, sequence: int, *values: bytes) -> bytearray:
    found = batch(*values)
    set_producer(found, 0, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return found


@pytest.mark.parametrize("version", PRODUCE.request.versions)
def test_producing_in_every_version(both: Any, version: int) -> None:
    """Produce answers agree for each `acks` that gets an answer, existing and missing partitions, and every codec."""
    name = f"produced-{version}"
    create(both, name)
    if version < 13:
        for acks in (-1, 1, 2):
            same(both, RawClient.produce, name, batch(b"a"), acks=acks, version=version)
        same(both, RawClient.produce, name, batch(b"a"), index=5, version=version)
        same(both, RawClient.produce, "missing", batch(b"a"), version=version)
        for codec in Codec:
            packed = compress_batches(batch(b"a" * 100), codec, level=None, max_batch_bytes=1 << 20) or batch(
                b"b"
            )
            same(both, RawClient.produce, name, packed, version=version)
        return

    def by_id(client: RawClient) -> Any:
        unique = client.topic(name)["topicId"]
        data = [{"index": 0, "records": batch(b"a")}]
        topics = [{"topicId": one, "partitionData": data} for one in (unique, UUID(int=98))]
        return client.ask(
            PRODUCE, {"acks": 1, "timeoutMs": 5000, "topicData": topics, "transactionalId": None}, 13
        )

    same(both, by_id)


def test_batches_that_are_refused(both: Any) -> None:
    """Both servers refuse batches that are damaged, cut off, empty, duplicate, too large, too late or without a key.

    Both servers also refuse batches of old formats.
    """
    create(both, "refusing", configs=[{"name": "max.message.bytes", "value": "1000"}])
    create(both, "keyed", configs=[{"name": "cleanup.policy", "value": "compact"}])
    create(both, "late", configs=[{"name": "message.timestamp.after.max.ms", "value": "1000"}])
    damaged = batch(b"hello")
    damaged[-1] ^= 1
    for records in (
        damaged,
        batch(b"hello")[:-1],
        b"",
        batch(b"a") + batch(b"b"),
        batch(b"a" * 2000),
        b"\0" * 70,
    ):
        same(both, RawClient.produce, "refusing", records)
    same(both, RawClient.produce, "keyed", batch(b"a", b"b"))
    same(both, RawClient.produce, "late", batch(b"a", time=2**42))
    same(both, RawClient.produce, "__consumer_offsets", batch(b"a"))


def test_idempotent_producers(both: Any) -> None:
    """Answers to idempotent batches agree: in order, repeated, out of order, fenced, of a new epoch, or too old."""
    create(both, "numbered")
    for epoch, sequence in (
        (0, 0), (0, 1), (0, 1), (0, 3), (0, 2), (1, 5), (1, 0), (0, 3), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5),
        (1, 6), (1, 0), (1, 6), (-1, 7), (1, -1),
    ):  # fmt: skip
        same(both, RawClient.produce, "numbered", numbered(5000, epoch, sequence, b"a"))
    same(both, RawClient.produce, "numbered", numbered(6000, 0, 17, b"a"))
    for values in ({}, {"producerId": 5, "producerEpoch": -1}, {"producerId": -1, "producerEpoch": 3}):
        full = {
            "transactionalId": None,
            "transactionTimeoutMs": 1000,
            "producerId": -1,
            "producerEpoch": -1,
        } | values
        wait_until(
            lambda full=full: both[0].ask(INIT_PRODUCER_ID, full)["errorCode"] != 14,
            "the broker can assign producer ids",
        )
        theirs, ours = (client.ask(INIT_PRODUCER_ID, full) for client in both)
        assert (theirs["errorCode"], theirs["producerEpoch"]) == (ours["errorCode"], ours["producerEpoch"])
        assert (theirs["producerId"] < 0) == (ours["producerId"] < 0)


@pytest.mark.parametrize("version", range(4, 13))
def test_fetching_in_every_version(both: Any, version: int) -> None:
    """Fetch answers agree at existing offsets, at the end, after the end and below 0.

    The answers for a missing topic and for a wrong leader epoch agree, too.
    """
    name = f"fetched-{version}"
    create(both, name)
    for value in (b"a", b"b" * 50, b"c"):
        same(both, RawClient.produce, name, batch(value))
    for offset in (0, 1, 2, 3, 4, -1, 2**63 - 1):
        for isolation in (0, 1):
            same(both, RawClient.fetch, name, offset, version=version, isolationLevel=isolation)
    same(both, RawClient.fetch, "missing", version=version)
    if version >= 9:
        for epoch in (0, 1, 5):
            same(both, RawClient.fetch, name, version=version, currentLeaderEpoch=epoch)


def test_bounds_of_a_fetch(both: Any) -> None:
    """Fetch returns the first batch whole, however small the request's limits are."""
    create(both, "bounded")
    for _ in range(3):
        same(both, RawClient.produce, "bounded", batch(b"v" * 1000))
    for most in (0, 1, 1069):
        same(both, RawClient.fetch, "bounded", partitionMaxBytes=most)
        same(both, RawClient.fetch, "bounded", maxBytes=most)


def test_a_fetch_session(both: Any) -> None:
    """Fetch sessions agree when begun, continued with or without new records, and changed.

    They also agree on requests with a wrong epoch or id, and on requests that name a topic in a session with topic ids.
    """
    create(both, "session")
    ids: dict[int, int] = {}

    def ask(
        client: RawClient,
        epoch: int,
        *,
        offset: int | None = None,
        forget: bool = False,
        session: int | None = None,
        version: int = 16,
    ) -> dict[str, Any]:
        unique = client.topic("session")["topicId"]
        asked = fetching("session", offset or 0)
        for topic in asked["topics"]:
            topic["topicId"] = unique
        if offset is None:
            asked["topics"] = []
        asked["forgottenTopicsData"] = [{"topicId": unique, "partitions": [0]}] if forget else []
        number = ids.get(id(client), 0) if session is None else session
        found = client.ask(FETCH, {**asked, "sessionId": number, "sessionEpoch": epoch}, version)
        if epoch == 0:
            ids[id(client)] = found["sessionId"]
        return {"answer": found, "known": found["sessionId"] == ids.get(id(client))}

    same(both, ask, 0, offset=0)
    same(both, ask, 1)
    same(both, RawClient.produce, "session", batch(b"a"))
    same(both, ask, 2)
    same(both, ask, 3, offset=1)
    same(both, ask, 4, offset=1, version=12)
    same(both, ask, 4, version=12)
    same(both, ask, 4, offset=99)
    same(both, ask, 5)
    same(both, ask, 6, forget=True)
    same(both, ask, 9)
    same(both, lambda client: ask(client, 7, session=12345)["answer"])
    same(both, lambda client: ask(client, -1, offset=0)["answer"])


def test_unknown_ids_in_a_fetch(both: Any) -> None:
    """Answers to a Fetch with an unknown topic id agree."""
    asked = fetching("x")
    asked["topics"][0]["topicId"] = UUID(int=97)
    same(both, RawClient.ask, FETCH, asked, 16)


@pytest.mark.parametrize("version", LIST_OFFSETS.request.versions)
def test_listing_offsets_in_every_version(both: Any, version: int) -> None:
    """ListOffsets agrees for the earliest and latest offsets, for times, and for invalid timestamps."""
    name = f"listed-{version}"
    create(both, name)

    def ask(client: RawClient, time: int, topic: str = name, **how: int) -> Any:
        partition = {"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": time, **how}
        topics = [{"name": topic, "partitions": [partition]}]
        return client.ask(
            LIST_OFFSETS, {"replicaId": -1, "isolationLevel": 1, "topics": topics, "timeoutMs": 1000}, version
        )

    times = [-1, -2, 0, 1500, 5000]
    times += [time for time, first in ((-3, 7), (-4, 8), (-5, 9)) if version >= first]
    for time in times:
        same(both, ask, time)
    for value in (1000, 3000, 2000):
        same(both, RawClient.produce, name, batch(b"a", time=value))
    for time in times:
        same(both, ask, time)
    same(both, ask, -1, "missing")
    if version >= 4:
        same(both, ask, -1, currentLeaderEpoch=5)


@pytest.mark.parametrize("version", OFFSET_FOR_LEADER_EPOCH.request.versions)
def test_ends_of_epochs(both: Any, version: int) -> None:
    """OffsetForLeaderEpoch agrees for the epoch of the records, for later epochs and for a missing topic."""
    name = f"epochs-{version}"
    create(both, name)

    def ask(client: RawClient, epoch: int, current: int = -1, topic: str = name) -> Any:
        partition = {"partition": 0, "currentLeaderEpoch": current, "leaderEpoch": epoch}
        return client.ask(
            OFFSET_FOR_LEADER_EPOCH,
            {"replicaId": -2, "topics": [{"topic": topic, "partitions": [partition]}]},
            version,
        )

    same(both, RawClient.produce, name, batch(b"a", b"b"))
    for epoch, current in ((0, -1), (1, -1), (-1, -1), (0, 0), (0, 4)):
        same(both, ask, epoch, current)
    same(both, ask, 0, topic="missing")


def test_deleting_records(both: Any) -> None:
    """DeleteRecords answers agree for some, all and too many records, and for a compacted topic."""
    create(both, "deleting")
    create(both, "compacted", configs=[{"name": "cleanup.policy", "value": "compact"}])
    for _ in range(4):
        same(both, RawClient.produce, "deleting", batch(b"a"))

    def ask(client: RawClient, topic: str, offset: int) -> Any:
        partitions = [{"partitionIndex": 0, "offset": offset}]
        return client.ask(
            DELETE_RECORDS, {"topics": [{"name": topic, "partitions": partitions}], "timeoutMs": 5000}
        )

    for offset in (2, 1, -1, 9, -2):
        same(both, ask, "deleting", offset)
    same(both, RawClient.fetch, "deleting", 0)
    same(both, ask, "compacted", 0)
    same(both, ask, "missing", 0)


def test_altering_settings(both: Any) -> None:
    """IncrementalAlterConfigs agrees for set and deleted values, for lists, and for refused changes."""
    create(both, "altered")

    def ask(
        client: RawClient, *changes: tuple[str, int, str | None], topic: str = "altered", kind: int = 2
    ) -> Any:
        configs = [
            {"name": name, "configOperation": operation, "value": value} for name, operation, value in changes
        ]
        resource = {"resourceType": kind, "resourceName": topic, "configs": configs}
        return client.ask(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validateOnly": False})

    for changes in (
        [("retention.ms", 0, "5000")], [("retention.ms", 1, None)], [("cleanup.policy", 2, "compact")],
        [("cleanup.policy", 3, "delete")], [("retention.ms", 2, "5")], [("retention.ms", 0, "many")],
        [("no.such", 0, "1")], [("retention.ms", 0, None)], [("retention.ms", 0, "1"), ("retention.ms", 1, None)],
    ):  # fmt: skip
        same(both, ask, *changes)
    same(both, ask, ("retention.ms", 0, "1"), topic="missing")


@pytest.mark.parametrize("version", ALTER_CONFIGS.request.versions)
def test_replacing_settings(both: Any, version: int) -> None:
    """AlterConfigs agrees for values and for refused changes, and replaces all settings of a topic."""
    name = f"replaced-{version}"
    create(both, name, configs=[{"name": "retention.ms", "value": "1"}, {"name": "segment.ms", "value": "2"}])

    def ask(
        client: RawClient, *values: tuple[str, str | None], topic: str = name, only_check: bool = False
    ) -> Any:
        configs = [{"name": name, "value": value} for name, value in values]
        resource = {"resourceType": 2, "resourceName": topic, "configs": configs}
        return client.ask(ALTER_CONFIGS, {"resources": [resource], "validateOnly": only_check}, version)

    def overrides(client: RawClient) -> dict[str, Any]:
        found = described(client, 2, name)
        return {key: one["value"] for key, one in found.items() if 1 == one["configSource"]}

    def same_overrides() -> dict[str, Any]:
        """Wait until the broker, which learns of changes late, has the same overrides as we; return ours."""
        ours = overrides(both[1])
        wait_until(lambda: ours == overrides(both[0]), "the broker has the same overrides")
        return ours

    same(both, ask, ("segment.ms", "3"), only_check=True)
    assert {"retention.ms": "1", "segment.ms": "2"} == same_overrides()
    for values in (
        [("retention.ms", None)], [("retention.ms", "many")], [("no.such", "1")],
        [("retention.ms", "1"), ("retention.ms", "2")],
    ):  # fmt: skip
        same(both, ask, *values)
    same(both, ask, ("retention.ms", "1"), topic="missing")
    assert {"retention.ms": "1", "segment.ms": "2"} == same_overrides()
    same(both, ask, ("segment.ms", "3"), ("cleanup.policy", "compact"))
    assert {"segment.ms": "3", "cleanup.policy": "compact"} == same_overrides()
    same(both, ask)
    assert {} == same_overrides()


def test_describing(both: Any) -> None:
    """DescribeCluster and paged DescribeTopicPartitions agree."""
    for version in DESCRIBE_CLUSTER.request.versions:
        for kind in (1, 2, 3)[: 3 if version else 1]:
            asked = {
                "includeClusterAuthorizedOperations": True,
                "endpointType": kind,
                "includeFencedBrokers": False,
            }
            same(both, RawClient.ask, DESCRIBE_CLUSTER, asked, version)
    create(both, "many-1", "many-2", numPartitions=3, replicationFactor=1)
    cursor = None
    for _ in range(4):
        asked = {
            "topics": [{"name": f"many-{n}"} for n in (2, 1, 3)],
            "responsePartitionLimit": 2,
            "cursor": cursor,
        }
        cursor = same(both, RawClient.ask, DESCRIBE_TOPIC_PARTITIONS, asked)["nextCursor"]
    assert cursor is None


def test_versions(both: Any) -> None:
    """ApiVersions has the broker's versions of each supported request. Its answer has the old header."""
    theirs, ours = (
        {
            one["apiKey"]: (one["minVersion"], one["maxVersion"])
            for one in client.ask(
                messages.API_VERSIONS, {"clientSoftwareName": "t", "clientSoftwareVersion": "1"}
            )["apiKeys"]
        }
        for client in both
    )
    theirs[LIST_TRANSACTIONS.key] = (0, 1)  # The next version has a regular expression.
    assert {key: theirs[key] for key in ours} == ours
    for name in ("", "-a", "a b"):
        asked = {"clientSoftwareName": name, "clientSoftwareVersion": "1"}
        theirs_code, ours_code = (client.ask(messages.API_VERSIONS, asked, 3)["errorCode"] for client in both)
        assert theirs_code == ours_code


LATER = {"errors.deadletterqueue.group.enable", "remote.copy.lag.bytes", "remote.copy.lag.ms"}
"""Settings of topics that brokers newer than 4.3.1 have."""
SET_FOR_THE_BROKER = {"segment.index.bytes", "min.insync.replicas"}
"""Settings of topics whose default is set for the test's broker, or by its controller."""
OWN_OF_BROKERS = {
    "follower.replication.throttled.rate",
    "log.scrub.interval.hours",
    "producer.id.expiration.check.interval.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Settings that topicfs describes for its broker, and that Kafka's broker does not describe."""


def described(client: RawClient, kind: int, name: str) -> dict[str, Any]:
    """Return the descriptions of a resource's settings by their names."""
    asked = {"resources": [{"resourceType": kind, "resourceName": name, "configurationKeys": None}]}
    asked |= {"includeSynonyms": True, "includeDocumentation": True}
    [result] = client.ask(DESCRIBE_CONFIGS, asked)["results"]
    assert 0 == result["errorCode"]
    for one in result["configs"]:
        one["documentation"] = bool(one["documentation"])  # The wording may differ.
    return {one["name"]: one for one in result["configs"]}


def test_descriptions_of_a_topics_settings(both: Any) -> None:
    """DescribeConfigs agrees on each setting of a topic: value, type, source, synonyms, sensitivity, documentation."""
    names = ("retention.ms", "cleanup.policy", "segment.ms", "leader.replication.throttled.replicas")
    values = ("1000000", "compact,delete", "5000", "0:1")
    configs = [{"name": name, "value": value} for name, value in zip(names, values, strict=True)]
    create(both, "described", configs=configs)
    theirs, ours = (described(client, 2, "described") for client in both)
    assert LATER == ours.keys() - theirs.keys()
    for settings in (theirs, ours):
        for name in SET_FOR_THE_BROKER:
            settings[name] = settings[name]["configType"]
    assert [] == list(differences(theirs, {name: one for name, one in ours.items() if name not in LATER}))


def test_descriptions_of_a_brokers_settings(both: Any) -> None:
    """DescribeConfigs agrees on the type and the sensitivity of each setting of the broker."""
    theirs, ours = (described(client, 4, "1") for client in both)
    assert OWN_OF_BROKERS == ours.keys() - theirs.keys()
    fields = ("configType", "isSensitive", "documentation")
    shared = sorted(ours.keys() & theirs.keys())
    assert [[theirs[name][field] for field in fields] for name in shared] == [
        [ours[name][field] for field in fields] for name in shared
    ]
