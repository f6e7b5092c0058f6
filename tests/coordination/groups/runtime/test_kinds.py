"""Tests that a consumer group and a queue (share group) cannot have the same name at the same time.

The tests create and delete queues while consumer groups are served.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.group_reader import Reader
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.membership import Position
from topicfs.replication import EmbeddedEngine, open_engine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.errors import GroupError, IncompatibleMemberError
from topicfs.storage.manager import Machine
from topicfs.storage.model import Offset, TopicPartition

PLACE = TopicPartition("orders", 0)


def opened(disk: SimulatedDisk, clock: ManualClock) -> EmbeddedEngine:
    config = EngineConfig(offsets_topic_num_partitions=2)
    return open_engine(Path("/data"), config=config, machine=Machine(files=disk, clock=clock))


@pytest.fixture
def engine(disk: SimulatedDisk, clock: ManualClock) -> Iterator[EmbeddedEngine]:
    engine = opened(disk, clock)
    engine.create_topic("orders")
    yield engine
    engine.close()


def test_the_name_of_a_deleted_queue_is_free(disk: SimulatedDisk, clock: ManualClock):
    """A queue can be deleted after a restart, and a consumer group can then have the queue's name."""
    engine = opened(disk, clock)
    engine.share_groups.create("jobs")
    engine.close()

    engine = opened(disk, clock)
    assert {} == engine.groups.listed()
    engine.share_groups.delete("jobs")
    engine.groups.create("jobs")
    assert ["jobs"] == list(engine.groups.listed())
    engine.close()


def test_a_reader_makes_no_group_beside_a_queue(engine: EmbeddedEngine):
    """If a queue has a name, no consumer group of this name is created.

    A reader that joins gets an error, and setting positions fails. This holds even if the queue is created after the
    groups were loaded.
    """
    engine.groups.create("first")  # Loads the records of groups.
    engine.share_groups.create("jobs")
    assert IncompatibleMemberError is type(Reader(engine, "jobs", "orders").error())
    with pytest.raises(GroupError, match="another protocol"):
        engine.groups.set_positions("jobs", {PLACE: Position(Offset(0))})
    assert ["first"] == list(engine.groups.listed())
