"""Tests that listeners of an engine or partition are called after each change."""

from __future__ import annotations

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.errors import PartitionGoneError
from topicfs.storage.manager import LogManager


def test_listeners_hear_of_topics_and_partitions(engine: LogManager) -> None:
    """A listener is called when topics or partitions change, but not for settings, and not after it is cancelled."""
    heard: list[list[str]] = []
    cancel = engine.listen(
        lambda: heard.append([f"{name}:{len(topic.partitions())}" for name, topic in engine.topics().items()])
    )
    engine.create_topic("t")
    engine.alter_config("t", {"retention.ms": "5"})
    engine.add_partitions("t", total=2)
    engine.add_partitions("t", total=2)
    engine.delete_topic("t")
    cancel()
    cancel()
    engine.create_topic("u")
    assert [["t:1"], ["t:2"], []] == heard


def test_whoever_waits_for_a_deleted_partition_is_woken(
    engine: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    """When the listener of a deleted partition is called, the topic is already gone. No error is logged."""
    engine.create_topic("t", partitions=2)
    heard: list[list[str]] = []
    for partition in engine.topic("t").partitions().values():
        partition.listen(lambda: heard.append(list(engine.topics())))
    engine.delete_topic("t")
    assert [[], []] == heard
    assert [] == [record for record in caplog.records if record.levelname == "ERROR"]


def test_whoever_waits_for_a_reopened_partition_is_woken(engine: LogManager) -> None:
    """When the listener of a reopened partition is called, the engine already returns the new partition."""
    engine.create_topic("t")
    old = engine.partition("t", 0)
    heard = []
    old.listen(lambda: heard.append(engine.partition("t", 0) is not old))
    engine.reopen_partition("t", 0)
    assert [True] == heard


def test_a_listener_that_was_added_twice_is_ended_once(engine):
    """If a listener was added twice, it is called until both registrations are cancelled."""
    told = []

    def listener() -> None:
        told.append(len(engine.topics()))

    ends = [engine.listen(listener), engine.listen(listener)]
    engine.create_topic("first")
    ends[0]()
    ends[0]()
    engine.create_topic("second")
    ends[1]()
    engine.create_topic("third")
    assert [1, 1, 2] == told


def test_a_deletion_that_fails_half_way_ends_every_partition(disk: SimulatedDisk, engine: LogManager) -> None:
    """If renaming a directory fails, the topic is gone nevertheless: listeners are called, appends are refused."""
    engine.create_topic("t", partitions=2)
    partitions = list(engine.topic("t").partitions().values())
    heard: list[list[str]] = []
    engine.listen(lambda: heard.append(list(engine.topics())))
    partitions[1].listen(lambda: heard.append(list(engine.topics())))
    disk.fail("rename", suffix="t-0")
    with pytest.raises(OSError, match="t-0"):
        engine.delete_topic("t")
    assert [[], []] == heard
    with pytest.raises(PartitionGoneError):
        append_lines(partitions[1], "lost\n")
