"""Appends to a cluster are stored once and in order and are visible at once; refusals by the leader are reported."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from functools import partial

import pytest

from testing.broker.client import Client, Outgoing
from tests.doubles.broker_away import back_again
from tests.doubles.producing import (
    NOW,
    Unfetched,
    batch,
    check_appends_while_leaders_move,
    connected,
    found,
    impatient,
    opened,
    values,
)
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.engine import open_engine
from topicfs.cluster.errors import UnreachableError
from topicfs.cluster.place import cluster_address
from topicfs.cluster.protocol.connection import Connection
from topicfs.cluster.topics.producer import PartitionProducer
from topicfs.protocol.messages import PRODUCE
from topicfs.storage import errors
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.binary.fields import CODEC_MASK
from topicfs.storage.codec.headers import Codec
from topicfs.storage.model import Isolation, Offset, ProducerId, Timestamp

pytestmark = pytest.mark.java

PAUSE_SECONDS = 0.01
"""Pause of a thread between appends while leaders change. Without the pause, the threads would slow down the brokers."""


class Losing(Connection):
    """Loses answers to Produce after sending the request."""

    lost = 0
    lose = staticmethod(lambda number: False)
    produced = 0

    def call_all(self, *asked, seconds):
        if asked[0][0] is PRODUCE:
            type(self).produced += 1
            if self.lose(type(self).produced):
                type(self).lost += 1
                api, request = asked[0]
                version = self.version(api)
                self._send(api, version, [api.request.write(request, version)], seconds)
                self.close()
                raise UnreachableError(f"{self.server}: the answer was lost")
        return super().call_all(*asked, seconds=seconds)


def losing(lose):
    return type("LosingNow", (Losing,), {"lose": staticmethod(lose)})


@pytest.mark.parametrize("durable", [False, True])
def test_what_was_appended_is_known_at_once(engine, client, durable):
    """An append returns its offsets; from then on, readers of both isolation levels see its records."""
    partition = opened(engine, client, f"seen-at-once-{durable}")
    assert (0, 1) == partition.append(batch(b"a", b"b"), durable=durable)[:2]
    for isolation in Isolation:
        assert 2 == partition.visible_end(isolation)
    assert (2, 2) == partition.append(batch(b"c"), durable=durable)[:2]
    assert 3 == partition.read(Offset(2), max_bytes=1 << 20).next_offset
    partition.sync()
    assert [b"a", b"b", b"c"] == values(client, partition.topic)


class Noting(Unfetched):
    """Records the requests that each append sends."""

    asked = ()

    def call_all(self, *asked, seconds):
        if asked[0][0] is PRODUCE:
            type(self).asked = tuple(api.name for api, _ in asked)
        return super().call_all(*asked, seconds=seconds)


def test_an_append_asks_for_bounds_only_beside_other_producers(address, client):
    """An append also sends ListOffsets, but only if records of other producers may precede its own."""
    connection = type("NotingNow", (Noting,), {})
    with connected(address, connection) as engine:
        partition = opened(engine, client, "alone")
        for number in range(2):
            partition.append(batch(b"mine"), durable=True)
            assert ("Produce",) == connection.asked
            assert number + 1 == partition.visible_end(Isolation.READ_COMMITTED)
        for _ in range(2):
            client.produce("alone", [Outgoing(b"another's")])
            partition.append(batch(b"mine"), durable=True)
            end = client.offset_for("alone")
            assert end == partition.visible_end(Isolation.READ_COMMITTED)
        assert ("Produce", "ListOffsets") == connection.asked
        partition.append(batch(b"mine"), durable=True)
        partition.append(batch(b"mine"), durable=True)
        assert ("Produce",) == connection.asked
        partition.append(batch(b"mine"), durable=False)
        # With acks=1 some replicas may lack the record.
        assert ("Produce", "ListOffsets") == connection.asked


def test_after_an_open_transaction_an_append_is_not_visible_yet(engine, client):
    """After an open transaction, an append does not raise the last stable offset, which comes from the leader."""
    partition = opened(engine, client, "undecided")
    producer = client.producer(transactional_id="undecided")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("undecided", b"open", partition=0)
    producer.flush(30)
    partition.append(batch(b"after"), durable=True)
    assert 0 == partition.visible_end(Isolation.READ_COMMITTED)
    assert 2 == partition.visible_end(Isolation.READ_UNCOMMITTED)
    producer.commit_transaction(30)
    wait_until(lambda: 3 == partition.visible_end(Isolation.READ_COMMITTED), "the transaction is committed")


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_each_codec_are_taken_as_they_are(engine, client, codec):
    """A leader accepts batches of each codec unchanged and in order, even several in one append."""
    partition = opened(engine, client, f"taken-{codec.name}")
    first, second = ([b"%d %d" % (each, number) for number in range(20)] for each in range(2))
    partition.append(batch(*first, codec=codec) + batch(*second, codec=codec))
    assert [*first, *second] == values(client, partition.topic)
    fetched = partition.read(Offset(0), max_bytes=1)
    assert codec is read_header(fetched.data).codec
    assert read_header(fetched.data).producer_id >= 0


@pytest.mark.parametrize(
    ("of_topic", "chosen", "expected"),
    [
        ("producer", None, Codec.NONE),
        ("zstd", None, Codec.ZSTD),
        ("uncompressed", None, Codec.NONE),
        ("producer", Codec.LZ4, Codec.LZ4),
        ("zstd", Codec.NONE, Codec.ZSTD),
    ],
)
def test_batches_made_here_are_compressed(address, client, monkeypatch, of_topic, chosen, expected):
    """A new batch is sent with the chosen codec or the topic's codec. A copied batch is sent with its own codec.

    The broker stores both with the codec of the topic's setting.
    """
    sent = []
    produce = PartitionProducer._produce
    monkeypatch.setattr(
        PartitionProducer,
        "_produce",
        lambda self, data, *rest, **how: sent.append(codec_of(data)) or produce(self, data, *rest, **how),
    )
    with closing(open_engine(address, codec=chosen)) as engine:
        name = f"compressed-{of_topic}-{chosen}"
        partition = opened(engine, client, name, compression_type=of_topic)
        lines = [b"line %d " % number * 20 for number in range(20)]
        partition.append(batch(*lines), encoded_here=True)
        partition.append(batch(b"as it is"))
        assert [expected if chosen is None else chosen, Codec.NONE] == sent
        assert expected == codec_of(partition.read(Offset(0), max_bytes=1 << 20).data)
    assert [*lines, b"as it is"] == values(client, name)


def codec_of(data):
    """Return the codec of the first batch."""
    return Codec(read_header(data, 0).attributes & CODEC_MASK)


def test_an_append_returns_the_brokers_time(engine, client):
    """With LogAppendTime an append returns the broker's time."""
    partition = opened(engine, client, "clock", message_timestamp_type="LogAppendTime")
    assert partition.append(batch(b"a")).append_time > NOW


@pytest.mark.parametrize("stamps", ["CreateTime", "LogAppendTime"])
def test_the_newest_timestamp_is_known_at_once(engine, client, stamps):
    """The newest timestamp is the batch's largest one or the leader's time; older timestamps do not lower it."""
    partition = opened(engine, client, f"newest-{stamps}", message_timestamp_type=stamps)
    answered = partition.append(batch(b"a")).append_time
    newest = answered if stamps == "LogAppendTime" else NOW
    assert newest == partition.newest_timestamp
    later = partition.append(batch(b"b", time=Timestamp(NOW - 1000))).append_time
    assert max(newest, later) == partition.newest_timestamp


def test_lost_answers_cause_no_duplicates(address, client):
    """An unanswered batch is sent again unchanged until it is answered, so each record is stored once and in order."""
    connection = losing(lambda number: number % 3 == 0)
    with connected(address, connection) as engine:
        partition = opened(engine, client, "answers-lost")
        for number in range(40):
            partition.append(batch(b"%d" % number), durable=number % 2 == 0)
    assert connection.lost > 10
    assert [b"%d" % number for number in range(40)] == values(client, "answers-lost")


def test_after_an_unknown_result_the_next_append_is_no_repetition(address, client):
    """After an append with an unknown result the next append is neither taken for a repetition nor refused."""
    lost = threading.Event()
    with connected(address, losing(lambda _: lost.is_set())) as engine:
        partition = opened(engine, client, "unknown-end")
        partition.append(batch(b"before"))
        lost.set()
        with (
            impatient(engine, 0.3),
            pytest.raises(errors.PartitionOfflineError, match="the record may be in the log"),
        ):
            partition.append(batch(b"doubtful"))
        lost.clear()
        partition.append(batch(b"after"))
        partition.append(batch(b"last"))
    assert [b"before", b"after", b"last"] == [
        value for value in values(client, "unknown-end") if value != b"doubtful"
    ]
    assert values(client, "unknown-end").count(b"doubtful") <= 1


def test_a_producer_whose_batches_the_leader_lost_gets_a_new_id(engine, client):
    """If the leader lost a producer's last batches, as in an unclean election, the producer gets a new id."""
    partition = opened(engine, client, "forgotten")
    partition.append(batch(b"a"))
    partition._producer._next_sequence += 5
    partition.append(batch(b"b"))
    partition.append(batch(b"c"))
    assert [b"a", b"b", b"c"] == values(client, "forgotten")


def test_batches_of_other_producers_are_copies(engine, client):
    """Foreign batches get new sequence numbers, so batches written twice are stored twice and none is out of order."""
    partition = opened(engine, client, "others")
    numbered = partial(batch, producer_id=ProducerId(4711), producer_epoch=0)
    assert 0 == partition.append(numbered(b"a", base_sequence=0)).base_offset
    assert 1 == partition.append(batch(b"ours")).base_offset
    assert 2 == partition.append(numbered(b"a", base_sequence=0)).base_offset
    assert 3 == partition.append(numbered(b"b", base_sequence=7)).base_offset
    assert [b"a", b"ours", b"a", b"b"] == values(client, "others")


def test_a_refused_append_fails_and_the_next_one_succeeds(engine, client):
    """A refused append fails with the cluster's message and stores nothing; the next append succeeds."""
    settings = {"max_message_bytes": "1000", "cleanup_policy": "compact"}
    partition = opened(engine, client, "refusing", message_timestamp_before_max_ms="86400000", **settings)
    now = Timestamp(int(time.time() * 1000))
    with pytest.raises(errors.RecordTooLargeError, match="raise max.message.bytes"):
        partition.append(batch(b"x" * 2000, key=b"k", time=now))
    with pytest.raises(errors.InvalidRecordError, match="key"):
        partition.append(batch(b"without a key", time=now))
    with pytest.raises(errors.InvalidTimestampError, match="before.max.ms"):
        partition.append(batch(b"old", key=b"k"))
    with pytest.raises(errors.InvalidRecordError, match="control"):
        partition.append(batch(b"x", control=True, transactional=True, producer_id=ProducerId(1)))
    with pytest.raises(errors.InvalidTransactionStateError, match="outside of a transaction"):
        partition.append(batch(b"x", transactional=True, producer_id=ProducerId(1)))
    damaged = batch(b"x", key=b"k")
    damaged[-1] ^= 1
    with pytest.raises(errors.InvalidRecordError):
        partition.append(damaged)
    assert 0 == partition.append(batch(b"taken", key=b"k", time=now)).base_offset
    assert [b"taken"] == values(client, "refusing")


def test_of_several_batches_the_first_may_be_taken_alone(engine, client):
    """Brokers take batches one at a time; the error for a refused batch says how many batches were appended before."""
    partition = opened(engine, client, "partly", max_message_bytes="1000")
    with pytest.raises(
        errors.PartlyAppendedError, match="the first 2 of 4 batches are in the log"
    ) as refused:
        partition.append(batch(b"a") + batch(b"b") + batch(b"x" * 2000) + batch(b"c"))
    assert (2, 4) == (refused.value.appended, refused.value.batches)
    partition.append(batch(b"d"))
    assert [b"a", b"b", b"d"] == values(client, "partly")


def test_too_few_replicas_are_reported(three_brokers):
    """With too few replicas in sync an append with acks=all fails and nothing is stored."""
    client = Client(three_brokers[1].bootstrap_server)
    client.create_topic("insync", partitions=3, replicas=(2, 3), settings={"min.insync.replicas": "2"})
    with connected(cluster_address(f"kafka://{client.bootstrap_server}")) as engine:
        before, partition, after = (found(engine, "insync", number) for number in range(3))
        with back_again(three_brokers[3]), impatient(engine, 3.0):
            three_brokers[3].kill()
            # A broker acts on an ISR later than it reports the ISR, and for one partition at a time.
            for probe in (before, after):
                wait_until(
                    lambda probe=probe: refuses(probe), "the leader knows that the other replica is gone"
                )
            with pytest.raises(errors.PartitionOfflineError, match=r"min\.insync\.replicas") as refused:
                partition.append(batch(b"a"), durable=True)
            assert "may be in the log" not in str(refused.value)
            assert 0 == partition.append(batch(b"b")).base_offset
    # Readers see a record when enough replicas have it, so nothing is seen before the other replica catches
    # up.
    wait_until(lambda: 2 == len(client.in_sync("insync")), "the other replica is in sync")
    wait_until(lambda: [b"b"] == values(client, "insync", 1), "the appended record alone is read")


def refuses(partition):
    """Return whether the leader refuses an append because too few replicas are in sync."""
    try:
        partition.append(batch(b"probe"), durable=True)
    except errors.PartitionOfflineError as error:
        return "min.insync.replicas" in str(error) and "may be in the log" not in str(error)
    return False


def test_a_topic_of_the_same_name_gets_nothing(engine, client):
    """A partition appends by topic id, so a new topic of the same name gets nothing."""
    partition = opened(engine, client, "renewed")
    partition.append(batch(b"a"))
    client.delete_topics(["renewed"])
    client.create_topic("renewed")
    with pytest.raises(errors.PartitionGoneError):
        partition.append(batch(b"b"))
    found(engine, "renewed")
    assert [] == values(client, "renewed")


def test_many_threads_append_to_one_partition(engine, client):
    """If many threads append to one partition, each thread's records are stored in its order."""
    partition = opened(engine, client, "threads")

    def append(number):
        for each in range(30):
            partition.append(batch(b"%d %d" % (number, each)))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    all_values = values(client, "threads")
    assert 240 == len(all_values)
    for number in range(8):
        assert [b"%d %d" % (number, each) for each in range(30)] == [
            value for value in all_values if value.startswith(b"%d " % number)
        ]


def test_a_read_only_engine_appends_nothing(address, client):
    """A read-only engine refuses appends immediately."""
    client.create_topic("read-alone")
    with closing(open_engine(address, read_only=True)) as engine:
        partition = found(engine, "read-alone")
        with pytest.raises(errors.ReadOnlyError):
            partition.append(batch(b"a"))
        partition.sync()


def test_the_end_of_an_engine_ends_what_waits(address, broker, client):
    """Closing an engine ends an append that no broker answers, and the appends queued after it."""
    with connected(address) as engine:
        partition = opened(engine, client, "ending")
        ends = []

        def append():
            try:
                partition.append(batch(b"a"))
            except errors.PartitionOfflineError as error:
                ends.append(error)

        threads = [threading.Thread(target=append) for _ in range(3)]
        with broker.paused():
            for one in threads:
                one.start()
            wait_until(partition._producer._turn.locked, "an append waits for the broker")
            engine.close()
            for one in threads:
                one.join(TIMEOUT_SECONDS)
    assert 3 == len(ends)


@pytest.mark.parametrize("how", ["stopped", "killed", "standing still"])
def test_no_acknowledged_record_is_lost_or_doubled_when_leaders_move(three_brokers, how):
    """Four threads append while the leader fails and returns; each thread's records are stored once, in order."""

    def append(partition, mine, number, stop):
        while not stop.wait(PAUSE_SECONDS):
            value = b"%d %d" % (number, len(mine))
            partition.append(batch(value), durable=True)
            mine.append(value)

    check_appends_while_leaders_move(three_brokers, how, f"leaders-{how.split()[0]}", append, threads=4)
