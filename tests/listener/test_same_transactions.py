"""A real broker and a served directory give the same answers to the same requests about transactions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.doubles.producing import batch
from tests.doubles.waiting import wait_until
from tests.listener.serving import RawClient
from tests.listener.test_same_answers import both, create, differences, shown  # noqa: F401 (`both` is a fixture)
from tests.listener.test_same_groups import version_of
from topicfs.protocol.group_messages import FIND_COORDINATOR
from topicfs.protocol.messages import API_VERSIONS, INIT_PRODUCER_ID, PRODUCE
from topicfs.protocol.notation import Api
from topicfs.protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)

pytestmark = pytest.mark.java

AGAIN = {14, 15, 16, 19, 51}
"""Codes with which a broker asks clients to retry.

The broker is loading, cannot verify a batch yet, or is still ending a transaction.
"""


class Pair:
    """Clients of both servers, each with its own producer ids."""

    def __init__(self, clients: tuple[RawClient, RawClient]) -> None:
        self.clients = clients
        self.ids = [-1, -1]

    def ask(self, api: Api, values: dict[str, Any], version: int | None = None) -> Any:
        """Send a request to both servers, with the producer id of each, and return their common answer."""
        version = api.request.versions[-1] if version is None else version
        answers = [self._one(number, api, values, version) for number in (0, 1)]
        theirs, ours = map(shown, answers)
        assert [] == list(differences(theirs, ours))
        return ours

    def _one(self, number: int, api: Api, values: dict[str, Any], version: int) -> Any:
        asked = filled(values, self.ids[number])
        answers: list[Any] = []

        def answered() -> bool:
            answers.append(self.clients[number].ask(api, version_of(api, asked, version), version))
            return not codes(answers[-1]) & AGAIN and "'Prepare" not in repr(answers[-1])

        if number == 0:
            wait_until(answered, f"the broker answers {api.name}")
        else:
            answered()
            answered() if codes(answers[-1]) & {51} else None
        return without_ids(answers[-1], self.ids[number])

    def init(self, name: str, **how: Any) -> Any:
        asked = {
            "transactionalId": name,
            "transactionTimeoutMs": 60_000,
            "producerId": -1,
            "producerEpoch": -1,
        }
        return self.ask(INIT_PRODUCER_ID, {**asked, **how}, how.pop("version", 4))

    def begin(self, name: str) -> None:
        """Initialize a producer on both servers, and note the ids."""
        for number, client in enumerate(self.clients):
            found: list[Any] = []

            def answered(client: RawClient = client, found: list[Any] = found) -> bool:
                asked = {"transactionalId": name, "transactionTimeoutMs": 60_000}
                found.append(
                    client.ask(INIT_PRODUCER_ID, {**asked, "producerId": -1, "producerEpoch": -1}, 4)
                )
                return found[-1]["errorCode"] not in AGAIN

            wait_until(answered, "the producer is initialized")
            assert 0 == found[-1]["errorCode"]
            self.ids[number] = found[-1]["producerId"]


OWN = "own"
"""Stands for the producer id that the server has assigned."""


def filled(values: Any, own: int) -> Any:
    """Return a request with `own`, the server's producer id, in place of OWN."""
    if isinstance(values, dict):
        return {name: filled(value, own) for name, value in values.items()}
    if isinstance(values, list):
        return [filled(one, own) for one in values]
    return values(own) if callable(values) else own if values is OWN else values


def without_ids(answer: Any, own: int) -> Any:
    """Return an answer without times, and with OWN in place of the producer id `own`."""
    if isinstance(answer, dict):
        return {
            name: OWN if name == "producerId" and value == own != -1 else without_ids(value, own)
            for name, value in answer.items()
            if not re.search("Time(Ms|stamp)$|^coordinatorEpoch$|^errorMessage$|TimeoutMs$", name)
        }
    if isinstance(answer, list):
        return [without_ids(one, own) for one in answer]
    return answer


def codes(answer: Any) -> set[int]:
    """Return all error codes in an answer."""
    if isinstance(answer, dict):
        own = {value for name, value in answer.items() if name.lower().endswith("errorcode")}
        return own.union(*(codes(value) for value in answer.values()))
    return set().union(*map(codes, answer)) if isinstance(answer, list) else set()


@pytest.fixture
def pair(both: tuple[RawClient, RawClient]) -> Iterator[Pair]:  # noqa: F811
    """Both servers; the fixture waits until the broker coordinates transactions."""

    def serves() -> bool:
        asked = [{"keyType": kind, "coordinatorKeys": ["any"]} for kind in (0, 1)]
        return {0} == set().union(*(codes(both[0].ask(FIND_COORDINATOR, one)) for one in asked))

    wait_until(serves, "the broker coordinates transactions")
    pair = Pair(both)
    # This producer gets the id 0, so that no other producer has it: answers about unknown names have this id.
    pair.begin("unused")
    return pair


@pytest.fixture
def topic(pair: Pair) -> str:
    name = f"txn-{uuid4()}"
    create(pair.clients, name, numPartitions=2, replicationFactor=1)
    return name


def run(name: str, epoch: int = 0, **how: Any) -> dict[str, Any]:
    return {"transactionalId": name, "producerId": OWN, "producerEpoch": epoch, **how}


def adding(name: str, epoch: int, topics: list[dict[str, Any]], **how: Any) -> dict[str, Any]:
    """Return the fields of AddPartitionsToTxn in all versions."""
    return {
        "v3AndBelowTransactionalId": name,
        "v3AndBelowProducerId": OWN,
        "v3AndBelowProducerEpoch": epoch,
        "v3AndBelowTopics": topics,
        "transactions": [{**run(name, epoch), "verifyOnly": False, "topics": topics, **how}],
    }


def produce(
    pair: Pair, name: str | None, topic: str, *, epoch: int = 0, sequence: int = 0, version: int
) -> Any:
    def records(own: int) -> bytes:
        return bytes(
            batch(b"v", producer_id=own, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        )

    data = {"name": topic, "partitionData": [{"index": 0, "records": records}]}
    asked = {"transactionalId": name, "acks": -1, "timeoutMs": 5000, "topicData": [data]}
    [answered] = pair.ask(PRODUCE, asked, version)["responses"]
    return answered["partitionResponses"][0]["errorCode"]


@pytest.mark.parametrize("version", FIND_COORDINATOR.request.versions[1:])
def test_find_coordinator(pair: Pair, version: int) -> None:
    """FindCoordinator names the broker as the coordinator of a transactional id."""
    pair.ask(FIND_COORDINATOR, {"key": "a", "keyType": 1, "coordinatorKeys": ["a", "b"]}, version)


def test_the_finalized_feature(pair: Pair) -> None:
    """Both servers announce the same version of transactions."""
    for version in (3, 4):
        asked = {"clientSoftwareName": "t", "clientSoftwareVersion": "1"}
        found = [
            {
                name: [
                    one
                    for one in client.ask(API_VERSIONS, asked, version)[name]
                    if one["name"] == "transaction.version"
                ]
                for name in ("supportedFeatures", "finalizedFeatures")
            }
            for client in pair.clients
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize("version", INIT_PRODUCER_ID.request.versions)
def test_producers_that_begin(pair: Pair, version: int) -> None:
    """InitProducerId agrees for new, known and invalid producers."""
    name = f"init-{version}-{uuid4()}"
    pair.begin(name)
    for epoch in (1, 2):
        found = pair.init(name, version=version)
        assert (0, epoch) == (found["errorCode"], found["producerEpoch"])
    for how in (
        {"transactionalId": ""},
        {"transactionTimeoutMs": 0},
        {"transactionTimeoutMs": 900_001},
    ):
        assert pair.init(name, version=version, **how)["errorCode"]
    if version >= 3:
        for how in (
            {"producerId": OWN},
            {"producerEpoch": 3},
            {"producerId": OWN, "producerEpoch": 0},
            {"producerId": 77, "producerEpoch": 2},
            {"producerId": OWN, "producerEpoch": 2},
            {"producerId": OWN, "producerEpoch": 2},
            {"producerId": OWN, "producerEpoch": 1},
        ):
            pair.init(name, version=version, **how)


@pytest.mark.parametrize("version", ADD_PARTITIONS_TO_TXN.request.versions)
@pytest.mark.parametrize("ends", END_TXN.request.versions)
def test_the_life_of_a_transaction(pair: Pair, topic: str, version: int, ends: int) -> None:
    """Answers to adding partitions and ending a transaction agree, even for repeated and wrong requests."""
    name = f"life-{uuid4()}"
    pair.begin(name)
    known = [{"name": topic, "partitions": [0, 1]}]

    def end(epoch: int = 0, *, commit: bool = True, of: str = name) -> Any:
        return pair.ask(END_TXN, {**run(of, epoch), "committed": commit}, ends)["errorCode"]

    assert end()
    assert {0} == codes(pair.ask(ADD_PARTITIONS_TO_TXN, adding(name, 0, known), version))
    pair.ask(ADD_PARTITIONS_TO_TXN, adding(name, 0, known), version)
    pair.ask(
        ADD_PARTITIONS_TO_TXN, adding(name, 0, [*known, {"name": "missing", "partitions": [0]}]), version
    )
    internal = [*known, {"name": "__transaction_state", "partitions": [0]}]
    if version < 4:
        assert {29, 55} == codes(pair.ask(ADD_PARTITIONS_TO_TXN, adding(name, 0, internal), version))
    for other, epoch in ((name, 1), ("unknown", 0), ("", 0)):
        assert codes(pair.ask(ADD_PARTITIONS_TO_TXN, adding(other, epoch, known), version)) - {0}
        assert end(epoch, of=other)
    if version >= 4:
        for number in (0, 5):
            asked = [{"name": topic, "partitions": [number]}]
            pair.ask(ADD_PARTITIONS_TO_TXN, adding(name, 0, asked, verifyOnly=True), version)
    pair.ask(DESCRIBE_TRANSACTIONS, {"transactionalIds": [name, "unknown"]})
    assert 0 == end()
    for commit in (True, False):
        end(commit=commit)
    for epoch in (0, 1, 2):
        for commit in (True, False):
            end(epoch, commit=commit)
    pair.ask(DESCRIBE_TRANSACTIONS, {"transactionalIds": [name]})


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_produce(pair: Pair, topic: str, version: int) -> None:
    """Transactional batches are verified, or added to the transaction, depending on the version of Produce."""
    name = f"produce-{version}-{uuid4()}"
    pair.begin(name)
    assert produce(pair, None, topic, version=version)
    assert produce(pair, "unknown", topic, version=version)
    assert produce(pair, name, topic, epoch=1, version=version)
    first = produce(pair, name, topic, version=version)
    assert (0 == first) is (version >= 12)
    if version < 12:
        pair.ask(ADD_PARTITIONS_TO_TXN, adding(name, 0, [{"name": topic, "partitions": [0]}]), 3)
        assert 0 == produce(pair, name, topic, version=version)
    assert 0 == produce(pair, name, topic, sequence=1, version=version)
    pair.ask(DESCRIBE_PRODUCERS, {"topics": [{"name": topic, "partitionIndexes": [0, 1, 5]}]})
    pair.ask(DESCRIBE_PRODUCERS, {"topics": [{"name": "missing", "partitionIndexes": [0]}]})
    ends = 5 if version >= 12 else 4
    assert 0 == pair.ask(END_TXN, {**run(name), "committed": True}, ends)["errorCode"]
    pair.ask(DESCRIBE_TRANSACTIONS, {"transactionalIds": [name]})  # Until the broker has written its markers.
    produce(pair, name, topic, sequence=2, version=version)
    assert 0 == pair.ask(LIST_TRANSACTIONS, listing(pair, ["CompleteCommit"]))["errorCode"]


def listing(pair: Pair, states: list[str]) -> dict[str, Any]:
    return {"stateFilters": states, "producerIdFilters": [OWN], "durationFilter": -1}


def test_listings(pair: Pair, topic: str) -> None:
    """ListTransactions has the transactions that the filters select, and names unknown states."""
    name = f"listed-{uuid4()}"
    pair.begin(name)
    for version in LIST_TRANSACTIONS.request.versions:
        for states in ([], ["Empty"], ["Ongoing"], ["nonsense", "Dead"], ["Empty", "PrepareEpochFence"]):
            pair.ask(LIST_TRANSACTIONS, listing(pair, states), version)


@pytest.mark.parametrize("version", TXN_OFFSET_COMMIT.request.versions)
def test_positions(pair: Pair, topic: str, version: int) -> None:
    """TxnOffsetCommit and AddOffsetsToTxn agree for groups, members and topics, whether they are known or not."""
    name, group = f"positions-{version}-{uuid4()}", f"group-{uuid4()}"
    pair.begin(name)

    def commit(epoch: int = 0, of: str = name, **how: Any) -> Any:
        partitions = [
            {"partitionIndex": number, "committedOffset": 3, "committedMetadata": text}
            for number, text in ((0, "a"), (1, "x" * 5000), (7, None))
        ]
        if version >= 2:
            partitions = [{**one, "committedLeaderEpoch": 0} for one in partitions]
        topics = [{"name": each, "partitions": partitions} for each in (topic, "missing")]
        member = {"generationId": -1, "memberId": "", "groupInstanceId": None}
        asked = {**run(of, epoch), "groupId": group, **member, "topics": topics, **how}
        return codes(pair.ask(TXN_OFFSET_COMMIT, asked, version))

    commit()
    which = min(version, ADD_OFFSETS_TO_TXN.request.versions[-1])
    for of, epoch in ((name, 0), (name, 1), ("unknown", 0), ("", 0)):
        pair.ask(ADD_OFFSETS_TO_TXN, {**run(of, epoch), "groupId": group}, which)
    assert {0, 3, 12} == commit()
    commit(epoch=1)
    commit(of="unknown")
    commit(groupId="")
    if version >= 3:
        commit(generationId=4)
        commit(memberId="nobody")
    ends = 5 if version >= 5 else 4
    assert 0 == pair.ask(END_TXN, {**run(name), "committed": True}, ends)["errorCode"]


@pytest.mark.parametrize("version", WRITE_TXN_MARKERS.request.versions)
def test_markers(pair: Pair, topic: str, version: int) -> None:
    """WriteTxnMarkers ends a transaction in a partition; a marker with an old epoch is refused."""
    name = f"markers-{uuid4()}"
    pair.begin(name)
    assert 0 == produce(pair, name, topic, version=12)

    def write(epoch: int) -> set[int]:
        topics = [{"name": topic, "partitionIndexes": [0, 9]}, {"name": "missing", "partitionIndexes": [0]}]
        marker = {"producerId": OWN, "producerEpoch": epoch, "transactionResult": False, "topics": topics}
        marker |= {"coordinatorEpoch": 0} | ({"transactionVersion": 0} if version >= 2 else {})
        return codes(pair.ask(WRITE_TXN_MARKERS, {"markers": [marker]}, version))

    assert {0, 3} == write(1)
    write(0)
