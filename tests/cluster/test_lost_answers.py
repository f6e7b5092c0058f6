"""Tests that each record is stored once although a relay breaks connections or changes answers."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from testing.broker.client import Outgoing
from tests.doubles.producing import batch, found, impatient, opened, values
from tests.doubles.relay import Lost
from topicfs.cluster.errors import MalformedAnswerError
from topicfs.protocol.messages import INIT_PRODUCER_ID, LIST_OFFSETS, PRODUCE
from topicfs.storage.codec.batch import read_header
from topicfs.storage.errors import NotAuthorizedError, NotEnoughReplicasError, PartitionOfflineError
from topicfs.storage.model import Isolation, Offset

pytestmark = pytest.mark.java


def test_each_record_is_in_the_log_once_whatever_is_lost(relayed, relay, client):
    """While requests and answers are lost, four threads append to two partitions, and each record is stored once."""
    chance = random.Random(14)
    ways = [_as_it_is if chance.random() < 0.5 else chance.choice(tuple(Lost)) for _ in range(200)]
    appended = {(number, part): [] for number in range(4) for part in range(2)}

    def append(partition, number, mine):
        for first in range(0, 60, 3):
            some = [b"%d %d" % (number, each) for each in range(first, first + 3)]
            partition.append(batch(some[0]) + batch(*some[1:]), durable=first % 2 == 0)
            mine.extend(some)

    client.create_topic("lossy", partitions=2)
    partitions = [found(relayed, "lossy", number) for number in range(2)]
    relay.do(PRODUCE, *ways)
    relay.do(INIT_PRODUCER_ID, Lost.ANSWER)
    threads = [
        threading.Thread(target=append, args=(partitions[part], number, mine))
        for (number, part), mine in appended.items()
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for (number, part), mine in appended.items():
        written = values(client, "lossy", part)
        assert 60 == len(mine)
        assert mine == [value for value in written if value.startswith(b"%d " % number)]


def test_no_batch_carries_an_invalid_producer_id(relayed, relay, client):
    """A coordinator that is loading may assign producer id -1. No batch is sent with this id.

    A broker would not recognize a repeated batch without a valid producer id.
    """
    loading = lambda said: {**said, "errorCode": 14, "producerId": -1, "producerEpoch": -1}  # noqa: E731
    silent = lambda said: {**said, "producerId": -1, "producerEpoch": -1}  # noqa: E731
    partition = opened(relayed, client, "loading")
    relay.do(INIT_PRODUCER_ID, loading, silent, loading)
    partition.append(batch(b"a"))
    fetched = partition.read(Offset(0), max_bytes=1)
    assert read_header(fetched.data).producer_id >= 0
    assert relay.done(INIT_PRODUCER_ID)


def test_a_missing_producer_id_is_an_error(relayed, relay, client):
    """If the cluster assigns no producer id, nothing is appended, and the error names the missing right."""
    refused = lambda said: {**said, "errorCode": 31, "producerId": -1}  # noqa: E731
    partition = opened(relayed, client, "no-id")
    relay.do(INIT_PRODUCER_ID, refused)
    with pytest.raises(NotAuthorizedError, match="IdempotentWrite"):
        partition.append(batch(b"a"))
    partition.append(batch(b"b"))
    assert [b"b"] == values(client, "no-id")


@pytest.mark.parametrize("durable", [False, True])
def test_appends_after_an_unknown_result_are_stored(relayed, relay, client, durable):
    """After appends with an unknown result, each acknowledged append is stored once, even if several appends waited."""
    told, doubtful = [], []

    def append(partition, value):
        try:
            partition.append(batch(value), durable=durable)
            told.append(value)
        except PartitionOfflineError as error:
            doubtful.append((value, str(error)))

    partition = opened(relayed, client, f"unknown-{durable}")
    append(partition, b"first")
    relay.always(PRODUCE, Lost.ANSWER)
    threads = [threading.Thread(target=append, args=(partition, b"%d" % number)) for number in range(5)]
    with impatient(relayed, 0.5):
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    relay.always(PRODUCE, None)
    for value in (b"next", b"last"):
        append(partition, value)
    assert [b"first", b"next", b"last"] == told
    counts = Counter(values(client, f"unknown-{durable}"))
    assert {1} == set(counts.values())
    assert {b"first", b"next", b"last"} <= set(counts)
    sent = {value for value, text in doubtful if "may be in the log" in text}
    assert set(counts) - set(told) <= sent
    assert 5 == len(doubtful)


def test_replicas_that_fall_behind_cause_no_duplicates(relayed, relay, client):
    """After NOT_ENOUGH_REPLICAS_AFTER_APPEND the record is in the log; retries go on until enough replicas have it."""
    behind = _erring(20)
    partition = opened(relayed, client, "behind")
    relay.do(PRODUCE, behind, behind)
    assert 0 == partition.append(batch(b"a"), durable=True).base_offset
    assert 1 == partition.append(batch(b"b"), durable=True).base_offset
    assert [b"a", b"b"] == values(client, "behind")


def test_missing_replicas_are_reported(relayed, relay, client):
    """After the time limit the error says that replicas are missing, and whether the record may be in the log."""
    partition = opened(relayed, client, "stay-away")
    relay.always(PRODUCE, _erring(20))
    with (
        impatient(relayed, 0.3),
        pytest.raises((NotEnoughReplicasError, PartitionOfflineError), match="may be in the log"),
    ):
        partition.append(batch(b"maybe"), durable=True)
    relay.always(PRODUCE, None)
    partition.append(batch(b"after"), durable=True)
    assert [b"maybe", b"after"] == values(client, "stay-away")


def test_the_bounds_are_known_though_their_answer_is_lost(relayed, relay, client):
    """If the answer to ListOffsets is lost but the append's answer arrives, the append succeeds and is visible."""
    nonsense = lambda said: {**said, "topics": []}  # noqa: E731
    partition = opened(relayed, client, "bounds-lost")
    for number, way in enumerate((Lost.REQUEST, Lost.ANSWER, nonsense), start=1):
        relay.do(LIST_OFFSETS, way)
        # After an append that not all replicas have, readers' bounds come from ListOffsets only.
        assert number - 1 == partition.append(batch(b"%d" % number), durable=False).base_offset
        for isolation in Isolation:
            assert number == partition.visible_end(isolation)
    assert [b"1", b"2", b"3"] == values(client, "bounds-lost")


def test_after_a_malformed_answer_the_result_is_unknown(relayed, relay, client):
    """After a malformed answer the result of the append is unknown, and the next append is stored once."""
    nothing = lambda said: {**said, "responses": []}  # noqa: E731
    partition = opened(relayed, client, "senseless")
    relay.do(PRODUCE, nothing)
    with pytest.raises(MalformedAnswerError):
        partition.append(batch(b"a"))
    partition.append(batch(b"b"))
    assert [b"a", b"b"] == values(client, "senseless")


def test_batches_can_be_copied_between_partitions(relayed, client):
    """A batch copied to another partition is sent with that partition's producer id, so that the leader appends it."""
    client.create_topic("copied-here", partitions=2)
    source, copy = (found(relayed, "copied-here", number) for number in range(2))
    for value in (b"a", b"b"):
        source.append(batch(value))
    copy.append(batch(b"before"))
    data = bytearray(source.read(Offset(0), max_bytes=1 << 20).data)
    assert 1 == copy.append(data).base_offset
    copy.append(batch(b"after"))
    copy.append(batch(b"last"))
    assert [b"before", b"a", b"b", b"after", b"last"] == values(client, "copied-here", 1)


def test_records_deleted_meanwhile_change_nothing(relayed, client):
    """Appends succeed even after the leader forgot a producer because all its records were deleted."""
    partition = opened(relayed, client, "deleted-below")
    for number in range(3):
        partition.append(batch(b"%d" % number))
    client.delete_records("deleted-below", 3)
    partition.append(batch(b"3"))
    client.produce("deleted-below", [Outgoing(b"4")])
    partition.append(batch(b"5"))
    assert [b"3", b"4", b"5"] == values(client, "deleted-below")


def _erring(code):
    """Return a function that puts the error `code` into an answer to Produce."""

    def change(said):
        parts = [
            {**one, "errorCode": code, "baseOffset": -1} for one in said["responses"][0]["partitionResponses"]
        ]
        return {**said, "responses": [{**said["responses"][0], "partitionResponses": parts}]}

    return change


def _as_it_is(said):
    return said
