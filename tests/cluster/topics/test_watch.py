"""Tests that the engine refreshes its knowledge of a cluster in the background, and calls listeners."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka.admin import NewPartitions

from testing.broker.client import Outgoing
from tests.doubles.producing import Unfetched, batch, connected, found, opened
from tests.doubles.waiting import wait_until
from topicfs.cluster.topics.watch import BoundsWatcher
from topicfs.storage.errors import PartitionGoneError, UnknownTopicError
from topicfs.storage.model import Isolation, Offset

pytestmark = pytest.mark.java


def listened(engine, client, name, **how):
    client.create_topic(name, **how)
    partition = found(engine, name)
    called = threading.Event()
    partition.listen(called.set)
    return partition, called


def test_a_listener_is_called_for_records_of_other_clients(engine, client):
    """When a listener is called, the new batches can be read without waiting."""
    partition, called = listened(engine, client, "appended")
    for count in range(1, 4):
        called.clear()
        client.produce("appended", [Outgoing(b"%d" % count, timestamp=1000 * count)])
        wait_until(
            lambda count=count: partition.visible_end(Isolation.READ_COMMITTED) == count,
            "the records are visible",
        )
        wait_until(called.is_set, "the listener is called")
    assert (3, 3, 3000) == (
        partition.offsets().high_watermark,
        partition.offsets().last_stable_offset,
        partition.newest_timestamp,
    )
    engine.call_before_waiting(lambda: pytest.fail("the read would wait"))
    assert 3 == partition.read(Offset(2), max_bytes=1).next_offset


def test_the_log_start_is_followed(engine, client):
    """After records were deleted, the log start rises."""
    partition, called = listened(engine, client, "started")
    client.produce("started", [Outgoing(b"a"), Outgoing(b"b")])
    wait_until(lambda: partition.visible_end(Isolation.READ_COMMITTED) == 2, "the records are visible")
    called.clear()
    client.delete_records("started", 1)
    wait_until(lambda: partition.log_start_offset == 1, "the engine knows the log start")
    wait_until(called.is_set, "the listener is called")


def test_the_last_stable_offset_follows_transactions(engine, client):
    """An open transaction holds the last stable offset back; the transaction's end releases it."""
    partition, _ = listened(engine, client, "decided")
    producer = client.producer(transactional_id="following")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("decided", b"open", partition=0)
    producer.flush(30)
    wait_until(lambda: partition.visible_end(Isolation.READ_UNCOMMITTED) == 1, "the records are visible")
    assert 0 == partition.visible_end(Isolation.READ_COMMITTED)
    producer.commit_transaction(30)
    wait_until(lambda: partition.visible_end(Isolation.READ_COMMITTED) == 2, "the records are visible")


def test_a_partition_is_followed_while_it_has_listeners(engine, client):
    """Unchanged metadata do not end the following of a partition; removing its last listener does."""
    client.create_topic("listened-to")
    partition = found(engine, "listened-to")
    watcher = BoundsWatcher(engine.leaders, engine._catalog, 1, sweeps=False, partition_bytes=0)
    assert not watcher.choose()
    cancel = partition.listen(lambda: None)
    assert watcher.choose()
    engine.leaders.look()
    assert watcher.choose()
    cancel()
    engine.leaders.look()
    assert not watcher.choose()
    partition.listen(lambda: None)
    assert watcher.choose()


def test_what_was_appended_here_is_not_sent_back(engine, client, monkeypatch):
    """An append's answer has the bounds, so the follower pauses briefly and then fetches from the new end."""
    partition, _ = listened(engine, client, "told")
    watcher = BoundsWatcher(engine.leaders, engine._catalog, 1, sweeps=False, partition_bytes=0)
    began = []
    monkeypatch.setattr(partition, "take", lambda offset, *_: began.append((offset, threading.get_ident())))
    assert watcher.choose()
    watcher.round(wait_ms=0)
    partition.append(batch(b"a"), durable=True)
    assert partition.told_until > 0
    for until in (float("inf"), 0.0):
        partition.told_until = until
        watcher.round(wait_ms=0)
    client.produce("told", [Outgoing(b"b")])
    watcher.round(wait_ms=10_000)
    mine = threading.get_ident()
    assert [0, 1, 1] == [offset for offset, thread in began if thread == mine]


def test_an_append_without_all_bounds_does_not_pause_the_follower(address, client):
    """After an append with acks=1, or after other clients' records, the follower does not pause."""
    with connected(address, Unfetched) as engine:
        partition = opened(engine, client, "untold")
        partition.append(batch(b"a"))
        assert 0 == partition.told_until
        partition.append(batch(b"a"), durable=True)
        assert partition.told_until > 0
        client.produce("untold", [Outgoing(b"b")])
        partition.append(batch(b"a"), durable=True)
        assert 0 == partition.told_until


def test_partitions_without_listeners_are_looked_at_too(engine, client):
    """The bounds of partitions without listeners are refreshed from time to time."""
    client.create_topic("swept")
    partition = found(engine, "swept")
    client.produce("swept", [Outgoing(b"a")])
    wait_until(lambda: partition.visible_end(Isolation.READ_COMMITTED) == 1, "the records are visible")


def test_topics_come_and_go(engine, client):
    """A recreated topic is a different topic: old partition objects fail, and their listeners are called."""
    changed = threading.Event()
    engine.listen(changed.set)
    first = client.create_topic("going")
    wait_until(lambda: "going" in engine.topics(), "the topics are known")
    wait_until(changed.is_set, "the listener is called")
    old = found(engine, "going")
    called = threading.Event()
    old.listen(called.set)
    client.produce("going", [Outgoing(b"old")])
    client.delete_topics(["going"])
    second = client.create_topic("going")
    wait_until(
        lambda: getattr(engine.topics().get("going"), "topic_id", first) == second, "the new topic is known"
    )
    wait_until(called.is_set, "the listener is called")
    assert first != second
    with pytest.raises(PartitionGoneError, match="deleted"):
        old.read(Offset(0), max_bytes=1)
    assert not found(engine, "going").read(Offset(0), max_bytes=1).data
    client.delete_topics(["going"])
    wait_until(lambda: "going" not in engine.topics(), "the topics are known")
    with pytest.raises(UnknownTopicError):
        engine.partition("going", 0)


def test_partitions_are_added(engine, client):
    """Added partitions appear, and the old partition objects stay the same."""
    client.create_topic("grown")
    before = found(engine, "grown")
    client.admin.create_partitions([NewPartitions("grown", 3)])["grown"].result(30)
    wait_until(
        lambda: [0, 1, 2] == list(engine.topic("grown").partitions()), "the added partitions are known"
    )
    assert before is engine.partition("grown", 0)
