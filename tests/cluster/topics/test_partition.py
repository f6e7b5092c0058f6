"""Tests of what a partition of a cluster knows if several answers arrive at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from topicfs.cluster.brokers.bounds import PartitionBounds
from topicfs.cluster.topics.partition import ClusterPartition, PartitionServices
from topicfs.cluster.topics.reader import WindowCache
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.model import Isolation, Offset, Timestamp, TopicPartition

BLOCKED_SECONDS = 0.3
"""Seconds after which a thread is assumed to wait for the other thread."""


@pytest.fixture
def partition() -> Iterator[ClusterPartition]:
    """An empty partition that sends no requests."""
    nobody: Any = None
    with closing(WindowCache()) as windows:
        found = ClusterPartition(
            TopicPartition("orders", 0),
            "id",
            PartitionServices(nobody, windows, None, None, EngineCounts()),
            ask_settings=nobody,
            followed=lambda: None,
        )
        found.learn(bounds(0))
        yield found


def bounds(end: int) -> PartitionBounds:
    return PartitionBounds(Offset(0), Offset(end), Offset(end), 0)


class Interrupted(int):
    """A number whose comparison runs another thread until that thread ends or waits."""

    other: threading.Thread

    def __gt__(self, _than: int) -> bool:
        if self.other.ident is None:
            self.other.start()
        self.other.join(BLOCKED_SECONDS)
        return int(self) > _than


def test_an_older_answer_does_not_take_back_what_a_newer_one_told(partition: ClusterPartition) -> None:
    """If a follower and an append learn bounds at the same time, the append's higher bounds stay."""
    late = Interrupted(0)
    late.other = threading.Thread(target=partition.learn, args=(bounds(1),))
    partition.learn(bounds(0)._replace(high_watermark=late))  # type: ignore[arg-type] # an int that lets another thread in
    late.other.join()
    for isolation in Isolation:
        assert 1 == partition.visible_end(isolation)


def test_the_newest_timestamp_is_not_taken_back(partition: ClusterPartition) -> None:
    """If two appends are answered at the same moment, the later timestamp is kept."""
    late = Interrupted(1)
    late.other = threading.Thread(target=partition.note_append, args=(Timestamp(5), 0.0))
    partition.note_append(late, 0.0)  # type: ignore[arg-type] # an int that lets another thread in
    late.other.join()
    assert 5 == partition.newest_timestamp


def test_a_timeout_keeps_known_bounds(partition: ClusterPartition) -> None:
    """If a request times out, the bounds that a reader has learned meanwhile are kept."""
    partition.note_silence("no answer within 5 s")
    assert (None, None) == (partition.unknown, partition.find_bounds())


def test_a_new_leader_without_records_that_were_shown_cuts_the_log(partition: ClusterPartition) -> None:
    """If a new leader lacks records that were shown, its bounds replace the old bounds, and listeners are called.

    Later answers of the old leader are ignored.
    """
    called = threading.Event()
    partition.listen(called.set)
    partition.learn(bounds(7))
    called.clear()
    partition.follow_leader(0, Offset(5), bounds(9)._replace(leader_epoch=2))
    partition.follow_leader(0, Offset(3), bounds(4)._replace(leader_epoch=1))
    partition.learn(bounds(20))
    assert ((5,), 1, 9) == (
        partition.cuts,
        partition.rewrites,
        partition.visible_end(Isolation.READ_COMMITTED),
    )
    assert called.is_set()


def test_a_new_leader_with_all_that_was_shown_cuts_nothing(partition: ClusterPartition) -> None:
    """The end offset in an append's answer has no leader epoch, so a lower end of a new leader does not cut the log."""
    partition.learn(bounds(5))
    partition.learn(bounds(8), proven=False)
    partition.follow_leader(0, Offset(5), bounds(9)._replace(leader_epoch=1))
    assert ((), 9) == (partition.cuts, partition.visible_end(Isolation.READ_COMMITTED))
