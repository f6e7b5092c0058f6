"""Tests of an engine of three brokers while leaders are killed or paused, or lose records."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager

import pytest

from testing.broker.client import Client, Outgoing
from tests.doubles.broker_away import back_again
from tests.doubles.producing import found
from tests.doubles.waiting import wait_until
from topicfs.cluster.engine import open_engine
from topicfs.cluster.place import cluster_address
from topicfs.storage.codec.columns import decode
from topicfs.storage.errors import OffsetOutOfRangeError, StorageError
from topicfs.storage.model import Isolation, Offset

pytestmark = pytest.mark.java

PAUSE_SECONDS = 0.01
"""Pause of a thread between two reads. Without the pause, the threads would slow down the brokers that the test waits
for.
"""


@pytest.fixture
def client(three_brokers):
    return Client(three_brokers[1].bootstrap_server)


@pytest.fixture
def engine(client, three_brokers):
    with closing(open_engine(cluster_address(f"kafka://{client.bootstrap_server}"))) as engine:
        yield engine


def value_at(partition, offset):
    partition._reader.forget()
    fetched = partition.read(Offset(offset), max_bytes=1, isolation=Isolation.READ_UNCOMMITTED)
    return next(
        record.value
        for columns in decode(fetched.data, aborted=fetched.aborted)
        for record in columns
        if record.offset >= offset
    )


@contextmanager
def read_by_many(partition, count):
    """Read records by offset in eight threads during the block; yields the errors and each thread's reads."""
    stop, errors, reads = threading.Event(), [], [0] * 8

    def read(number):
        while not stop.wait(PAUSE_SECONDS):
            try:
                offset = reads[number] % count
                assert b"%d" % offset == value_at(partition, offset)
                reads[number] += 1
            except (StorageError, AssertionError) as error:
                errors.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    try:
        yield errors, reads
    finally:
        stop.set()
        for one in threads:
            one.join(60)


@pytest.mark.parametrize("how", ["killed", "standing still"])
def test_reads_and_new_records_continue_with_another_leader(engine, client, three_brokers, how):
    """No read fails while the leader changes, and records appended to the new leader become visible."""
    name = f"moved-{how.split()[0]}"
    client.create_topic(name, replicas=(2, 3, 1), settings={"min.insync.replicas": "1"})
    client.produce(name, [Outgoing(b"%d" % number) for number in range(20)], batch=2)
    partition = found(engine, name)
    wait_until(lambda: partition.visible_end(Isolation.READ_COMMITTED) == 20, "the records are visible")
    partition.listen(lambda: None)
    leader = three_brokers[2]
    with back_again(leader), read_by_many(partition, 20) as (errors, reads):
        wait_until(lambda: min(reads) > 2, "all threads read")
        with leader.paused():
            if how == "killed":
                leader.kill()
            wait_until(
                lambda: engine.leaders.metadata.leader(partition.name).node in (1, 3), "another broker leads"
            )
            before = list(reads)
            wait_until(lambda: all(map(int.__gt__, reads, before)), "all threads read again")
            client.produce(name, [Outgoing(b"after")], acks="all")
            wait_until(
                lambda: partition.visible_end(Isolation.READ_COMMITTED) == 21, "the records are visible"
            )
        assert b"after" == value_at(partition, 20)
    assert [] == errors


def test_what_a_leader_loses_is_gone(engine, client, three_brokers):
    """After an unclean election the partition ends earlier, and records cached from the old leader are not returned."""
    second, third = three_brokers[2], three_brokers[3]
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    client.create_topic("lost", replicas=(2, 3), settings=settings)
    client.produce("lost", [Outgoing(b"a"), Outgoing(b"b")], batch=1)
    with back_again(second, third):
        third.kill()
        client.produce("lost", [Outgoing(b"c"), Outgoing(b"d"), Outgoing(b"e")], batch=1)
        partition = found(engine, "lost")
        partition.listen(lambda: None)
        wait_until(lambda: partition.visible_end(Isolation.READ_COMMITTED) == 5, "the records are visible")
        assert 5 == partition.read(Offset(0), max_bytes=1 << 20).next_offset
        second.kill()
        third.start()
        client.produce("lost", [Outgoing(b"new")])
        wait_until(lambda: partition.visible_end(Isolation.READ_COMMITTED) == 3, "the log ends earlier")
        assert b"new" == value_at(partition, 2)
        with pytest.raises(OffsetOutOfRangeError):
            partition.read(Offset(4), max_bytes=1)
