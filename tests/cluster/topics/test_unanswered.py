"""Tests of topics while one partition's leader is silent: the partition is unknown rather than absent."""

from __future__ import annotations

import errno
from contextlib import contextmanager

import pytest
import trio
import trio.testing

from testing.broker.client import Outgoing
from tests.doubles.mount_client import mounted
from tests.doubles.producing import connected, impatient, values
from tests.doubles.remote_client import Program
from tests.doubles.waiting import wait_until
from topicfs.cluster.errors import LEADER_NOT_AVAILABLE
from topicfs.coordination.membership import Position
from topicfs.fusefs.appending.partitioners import KafkaPartitioner
from topicfs.fusefs.appending.targets import Encoder, TopicTarget
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.forms import FORMS
from topicfs.fusefs.groups.positions import lags
from topicfs.fusefs.reports import Reports
from topicfs.protocol.messages import LIST_OFFSETS
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.partitioning import partition_of_key

pytestmark = pytest.mark.java

TOPIC = "silent"
TIME = 1_700_000_000_000
PARTITIONS = 4
SILENT = 2
"""The partition whose leader does not answer ListOffsets."""
KV = next(form for form in FORMS if form.suffix == ".kv")
TEXT = b"".join(b"key %d\tvalue %d\n" % (number, number) for number in range(40))


@contextmanager
def withheld(relay, topic, partition=SILENT):
    """During the block no broker reports the partition's end, as while its leader is being elected."""

    def left_out(answer):
        for one in answer["topics"]:
            for each in one["partitions"]:
                if (one["name"], each["partitionIndex"]) == (topic, partition):
                    each |= {"errorCode": LEADER_NOT_AVAILABLE, "offset": -1, "timestamp": -1}
        return answer

    relay.always(LIST_OFFSETS, left_out)
    try:
        yield
    finally:
        relay.always(LIST_OFFSETS, None)


@pytest.fixture
def engine(address, client, relay):
    """An engine over a topic with one record per partition. It knows the bounds of all partitions but one."""
    client.create_topic(TOPIC, partitions=PARTITIONS)
    for number in range(PARTITIONS):
        client.produce(TOPIC, [Outgoing(b"%d" % number, timestamp=TIME + number)], partition=number)
    with withheld(relay, TOPIC), connected(address, relay.connect) as engine:
        wait_until(lambda: engine.look() or TOPIC in engine.topics(), "the topic is listed")
        yield engine
    client.delete_topics([TOPIC])


@pytest.fixture
def silent(engine):
    return engine.topic(TOPIC)


@pytest.fixture
async def program(engine):
    async with mounted(engine, None) as client:
        yield Program(client)


def test_a_partition_without_an_answer_is_shown_with_the_reason(silent):
    """All partitions in the metadata are shown; the partition without an answer is offline, the others work."""
    assert list(range(PARTITIONS)) == list(silent.partitions())
    states = [one.status().offline for one in silent.partitions().values()]
    assert [SILENT] == [number for number, reason in enumerate(states) if reason is not None]
    assert "its leader answers LEADER_NOT_AVAILABLE" == states[SILENT]
    assert [SILENT] == [number for number, one in silent.partitions().items() if one.summary().offline]


def test_keys_are_hashed_over_all_partitions_even_if_leaders_are_silent(silent, client):
    """Keys are hashed over all partitions of the metadata, even if some of their leaders are silent."""
    target = TopicTarget(
        f"{TOPIC}/log.kv", silent, Encoder(KV, system_clock, Reports(system_clock)), KafkaPartitioner()
    )
    target.append(TEXT)
    expected = {number: [b"%d" % number] for number in range(PARTITIONS)}
    for line in TEXT.splitlines():
        key, value = line.split(b"\t")
        expected[partition_of_key(key, PARTITIONS)].append(value)
    assert expected == {number: values(client, TOPIC, number) for number in range(PARTITIONS)}


@pytest.mark.parametrize(
    "path", ["log", "@2023-", f"{SILENT}/log", f"{SILENT}/-1", f"{SILENT}/0", f"{SILENT}/start"]
)
async def test_reading_a_silent_partition_fails(program, engine, path):
    """If one partition does not answer, reading the topic fails with EIO.

    Without the error, a reader would not notice the missing records.
    """
    with impatient(engine, 0.2), pytest.raises(FileError) as refused:
        await program.cat(f"{TOPIC}/{path}")
    assert errno.EIO == refused.value.number
    assert f"{TOPIC}-{SILENT}" in str(refused.value.reason)


@pytest.mark.parametrize("path", ["follow", f"{SILENT}/follow"])
async def test_following_a_silent_partition_fails(program, engine, path):
    """Following the topic fails with EIO, because the end of the silent partition is unknown."""
    with impatient(engine, 0.2), pytest.raises(FileError) as refused:
        await program.open(f"{TOPIC}/{path}")
    assert errno.EIO == refused.value.number


async def test_a_read_waits_for_the_answer(program, relay):
    """A read that begins while the leader is silent returns all records once it answers."""
    found = []

    async def read():
        found.append(await program.cat(f"{TOPIC}/log"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        relay.always(LIST_OFFSETS, None)
    assert [b"0\n1\n2\n3\n"] == found


def test_the_partition_is_known_once_its_leader_answers(silent, relay):
    """When the leader answers, listeners are called, and the partition is followed like the others."""
    heard = []
    partition = silent.partitions()[SILENT]
    partition.listen(lambda: heard.append(partition.offsets().log_end_offset))
    relay.always(LIST_OFFSETS, None)
    wait_until(lambda: partition.unknown is None, "the leader of the partition answers")
    assert (None, 1, [1]) == (partition.status().offline, partition.offsets().log_end_offset, heard[:1])


def test_a_topic_is_not_deleted_while_one_says_nothing(engine, client):
    """A topic with a silent partition is not deleted as empty, because that partition may hold records."""
    client.delete_records(TOPIC, 1, partition=0)
    for number in set(range(PARTITIONS)) - {SILENT}:
        client.delete_records(TOPIC, 1, partition=number)
    with impatient(engine, 0.2), pytest.raises(PartitionOfflineError, match=f"{TOPIC}-{SILENT}"):
        engine.delete_topic(TOPIC, with_records=False)
    assert TOPIC in client.topics()


def test_positions_and_lags_list_all_partitions(engine, client):
    """Positions and lags list all partitions of the metadata; the silent partition's lag is unknown."""
    place = TopicPartition(TOPIC, SILENT)
    engine.groups.set_positions("unanswered", {place: Position(Offset(0))})
    assert {place: None} == lags(engine, engine.groups.positions("unanswered").committed)
    assert PARTITIONS == engine.groups.partition_counts()[TOPIC]
