"""A partition with replicas: appends, failures of disks, and their return."""

from __future__ import annotations

import errno

import pytest

from tests.doubles.records import batch
from tests.doubles.replicated import ORDERS, Replicated, with_orders
from tests.doubles.several_disks import break_disk
from topicfs.storage import errors
from topicfs.storage.model import Offset, TopicPartition


def test_an_append_is_in_every_replica_when_it_returns(two):
    """When an append returns, readers see the record, and the files of both replicas are equal byte for byte."""
    assert 0 == two.append("a\nb\n")
    assert 2 == two.append("c\n")
    assert ["a", "b", "c"] == two.lines()
    assert two.files(1) == two.files(2)
    assert (1, 2) == two.in_sync()


def test_listeners_hear_of_an_append_once_when_it_can_be_read():
    """An append calls listeners a single time, after the followers have the record, even if it is not visible yet."""
    two = with_orders(min_insync_replicas=2)
    heard: list[tuple[int, int]] = []

    def hear() -> None:
        offsets = two.partition().offsets()
        heard.append((offsets.high_watermark, offsets.log_end_offset))

    two.partition().listen(hear)
    two.append("a\n")
    assert [(1, 1)] == heard
    with pytest.raises(errors.InvalidRecordError):
        two.partition().append(bytearray(batch(b"b")[:-1]))
    break_disk(two.disk(2))
    two.append("c\n")
    heard.clear()
    two.append("d\n")
    assert [(1, 3)] == heard
    two.bring_back(2)
    assert (3, 3) == heard[-1]


def test_a_change_during_a_call_of_listeners_calls_them_again(two):
    """Each change calls waiting readers again, because a second change may be the end for which they wait."""
    partition = two.partition()
    assert partition.leader is not None
    log, heard = partition.leader.log, 0

    def hear() -> None:
        nonlocal heard
        heard += 1
        if heard == 1:
            log.parts.listeners.notify()

    partition.listen(hear)
    with pytest.raises(errors.InvalidRecordError):
        partition.append(bytearray(batch(b"b")[:-1]))
    assert 2 == heard


def test_a_follower_takes_no_append_of_its_own(two):
    """An append to the log of a follower is refused, as NOT_LEADER_OR_FOLLOWER in Kafka."""
    follower = two.engine.controller.logs(ORDERS)[2]
    with pytest.raises(errors.NotLeaderError):
        follower.append(batch(b"a"))


def test_a_leader_that_fails_hands_over(two):
    """The append during which the leader failed is stored once, in the other replica, in a new epoch."""
    two.append("a\n")
    before = two.partition().state
    break_disk(two.disk(1))
    two.append("b\n")
    after = two.partition().state
    assert ((2,), 2, ()) == (after.in_sync, after.leader, two.partition().cuts)
    assert before.leader_epoch + 1 == after.leader_epoch
    assert ["a", "b"] == two.lines()


def test_after_two_failures_only_the_third_replica_may_lead():
    """If the last in-sync replica fails while the others are out of service, only this last replica may lead later.

    It is the only replica that has the append.
    """
    three = Replicated(3, replicas=3)
    three.engine.create_topic("orders", overrides={"min.insync.replicas": "1"})
    for number in (1, 3):
        break_disk(three.disk(number))
    three.append("a\n")
    assert ((2,), 2) == (three.in_sync(), three.leader())
    break_disk(three.disk(2))
    three.retry()
    for number in (3, 1, 2):
        three.bring_back(number)
    assert ["a"] == three.lines()
    assert (1, 2, 3) == three.in_sync()


def test_a_joining_follower_flushes_first(two):
    """A joining follower flushes first: if it then leads alone and loses power, records that were fsynced survive."""
    two.disk(1).fail("pwrite", number=errno.ENOSPC, times=1000)
    two.append("a\n")
    two.partition().sync()
    two.bring_back(1)
    assert (1, 2) == two.in_sync()
    break_disk(two.disk(2))
    two.append("b\n")
    two.crash(keep=0.0)
    assert ((1,), "a") == (two.in_sync(), two.lines()[0])


def test_a_disk_that_fails_as_it_returns_is_tried_again(two):
    """The duties retry a disk that fails as it returns. When the disk works, the partition is online again."""
    for operation in ("pwrite", "write_bytes"):
        two.disk(1).fail(operation, number=errno.ENOSPC, times=1_000_000)
    two.append("a\n")
    break_disk(two.disk(2))
    two.retry()
    two.disk(1).heal()
    two.bring_back(2)
    assert (1, 2) == two.in_sync()
    assert ["a"] == two.lines()


def test_leadership_is_given_back(two):
    """On ENOSPC the other replica leads. When the disk has space again, its replica catches up and is in sync.

    `elect_preferred` then makes the first assigned replica lead again.
    """
    two.disk(1).fail("pwrite", number=errno.ENOSPC, times=1000)
    two.append("a\n")
    assert ((2,), 2) == (two.in_sync(), two.leader())
    two.bring_back(1)
    assert (1, 2) == two.in_sync()
    assert 1 == two.engine.elect_preferred()
    assert 1 == two.leader()
    two.append("b\n")
    assert ["a", "b"] == two.lines()
    assert two.files(1) == two.files(2)


def test_after_a_restart_everything_is_there(two):
    """After a clean close, a kill or a power loss all flushed records are stored, and both replicas are equal."""
    two.append("a\n")
    two.reopen()
    two.append("b\n")
    two.kill()
    two.append("c\n")
    two.partition().sync()
    two.crash(keep=0.0)
    assert ["a", "b", "c"] == two.lines()
    assert two.files(1) == two.files(2)
    assert (1, 2) == two.in_sync()


def test_a_directory_that_was_away_is_not_believed(two):
    """The state of a returning directory says that it is in sync, but the newer state of the other one decides.

    Records that were acknowledged while the directory was away therefore stay.
    """
    two.append("a\n")
    break_disk(two.disk(1))
    two.append("b\n")
    two.disk(1).heal()
    two.kill()
    assert 2 == two.leader()
    assert ["a", "b"] == two.lines()
    two.forget_failures()
    two.engine.catch_up()
    assert (1, 2) == two.in_sync()


def test_topics_are_changed_while_a_directory_is_away(two):
    """Topics that were changed while a directory was away are changed in the directory when it returns.

    This holds for topics that were created, extended, altered or deleted.
    """
    two.engine.create_topic("old")
    break_disk(two.disk(2))
    two.append("a\n")
    two.append("a\n", TopicPartition("old", 0))
    two.engine.maintenance(two.clock())
    two.engine.delete_topic("old")
    two.engine.alter_config("orders", {"retention.ms": "7"})
    two.bring_back(2)
    member = two.engine._replica_dirs[2].engine
    assert ["orders"] == list(member.topics())
    assert 7 == member.topic("orders").config.retention_ms
    assert (1, 2) == two.in_sync()


def test_a_topic_is_deleted_on_a_disk_that_fails_during_the_deletion(two):
    """If a disk fails during a topic's deletion, the deletion is remembered, and done when the disk is back."""
    two.append("a\n")
    break_disk(two.disk(2))
    two.engine.delete_topic("orders", with_records=True)
    two.bring_back(2)
    assert {} == two.names()
    assert {} == two.engine.topics()


def test_replicas_are_added_and_removed_while_it_serves():
    """An added second replica is filled and joins. A removed replica is deleted from its directory."""
    three = with_orders(3, replicas=1)
    three.append("a\n")
    three.engine.set_replicas("orders", 3)
    three.engine.catch_up()
    assert 3 == len(three.in_sync())
    three.append("b\n")
    assert three.files(1) == three.files(2) == three.files(3)
    three.engine.set_replicas("orders", 2)
    three.append("c\n")
    assert ["a", "b", "c"] == three.lines()
    assert 2 == sum(bool(three.disks.exists(root / "orders-0")) for root in three.roots)


def test_a_replica_that_is_to_go_and_fails_before_is_left_once(three, monkeypatch):
    """If a replica that is to be removed fails, it stays a follower until roles change, and is reported once."""
    controller, told = three.engine.controller, []
    begin, lost = controller.begin, controller.lost

    def begin_later(partitions):
        break_disk(three.disk(3))
        three.append("a\n")
        three.disk(3).heal()
        begin(partitions)

    def noting(partition, replica, error):
        told.append(replica)
        assert [3] == told
        return lost(partition, replica, error)

    monkeypatch.setattr(controller, "begin", begin_later)
    monkeypatch.setattr(controller, "lost", noting)
    three.engine.set_replicas("orders", 2)
    three.append("b\n")
    assert ["a", "b"] == three.lines()
    assert [3] == told


def test_a_partition_without_a_leader_keeps_its_log_start():
    """Without a leader deleted records stay deleted, and cached counts of a compacted topic become invalid."""
    two = Replicated()
    two.engine.create_topic("orders", overrides={"cleanup.policy": "compact,delete"})
    partition = two.partition()
    for key in (b"a", b"b"):
        partition.append(batch(key, key=key))
    partition.delete_records(Offset(1))
    counted = partition.rewrites
    for number in (1, 2):
        break_disk(two.disk(number))
    with pytest.raises(OSError, match="Input/output"):
        partition.append(batch(b"c", key=b"c"))
    for _ in range(2):
        two.engine.maintenance(two.clock())
        assert (None, 1) == (partition.leader, partition.log_start_offset)
    two.disk(1).heal()
    two.bring_back(2)
    assert 1 == partition.log_start_offset
    assert counted < partition.rewrites


def test_records_below_the_old_end_are_not_visible_after_an_unclean_election(two):
    """A new leader may end below offsets that were read. Records that it appends there are not visible at first."""
    two.append("a\n")
    break_disk(two.disk(2))
    two.append("b\nc\nd\n")
    break_disk(two.disk(1))
    with pytest.raises(OSError, match="Input/output"):
        two.append("e\n")
    two.bring_back(2)
    two.engine.alter_config("orders", {"min.insync.replicas": "2"})
    two.engine.elect_unclean(ORDERS, "/b")
    assert ((1,), 1) == (two.partition().cuts, two.partition().rewrites)
    two.append("f\n")
    assert (2, ["a"]) == (two.leader(), two.lines())
    two.bring_back(1)
    assert ["a", "f"] == two.lines()


def test_a_reduction_that_would_remove_the_only_replica_in_sync_is_refused(two, monkeypatch):
    """A reduction is refused if, because of a failure during the call, it would remove the only replica in sync."""
    two.append("a\n")
    reassign = two.engine._table._reassign

    def fail_first(partition, assigned):
        assert (1,) == assigned
        break_disk(two.disk(1))
        two.append("b\n")
        reassign(partition, assigned)

    monkeypatch.setattr(two.engine._table, "_reassign", fail_first)
    with pytest.raises(errors.StorageError, match="have changed meanwhile; try again"):
        two.engine.set_replicas("orders", 1)
    two.append("c\n")
    assert ["a", "b", "c"] == two.lines()
    assert ((1, 2), (2,)) == (two.partition().state.assigned, two.in_sync())
