"""Small appends go to the log that leads and to its followers in one step; whatever is not as usual loses and doubles nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.records import batch, produced
from tests.doubles.replicated import ORDERS, Replicated
from tests.doubles.several_disks import break_disk
from topicfs.storage.model import Isolation


def replicated(disks: int = 2, **settings: Any) -> Replicated:
    """A topic whose first record is there: a segment's first batch has to be looked at more closely."""
    made = Replicated(disks, replicas=disks, **settings)
    made.engine.create_topic("orders")
    made.append("a\n")
    return made


def fetches(made: Replicated, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The fetches of followers from now on."""
    leader = made.partition().leader
    assert leader is not None
    read, told = leader.log.read_as_follower, []

    def noting(*arguments: Any, **named: Any) -> Any:
        told.append(arguments)
        return read(*arguments, **named)

    monkeypatch.setattr(leader.log, "read_as_follower", noting)
    return told


def test_followers_are_given_what_the_leader_wrote(monkeypatch):
    """They fetch nothing; listeners are told once, when the high watermark has passed it."""
    three = replicated(3)
    fetched, heard = fetches(three, monkeypatch), []
    three.partition().listen(lambda: heard.append(three.partition().offsets()))
    assert 1 == three.append("b\n")
    assert not fetched
    assert [(2, 2)] == [(each.high_watermark, each.log_end_offset) for each in heard]
    assert three.files(1) == three.files(2) == three.files(3)


def test_the_mount_and_a_client_see_the_same(monkeypatch):
    """What is appended with its headers checked goes the longer way, and leaves the same files."""
    here, checked = replicated(), replicated()
    for number in range(100):
        line = batch(b"line %d" % number)
        here.partition().append(bytearray(line), encoded_here=True)
        checked.partition().append(line)
    assert here.files(1) == checked.files(1) == here.files(2) == checked.files(2)
    assert here.partition().offsets() == checked.partition().offsets()


@pytest.mark.parametrize("replica", [1, 2, 3])
def test_a_write_that_is_refused_once_is_made_again(replica):
    """Whichever disk it was: the line is in each replica, once."""
    three = replicated(3)
    three.disk(replica).fail("pwrite", suffix=".log")
    assert 1 == three.append("b\n")
    assert 2 == three.append("c\n")
    assert ["a", "b", "c"] == three.lines()
    assert (1, 2, 3) == three.in_sync()
    assert three.files(1) == three.files(2) == three.files(3)


@pytest.mark.parametrize("replica", [1, 2, 3])
def test_a_disk_that_fails_for_good_is_left_behind(replica):
    """The others go on, and when it is back it has the same files."""
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
    """Nobody knows what its file holds; the other goes on with the line."""
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
    """What the leader wrote is in its log: the next append gets the next offset, and brings it to the follower."""
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
    """An index entry may be due in it and not in its leader, where counting began elsewhere."""
    two = replicated()
    two.engine.controller.logs(ORDERS)[2].chain.active.bytes_until_due = 0
    assert 1 == two.append("b\n")
    assert 2 == two.append("c\n")
    assert ["a", "b", "c"] == two.lines()
    assert two.files(1) == two.files(2)


def test_a_follower_that_is_in_another_segment_rolls_first():
    """Where its leader rolled and nothing came since, it has not followed yet."""
    two = replicated()
    leader = two.partition().leader
    assert leader is not None
    leader.log.appender.roll()
    two.append("b\n")
    two.append("c\n")
    assert ["a", "b", "c"] == two.lines()
    assert two.files(1) == two.files(2)


def test_a_follower_without_room_is_left_behind():
    """The room that is left on its disk is for what frees space."""
    two = replicated()
    two.engine.controller.logs(ORDERS)[2].parts.append_gate.closed = True
    two.append("b\n")
    assert (1,) == two.in_sync()
    assert ["a", "b"] == two.lines()


def test_a_line_behind_an_undecided_transaction_is_not_committed():
    """Readers of committed records wait for the transaction, also where the line itself is in every replica."""
    two = replicated()
    two.partition().append(produced(b"t", txn=True))
    two.append("b\n")
    assert 1 == two.partition().visible_end(Isolation.READ_COMMITTED)
    assert 3 == two.partition().visible_end(Isolation.READ_UNCOMMITTED)
    assert two.files(1) == two.files(2)


@pytest.mark.parametrize(
    "settings", [{"compression_type": "lz4"}, {"message_timestamp_type": "LogAppendTime"}]
)
def test_what_is_changed_on_its_way_is_the_same_in_each_replica(settings):
    """A codec, and the time of the append."""
    two = replicated(**settings)
    two.append("b\n" * 50)
    two.append("c\n")
    assert ["a", *["b"] * 50, "c"] == two.lines()
    assert two.files(1) == two.files(2)


@pytest.mark.parametrize("encoded_here", [True, False])
def test_flush_messages_holds_in_each_replica(encoded_here):
    """With flush.messages=1 an append is on every disk in sync when it returns: any of them may be the only one left."""
    for survivor in (1, 2):
        two = replicated(flush_messages=1)
        two.partition().append(batch(b"b"), encoded_here=encoded_here)
        for number in (1, 2):
            two.disk(number).crash(keep=0)
        left_out = two.roots[2 - survivor]
        two.open(two.roots[survivor - 1], left_out=(left_out,))
        assert ["a", "b"] == two.lines()
