"""A broker that lost records which were copied already, and one that is away for a while."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing

import pytest

from cluster.brokers.brokers import Brokers
from cluster.mirror.mirror import MirrorOptions, mirror
from cluster.mirror.topics import TopicNames
from storage.codec.batch import scan
from storage.manager import open_engine
from testing.broker.client import Client, Outgoing
from tests.interop.ours import read_records

pytestmark = pytest.mark.java


def values(directory, topic):
    with closing(open_engine(directory, read_only=True)) as engine:
        return [record.value for record in read_records(engine.partition(topic, 0))]


def test_what_the_source_lost_is_cut_off(copy, client, broker):
    """A power loss took its last batches; what others wrote there since has a newer leader epoch."""
    client.create_topic("lost")
    client.produce("lost", [Outgoing(b"a"), Outgoing(b"b"), Outgoing(b"c"), Outgoing(b"d")], batch=1)
    copy.once("lost")
    broker.kill()
    log = broker.log_dir / "lost-0" / "00000000000000000000.log"
    os.truncate(log, list(scan(log.read_bytes()))[2].position)
    broker.start()
    fresh = Client(broker.bootstrap_server)
    assert 2 == fresh.offset_for("lost")
    fresh.produce("lost", [Outgoing(b"new")])
    assert () == copy.once("lost").problems
    assert [b"a", b"b", b"new"] == values(copy.directory, "lost")
    assert ["lost-0: cut back from 4 to 2: its leader's epoch 0 ends there"] == copy.said
    for name in ("00000000000000000000.log", "leader-epoch-checkpoint"):
        assert (broker.log_dir / "lost-0" / name).read_bytes() == (
            copy.directory / "lost-0" / name
        ).read_bytes()


def test_an_epoch_in_which_nothing_was_written_is_in_the_copy(copy, client, broker):
    """No batch tells of it; the leader is asked."""
    client.create_topic("restarted")
    Client(broker.bootstrap_server).produce("restarted", [Outgoing(b"a")])
    broker.stop()
    broker.start()
    copy.once("restarted")
    name = "restarted-0/leader-epoch-checkpoint"
    theirs = (broker.log_dir / name).read_text()
    assert theirs.count("\n") > 3
    assert theirs == (copy.directory / name).read_text()


def test_a_mirror_waits_for_a_broker_that_is_away(copy, client, broker, address):
    """It says so, and goes on when the broker is back."""
    client.create_topic("away")
    stop, said = threading.Event(), []

    def run():
        options = MirrorOptions(names=TopicNames(("away",)), metadata_seconds=0.2)
        with closing(Brokers(address)) as brokers:
            mirror(copy.directory, brokers, options, said.append, stop)

    def wait_until(true):
        deadline = time.monotonic() + 30
        while not true() and time.monotonic() < deadline:
            time.sleep(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until((copy.directory / "away-0").exists)
        broker.kill()
        wait_until(lambda: any("Connection refused" in line for line in said))
        broker.start()
        Client(broker.bootstrap_server).produce("away", [Outgoing(b"back")])
        wait_until(lambda: values(copy.directory, "away") == [b"back"])
    finally:
        stop.set()
        thread.join(20)
    assert [b"back"] == values(copy.directory, "away")
    assert any("Connection refused" in line for line in said)
    assert len(said) < 8
