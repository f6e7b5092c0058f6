"""Tests of answers with names, numbers and sizes that no Kafka broker sends."""

from __future__ import annotations

import gc
import tracemalloc
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.cluster.protocol.test_connection import agreeing, answered
from tests.doubles.servers import Start
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.engine import open_engine
from topicfs.cluster.place import ClusterAddress
from topicfs.protocol.messages import METADATA
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.wire import MAX_STRUCTURES

ILLEGAL = ("../evil", "x/y", "@status", "", ".", "..", "a\0b", "n\u00e4me", "x" * 250)


def described(name: str, *partitions: int) -> dict[str, Any]:
    """Return a topic as it appears in an answer to Metadata."""
    leaders = [{"partitionIndex": number, "leaderId": 1, "leaderEpoch": 0} for number in partitions]
    return {"name": name, "topicId": uuid.uuid5(uuid.NAMESPACE_DNS, name), "partitions": leaders}


def answering(start: Start, topics: Sequence[Mapping[str, Any]]) -> ClusterAddress:
    """Start a broker that answers Metadata requests with `topics` and answers no other request."""
    brokers = [{"nodeId": 1, "host": "127.0.0.1", "port": 1}]
    said = {"brokers": brokers, "clusterId": "hostile", "topics": topics}

    def then(connection, _key, version, correlation, _rest):
        connection.sendall(answered(METADATA, version, correlation, said))

    return ClusterAddress((start(agreeing(then, [(METADATA.key, 0, 13)])),))


@pytest.fixture
def hostile(served: Start) -> Iterator[Brokers]:
    """A broker that reports topics with illegal names and one topic with impossible partitions."""
    topics = [*map(described, ILLEGAL), described("good", 2, -1, 0, -(2**31))]
    with closing(Brokers(answering(served, topics))) as brokers:
        yield brokers


def test_topics_with_illegal_names_are_left_out(hostile: Brokers) -> None:
    """Topics with illegal names, and partitions below 0, are left out and reported: an illegal name could be a path."""
    for _ in range(2):  # The second answer is byte for byte the first.
        found = hostile.metadata()
        assert {"good": [0, 2]} == {name: list(topic.leaders) for name, topic in found.topics.items()}
        assert sorted(ILLEGAL) == found.illegal_names
    said = "topics with names that Kafka does not allow are left out: 9, the first is ''"
    assert said == found.warning


def test_the_engine_warns_about_illegal_names(served: Start) -> None:
    """The engine has the topics with legal names, and warns about the others."""
    address = answering(served, [described("@status")])
    with closing(open_engine(address, read_only=True)) as engine:
        assert [] == list(engine.topics())
        assert [
            "topics with names that Kafka does not allow are left out: 1, the first is '@status'"
        ] == list(engine.warnings)


def test_metadata_take_memory_in_proportion(served: Start) -> None:
    """After a Metadata answer was processed, only the partition leaders stay in memory, not the parsed answer."""
    topics = [described(f"topic-{number}", *range(1000)) for number in range(10)]
    address = answering(served, topics)
    size = len(METADATA.response.write({"topics": topics}, 13))
    with closing(Brokers(address)) as brokers:
        gc.collect()
        tracemalloc.start()
        try:
            metadata = brokers.metadata()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert 10_000 == sum(len(topic.leaders) for topic in metadata.topics.values())
    assert 0 <= peak < 8 * size


def test_an_answer_of_too_many_structures_is_refused() -> None:
    """An answer with too many structures is refused before it is parsed, because parsing needs far more memory."""
    count = MAX_STRUCTURES + 1
    answer = bytes(4) + varint_of_length(count) + bytes(4 * count)
    with pytest.raises(CorruptBatchError, match="more than 1,048,576 structures in one message"):
        METADATA.response.read(answer, 13)


def varint_of_length(count: int) -> bytes:
    """Return an array's length as flexible messages encode it."""
    rest, octets = count + 1, bytearray()
    while rest > 0x7F:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*octets, rest])
