"""Tests of a mirror of three brokers while leaders change, and of its handover to another cluster with groups."""

from __future__ import annotations

from contextlib import suppress

import pytest
from click.testing import CliRunner

from testing.broker.broker import running_broker
from testing.broker.client import Client, Outgoing
from tests.cluster.mirror.conftest import running, values
from tests.doubles.broker_away import back_again
from tests.doubles.waiting import wait_until
from topicfs.cluster.place import cluster_address
from topicfs.main import cli
from topicfs.storage.errors import CorruptionError

pytestmark = pytest.mark.java


def wait_for(expected, directory, topic):
    def copied():
        # While a copy is being truncated, its file may be shorter than when the test opened it.
        with suppress(CorruptionError):
            return (directory / f"{topic}-0").exists() and expected == values(directory, topic)

    wait_until(copied, f"the copy has {expected}")


def test_a_leader_that_is_killed_and_an_unclean_election(three_brokers, tmp_path):
    """The copy drops the records of epochs that the new leader never had; its files then equal the leader's files."""
    second, third = three_brokers[2], three_brokers[3]
    client = Client(three_brokers[1].bootstrap_server)
    address = cluster_address(f"kafka://{client.bootstrap_server}")
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    client.create_topic("unclean", replicas=(2, 3), settings=settings)
    client.produce("unclean", [Outgoing(b"a"), Outgoing(b"b")], batch=1)
    copy = tmp_path / "copy"
    with back_again(second, third), running(address, copy, "unclean") as said:
        wait_for([b"a", b"b"], copy, "unclean")
        third.kill()
        client.produce("unclean", [Outgoing(b"c"), Outgoing(b"d")], batch=1)
        wait_for([b"a", b"b", b"c", b"d"], copy, "unclean")
        second.kill()
        third.start()
        client.produce("unclean", [Outgoing(b"e")])
        wait_for([b"a", b"b", b"e"], copy, "unclean")
    assert [line for line in said if "cut back from 4 to 2: its leader's epoch" in line]
    for name in ("00000000000000000000.log", "leader-epoch-checkpoint"):
        theirs, ours = (directory / "unclean-0" / name for directory in (third.log_dir, copy))
        wait_until(lambda: theirs.read_bytes() == ours.read_bytes(), f"{name} is equal")  # noqa: B023 (at once)


def newest(client, topic):
    """Return the newest record of each key. Compaction keeps these records."""
    return {record.key: record for record in client.records(topic)}


def test_a_group_continues_in_another_cluster(copy, three_brokers, java, tmp_path):
    """A mirror of three brokers, handed to one broker, keeps offsets, transactions, compaction and group positions."""
    client = Client(three_brokers[1].bootstrap_server)
    copy.address = cluster_address(f"kafka://{client.bootstrap_server}")
    compacted = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    client.create_topic("keyed", replicas=(3, 1, 2), settings=compacted)
    client.produce("keyed", [Outgoing(b"%d" % number, b"k%d" % (number % 2)) for number in range(8)], batch=1)
    client.create_topic("moving", partitions=2, replicas=(2, 3, 1))
    client.produce("moving", [Outgoing(b"a"), Outgoing(b"b"), Outgoing(b"c")], partition=0)
    producer = client.producer(transactional_id="moving")
    producer.init_transactions(30)
    with client.transaction(producer, commit=False):
        producer.produce("moving", b"aborted", partition=1)
    with client.transaction(producer):
        producer.produce("moving", b"committed", partition=1)
    first = client.consume_in_group("movers", "moving", 4)
    client.produce("moving", [Outgoing(b"d")], partition=0)

    def is_compacted():
        # The broker closes a segment when a record is appended after the segment's time.
        client.produce("keyed", [Outgoing(b"x", b"other")])
        return client.records("keyed")[0].offset > 0

    wait_until(is_compacted, "the broker has compacted")
    assert () == copy.once("moving", "keyed", groups=True).problems
    with running_broker(tmp_path / "second", java) as second:
        words = ["handover", str(copy.directory), "--bootstrap-server", second.bootstrap_server]
        words += ["--log-dir", str(second.log_dir), "--no-wait"]
        CliRunner().invoke(cli, words)
        second.stop()
        placed = CliRunner().invoke(cli, words)
        assert 0 == placed.exit_code, placed.output
        second.start()
        done = CliRunner().invoke(cli, words)
        assert "done: the broker has everything" in done.output
        there = Client(second.bootstrap_server)
        for partition in range(2):
            assert client.records("moving", partition=partition) == there.records(
                "moving", partition=partition
            )
        assert 0 < there.records("keyed")[0].offset
        assert newest(client, "keyed") == newest(there, "keyed")
        assert {b"a", b"b", b"c", b"committed"} == {record.value for record in first}
        assert [b"d"] == [record.value for record in there.consume_in_group("movers", "moving", 1)]
