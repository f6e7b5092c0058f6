"""Tests of fetches by topic id and by name, which return the stored batches, and of requests for bounds."""

from __future__ import annotations

from contextlib import closing

import pytest

from testing.broker.client import Outgoing
from tests.cluster.protocol.test_connection import agreeing, answered
from topicfs.cluster import errors
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.fetch import (
    EARLIEST,
    LATEST,
    FetchPartition,
    FetchSession,
    epoch_ends,
    fetch,
    list_offsets,
)
from topicfs.cluster.brokers.settings import topic_settings
from topicfs.cluster.place import ClusterAddress, Server
from topicfs.cluster.protocol.connection import Connection
from topicfs.protocol.messages import FETCH, LIST_OFFSETS
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.checkpoints.leader_epochs import EpochEnd
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.columns import decode
from topicfs.storage.model import Isolation, Offset, TopicPartition

NODE = 1


@pytest.fixture
def brokers(address):
    with closing(Brokers(address)) as brokers:
        brokers.metadata()
        yield brokers


class OldConnection(Connection):
    """A connection that supports no version of Fetch with topic ids."""

    def version(self, api):
        return 12 if api is FETCH else super().version(api)


def read(brokers, topic_id, name, offset=0, **how):
    partition = TopicPartition(name, 0)
    answer = fetch(
        brokers, NODE, [FetchPartition(partition, topic_id, Offset(offset))], max_bytes=1 << 20, **how
    )
    return answer.partitions[partition]


@pytest.mark.java
@pytest.mark.parametrize("connection", [Connection, OldConnection], ids=["by id", "by name"])
def test_batches_come_as_they_were_produced(address, client, connection):
    """Fetched batches have the bytes that were produced and come with the partition's bounds."""
    name = f"fetched-{connection.__name__}"
    topic_id = client.create_topic(name)
    client.produce(name, [Outgoing(b"a"), Outgoing(b"b"), Outgoing(b"c")], batch=2)
    with closing(Brokers(address, connection)) as brokers:
        brokers.metadata()
        found = read(brokers, topic_id, name)
        assert (0, 3, 3, 0, None) == (
            found.error,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            found.diverging,
        )
        assert [(0, 1), (2, 2)] == [(one.base_offset, one.last_offset) for one in scan(found.records)]
        assert [b"c"] == [
            record.value for columns in decode(read(brokers, topic_id, name, 2).records) for record in columns
        ]
        assert 1 == read(brokers, topic_id, name, 4).error


@pytest.mark.java
def test_isolation_and_aborted_transactions(brokers, client):
    """A read_committed fetch ends at the first open transaction and lists the aborted transactions."""
    topic_id = client.create_topic("isolated")
    producer = client.producer(transactional_id="fetching")
    producer.init_transactions(30)
    with client.transaction(producer, commit=False):
        producer.produce("isolated", b"aborted", partition=0)
    with client.transaction(producer):
        producer.produce("isolated", b"committed", partition=0)
    producer.begin_transaction()
    producer.produce("isolated", b"open", partition=0)
    producer.flush(30)
    committed = read(brokers, topic_id, "isolated")
    assert (4, [0]) == (committed.last_stable_offset, [one.first_offset for one in committed.aborted])
    assert 3 == list(scan(committed.records))[-1].last_offset
    everything = read(brokers, topic_id, "isolated", isolation=Isolation.READ_UNCOMMITTED)
    assert (4, ()) == (list(scan(everything.records))[-1].last_offset, everything.aborted)
    producer.abort_transaction(30)


@pytest.mark.java
def test_an_unknown_id_is_an_error_of_its_partition_alone(brokers, client):
    """If a fetch contains an unknown topic id, only that topic's partition has an error, and the others are read."""
    topic_id = client.create_topic("known")
    client.produce("known", [Outgoing(b"a")])
    known, unknown = TopicPartition("known", 0), TopicPartition("unknown", 0)
    wanted = [FetchPartition(unknown, new_id(), Offset(0)), FetchPartition(known, topic_id, Offset(0))]
    answer = fetch(brokers, NODE, wanted, max_bytes=1 << 20)
    assert (100, 0) == (answer.partitions[unknown].error, answer.partitions[known].error)


@pytest.mark.java
def test_a_diverged_log_is_detected(brokers, client):
    """The broker detects a diverged log by the epoch of the last batch that the client read."""
    topic_id = client.create_topic("diverging")
    client.produce("diverging", [Outgoing(b"a")])
    partition = TopicPartition("diverging", 0)
    wanted = FetchPartition(partition, topic_id, Offset(5), last_epoch=0)
    found = fetch(brokers, NODE, [wanted], max_bytes=1 << 20).partitions[partition]
    assert EpochEnd(0, Offset(1)) == found.diverging
    missing = TopicPartition("missing", 0)
    epochs = {partition: 0, missing: 0}
    assert {partition: EpochEnd(0, Offset(1))} == epoch_ends(brokers, NODE, epochs, epochs)
    assert {} == epoch_ends(brokers, NODE, epochs, {partition: 1, missing: 1})


@pytest.mark.java
def test_bounds_are_those_of_the_epoch_that_was_asked_for(brokers, client):
    """A request for bounds contains a leader epoch. If the broker leads in another epoch, it answers with an error."""
    client.create_topic("epoch")
    partition = TopicPartition("epoch", 0)
    assert {0: errors.NONE, 1: errors.UNKNOWN_LEADER_EPOCH} == {
        epoch: list_offsets(brokers, NODE, {partition: epoch}, LATEST)[partition].error for epoch in (0, 1)
    }


@pytest.mark.java
def test_bounds_by_name_and_by_time(brokers, client):
    """One request looks up the bounds of several partitions of several topics."""
    client.create_topic("bounds-a", partitions=2)
    client.create_topic("bounds-b")
    records = [Outgoing(b"v", timestamp=1_000 * number) for number in range(1, 5)]
    client.produce("bounds-a", records, partition=1, batch=1)
    client.delete_records("bounds-a", 1, partition=1)
    empty, full, other = (
        TopicPartition("bounds-a", 0),
        TopicPartition("bounds-a", 1),
        TopicPartition("bounds-b", 0),
    )

    def bounds(timestamp):
        found = list_offsets(brokers, NODE, [other, full, empty], timestamp)
        return [found[one].offset for one in (empty, full, other)]

    assert [0, 1, 0] == bounds(EARLIEST)
    assert [0, 4, 0] == bounds(LATEST)
    assert [-1, 2, -1] == bounds(2_500)
    assert [-1, -1, -1] == bounds(5_000)
    missing = TopicPartition("missing", 0)
    assert errors.UNKNOWN_TOPIC_OR_PARTITION == list_offsets(brokers, NODE, [missing], LATEST)[missing].error


@pytest.mark.java
def test_settings_that_are_not_defaults(brokers, client):
    """Only settings of topics and brokers that differ from the defaults are reported. An unknown topic is an error."""
    client.create_topic("settled", settings={"retention.ms": "77"})
    found = topic_settings(brokers, ["settled", "nowhere"])
    assert {"retention.ms": "77", "segment.index.bytes": "65536"}.items() <= found["settled"].items()
    assert "file.delete.delay.ms" not in found["settled"]
    assert "nowhere: the cluster answers UNKNOWN_TOPIC_OR_PARTITION" in str(found["nowhere"])


def records(answer):
    return {partition: len(found.records) > 0 for partition, found in answer.partitions.items()}


@pytest.mark.java
@pytest.mark.parametrize("connection", [Connection, OldConnection], ids=["by id", "by name"])
def test_a_session_names_only_what_changed(address, client, connection):
    """The first fetch of a session names all partitions. Later fetches name only added, removed or resumed partitions.

    After a failure, a fetch names all partitions again.
    """
    name = f"session-{connection.__name__}"
    topic_id = client.create_topic(name, partitions=3)
    with closing(Brokers(address, connection)) as brokers:
        brokers.metadata()
        session = FetchSession(brokers, NODE, Isolation.READ_UNCOMMITTED)
        zero, one, two = (TopicPartition(name, number) for number in range(3))
        for each in (zero, one, two):
            client.produce(name, [Outgoing(b"a")], partition=each.partition)
        wanted = {each: FetchPartition(each, topic_id, Offset(1)) for each in (zero, one)}
        assert {zero: False, one: False} == records(session.fetch(wanted.values(), max_bytes=1 << 20))
        assert {} == records(session.fetch(wanted.values(), max_bytes=1 << 20))
        client.produce(name, [Outgoing(b"b")], partition=1)
        wanted[two] = FetchPartition(two, topic_id, Offset(1))
        assert {one: True, two: False} == records(session.fetch(wanted.values(), max_bytes=1 << 20))
        wanted[one] = wanted[one]._replace(offset=Offset(2))
        assert {} == records(session.fetch(wanted.values(), max_bytes=1 << 20))
        wanted[two] = wanted[two]._replace(offset=Offset(0))
        del wanted[zero]
        client.produce(name, [Outgoing(b"a")], partition=0)
        assert {two: True} == records(session.fetch(wanted.values(), max_bytes=1 << 20))
        session._epoch += 1
        assert {one: False, two: True} == records(session.fetch(wanted.values(), max_bytes=1 << 20))
        session._id += 1
        assert {one: False, two: True} == records(session.fetch(wanted.values(), max_bytes=1 << 20))
        brokers.close()
        brokers._known = {NODE: Server("127.0.0.1", 1)}
        with pytest.raises(errors.UnreachableError):
            session.fetch(wanted.values(), max_bytes=1 << 20)
        brokers.metadata()
        assert {one: False, two: True} == records(session.fetch(wanted.values(), max_bytes=1 << 20))


@pytest.mark.java
def test_a_session_and_a_recreated_topic(brokers, client):
    """After a topic is recreated, the session drops the old id and asks for the new one."""
    session = FetchSession(brokers, NODE, Isolation.READ_UNCOMMITTED)
    partition = TopicPartition("session-remade", 0)
    first = client.create_topic(partition.topic)
    session.fetch([FetchPartition(partition, first, Offset(0))], max_bytes=1 << 20)
    client.delete_topics([partition.topic])
    second = client.create_topic(partition.topic)
    client.produce(partition.topic, [Outgoing(b"new")])
    answer = session.fetch([FetchPartition(partition, second, Offset(0))], max_bytes=1 << 20)
    assert {partition: True} == records(answer)


def test_a_throttled_answer_says_nothing_about_partitions(served):
    """A throttled answer without partitions only says how long to wait; it does not mean that the log has ended."""

    def then(connection, _key, version, correlation, _rest):
        throttled = {"throttleTimeMs": 1234, "errorCode": 0, "sessionId": 0, "responses": []}
        connection.sendall(answered(FETCH, version, correlation, throttled))

    server = served(agreeing(then))
    with closing(Brokers(ClusterAddress((server,)))) as brokers:
        brokers._known = {NODE: server}
        wanted = FetchPartition(TopicPartition("t", 0), new_id(), Offset(0))
        answer = fetch(brokers, NODE, [wanted], max_bytes=1 << 20)
    assert ({}, 1234) == (answer.partitions, answer.throttle_ms)


@pytest.mark.parametrize(
    "partitions", [[], [{"partitionIndex": 0, "offset": -1, "timestamp": -1, "leaderEpoch": 0}]]
)
def test_an_answer_that_lacks_a_bound(served, partitions):
    """An answer without a partition's bounds is malformed, so the request is sent again."""

    def then(connection, _key, version, correlation, _rest):
        found = [{"errorCode": 0, **one} for one in partitions]
        bounds = {"throttleTimeMs": 0, "topics": [{"name": "t", "partitions": found}]}
        connection.sendall(answered(LIST_OFFSETS, version, correlation, bounds))

    server = served(agreeing(then, keys=((2, 6, 11),)))
    with closing(Brokers(ClusterAddress((server,)))) as brokers:
        brokers._known = {NODE: server}
        with pytest.raises(errors.MalformedAnswerError, match="ListOffsets does not mention t-0"):
            list_offsets(brokers, NODE, [TopicPartition("t", 0)], EARLIEST)
