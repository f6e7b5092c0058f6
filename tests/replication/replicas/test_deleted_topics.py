"""Tests of replicated topics that are deleted and created again while their partitions are still in use."""

from __future__ import annotations

import pytest

from tests.doubles.records import batch
from tests.doubles.replicated import ORDERS
from tests.doubles.several_disks import break_disk
from topicfs.storage.errors import PartitionGoneError


def test_a_write_to_a_deleted_topic_is_refused(two):
    """A write to a deleted topic fails with the same error as without replicas."""
    two.append("a\n")
    partition = two.partition()
    two.engine.delete_topic("orders")
    with pytest.raises(PartitionGoneError):
        partition.append(batch(b"late"))
    with pytest.raises(PartitionGoneError):
        partition.sync()
    assert [] == [one for one in partition.status().replicas if one.end_offset is not None]


def test_a_write_to_a_deleted_topic_leaves_a_new_topic_of_its_name_alone(two):
    """A write to a deleted topic leaves the replicas, leader and records of a new topic of the same name unchanged."""
    two.append("a\n")
    old = two.partition()
    two.engine.delete_topic("orders")
    two.engine.create_topic("orders")
    two.append("new\n")
    state = two.partition().state
    with pytest.raises(PartitionGoneError):
        old.append(batch(b"late"))
    assert (
        state
        == two.partition().state
        == two.engine.controller.entry(ORDERS.topic).partitions[ORDERS.partition]
    )
    two.append("newer\n")
    assert ["new", "newer"] == two.lines()
    assert two.files(1) == two.files(2)
    two.reopen()
    assert (["new", "newer"], (1, 2)) == (two.lines(), two.in_sync())


def test_a_replica_does_not_catch_up_with_a_deleted_topic_of_the_same_name(two):
    """A thread that noticed missing records before a topic's deletion copies none of them into the new topic."""
    break_disk(two.disk(2))
    for _ in range(9):
        two.append("old\n")
    two.disk(2).heal()
    for _ in range(2):  # The first append detects that the disk is out of service.
        two.retry()
    fetcher = two.engine._catching_up[2]
    (old,) = fetcher._behind()
    two.engine.delete_topic("orders")
    two.engine.create_topic("orders")
    two.append("new\n")
    fetcher._catch_up(old)
    two.append("newer\n")
    assert ["new", "newer"] == two.lines()
    assert (1, 2) == two.in_sync()
    assert two.files(1) == two.files(2)
