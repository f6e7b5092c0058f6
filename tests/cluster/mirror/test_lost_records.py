"""Tests of a mirror whose broker loses records after they were copied, or is down for a while."""

from __future__ import annotations

import os

import pytest

from testing.broker.client import Client, Outgoing
from tests.cluster.mirror.conftest import running, values
from tests.doubles.broker_away import back_again
from tests.doubles.waiting import wait_until
from topicfs.storage.codec.batch import scan

pytestmark = pytest.mark.java


def test_records_that_the_source_lost_are_truncated(copy, client, broker):
    """If a power loss takes the source's last batches, newer leader epochs make the copy drop those batches, too."""
    client.create_topic("lost")
    client.produce("lost", [Outgoing(b"a"), Outgoing(b"b"), Outgoing(b"c"), Outgoing(b"d")], batch=1)
    copy.once("lost")
    with back_again(broker):
        broker.kill()
        log = broker.log_dir / "lost-0" / "00000000000000000000.log"
        os.truncate(log, list(scan(log.read_bytes()))[2].position)
    fresh = Client(broker.bootstrap_server)
    assert 2 == fresh.offset_for("lost")
    fresh.produce("lost", [Outgoing(b"new")])
    assert () == copy.once("lost").problems
    assert [b"a", b"b", b"new"] == values(copy.directory, "lost")
    assert ["lost-0: cut back from 4 to 2: its leader's epoch 0 ends there"] == copy.said
    assert log.read_bytes() == (copy.directory / "lost-0" / log.name).read_bytes()
    wait_until(lambda: epochs(broker.log_dir, "lost") == epochs(copy.directory, "lost"), "the epochs agree")


def epochs(directory, topic):
    """Return the text of the leader epoch file. A broker writes the file in another thread, shortly after an append."""
    return (directory / f"{topic}-0" / "leader-epoch-checkpoint").read_text()


def test_an_epoch_in_which_nothing_was_written_is_in_the_copy(copy, client, broker):
    """The copy has epochs without batches, because the mirror asks the leader for epochs."""
    client.create_topic("restarted")
    Client(broker.bootstrap_server).produce("restarted", [Outgoing(b"a")])
    with back_again(broker):
        broker.stop()
    wait_until(lambda: epochs(broker.log_dir, "restarted").count("\n") > 3, "the new epoch is there")
    copy.once("restarted")
    assert epochs(broker.log_dir, "restarted") == epochs(copy.directory, "restarted")


def test_a_mirror_waits_for_a_broker_that_is_away(copy, client, broker, address):
    """The mirror reports that a broker is down, and continues when it is back."""
    client.create_topic("away")
    with running(address, copy.directory, "away") as said:
        wait_until((copy.directory / "away-0").exists, "the copy is there")
        with back_again(broker):
            broker.kill()
            wait_until(
                lambda: any("Connection refused" in line for line in said),
                "the mirror reports the missing broker",
            )
        Client(broker.bootstrap_server).produce("away", [Outgoing(b"back")])
        wait_until(lambda: values(copy.directory, "away") == [b"back"], "the mirror continues")
    assert len(said) < 8
