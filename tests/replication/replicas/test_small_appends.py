"""Tests of small appends, which go to leader and followers in one step; no record is lost or duplicated."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.records import batch, produced
from tests.doubles.replicated import ORDERS, Replicated, with_orders
from tests.doubles.several_disks import break_disk
from topicfs.storage.model import Isolation


def replicated(disks: int = 2, **settings: Any) -> Replicated:
    """Make a topic with one record, because the first batch of a segment takes the general path."""
    made = with_orders(disks, replicas=disks, **settings)
    made.append("a\n")
    return made


def fetches(made: Replicated, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows with each fetch of a follower."""
    leader = made.partition().leader
    assert leader is not None
    read, told = leader.log.read_as_follower, []

    def noting(*arguments: Any, **named: Any) -> Any:
        told.append(arguments)
        return read(*arguments, **named)

    monkeypatch.setattr(leader.log, "read_as_follower", noting)
    return told


def test_followers_are_given_what_the_leader_wrote(monkeypatch):
    """Followers fetch nothing. Listeners are called once, after the high watermark has passed the record."""
    three = replicated(3)
    fetched, heard = fetches(three, monkeypatch), []
    three.partition().listen(lambda: heard.append(three.partition().offsets()))
    assert 1 == three.append("b\n")
    assert not fetched
    assert [(2, 2)] == [(each.high_watermark, each.log_end_offset) for each in heard]
    assert three.files(1) == three.files(2) == three.files(3)


def test_the_mount_and_a_client_see_the_same(monkeypatch):
    """Appends with checked headers take the general path, and leave the same files as small appends."""
    here, checked = replicated(), replicated()
    for number in range(100):
        line = batch(b"line %d" % number)
        here.partition().append(bytearray(line), encoded_here=True)
        checked.partition().append(line)
    assert here.files(1) == checked.files(1) == here.files(2) == checked.files(2)
    assert here.partition().offsets() == checked.partition().offsets()


@pytest.mark.parametrize("replica", [1, 2, 3])
def test_a_write_that_is_refused_once_is_made_again(replica):
    """If either disk refuses a write once, the line is stored once in each replica."""
    three = replicated(3)
    three.disk(replica).fail("pwrite", suffix=".log")
    assert 1 == three.append("b\n")
    assert 2 == three.append("c\n")
    assert ["a", "b", "c"] == three.lines()
    assert (1, 2, 3) == three.in_sync()
    assert three.files(1) == three.files(2) == three.files(3)


@pytest.mark.parametrize("replica", [1, 2, 3])
def test_a_disk_that_fails_for_good_is_left_behind(replica):
    """If a disk fails for good, the other replicas continue. After the disk is back it gets the same files."""
    three = replicated(3)
    break_disk(three.disk(replica))
    assert 1 == three.append("b\n")
    assert 2 == three.append("c\n")
    assert replica not in three.in_sync()
    three.bring_back(replica)
    assert 3 == three.append("d\n")
    assert ["a", "b", "c", "d"] == three.lines()
    assert (1, 2, 3) == three.in_sync()
    assert three.files(1) == three.files(2) == three.files(3)


@pytest.mark.parametrize("replica", [1, 2])
def test_a_failed_write_that_cannot_be_undone_takes_one_replica_away(replica):
    """If a failed write cannot be undone, its file's content is unknown, and the other replica continues."""
    two = replicated()
    two.disk(replica).fail("pwrite", suffix=".log")
    two.disk(replica).fail("truncate", suffix=".log")
    two.append("b\n")
    assert (3 - replica,) == two.in_sync()
    assert ["a", "b"] == two.lines()
    two.bring_back(replica)
    assert (1, 2) == two.in_sync()
    assert two.files(1) == two.files(2)


@pytest.mark.parametrize("following", ["c\n", "c\n" * 2000])
def test_an_error_nobody_expected_in_a_follower_leaves_no_hole(monkeypatch, following):
    """After an unexpected error in a follower, the next append gets the next offset and replicates both records."""
    two = replicated()
    follower = two.engine.controller.logs(ORDERS)[2].chain.active

    def extend(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(follower, "extend", extend)
        with pytest.raises(MemoryError):
            two.append("b\n")
    assert 2 == two.append(following)
    assert ["a", "b", *following.split()] == two.lines()
    assert two.files(1) == two.files(2)


def test_a_follower_that_indexes_elsewhere_is_handed_the_batch():
    """If an index entry is due in the follower but not in the leader, the follower gets the batch separately."""
    two = replicated()
    two.engine.controller.logs(ORDERS)[2].chain.active.bytes_until_due = 0
    assert 1 == two.append("b\n")
    assert 2 == two.append("c\n")
    assert ["a", "b", "c"] == two.lines()
    assert two.files(1) == two.files(2)


def test_a_follower_that_is_in_another_segment_rolls_first():
    """If the leader's last segment is new and empty, the follower rolls before it appends the next batch."""
    two = replicated()
    leader = two.partition().leader
    assert leader is not None
    leader.log.appender.roll()
    two.append("b\n")
    two.append("c\n")
    assert ["a", "b", "c"] == two.lines()
    assert two.files(1) == two.files(2)


def test_a_follower_without_room_is_left_behind():
    """If a follower's disk is nearly full, the follower leaves the replicas in sync.

    The last space of a disk is reserved for operations that free space.
    """
    two = replicated()
    two.engine.controller.logs(ORDERS)[2].parts.append_gate.closed = True
    two.append("b\n")
    assert (1,) == two.in_sync()
    assert ["a", "b"] == two.lines()


def test_a_line_after_an_undecided_transaction_is_not_committed():
    """read_committed readers wait for an earlier undecided transaction, even if every replica has the line."""
    two = replicated()
    two.partition().append(produced(b"t", txn=True))
    two.append("b\n")
    assert 1 == two.partition().visible_end(Isolation.READ_COMMITTED)
    assert 3 == two.partition().visible_end(Isolation.READ_UNCOMMITTED)
    assert two.files(1) == two.files(2)


@pytest.mark.parametrize(
    "settings", [{"compression_type": "lz4"}, {"message_timestamp_type": "LogAppendTime"}]
)
def test_a_batch_changed_by_the_log_is_the_same_in_each_replica(settings):
    """Compressing a batch or setting its append time gives the same batch in each replica."""
    two = replicated(**settings)
    two.append("b\n" * 50)
    two.append("c\n")
    assert ["a", *["b"] * 50, "c"] == two.lines()
    assert two.files(1) == two.files(2)


@pytest.mark.parametrize("encoded_here", [True, False])
def test_flush_messages_holds_in_each_replica(encoded_here):
    """With flush.messages=1 an append returns after every in-sync disk has the record.

    Any of these disks may be the only one left later.
    """
    for survivor in (1, 2):
        two = replicated(flush_messages=1)
        two.partition().append(batch(b"b"), encoded_here=encoded_here)
        for number in (1, 2):
            two.disk(number).crash(keep=0)
        left_out = two.roots[2 - survivor]
        two.open(two.roots[survivor - 1], left_out=(left_out,))
        assert ["a", "b"] == two.lines()
