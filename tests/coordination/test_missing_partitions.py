"""Tests of coordinators on a directory that has only some partitions of Kafka's internal topics.

A broker of a cluster leaves such a directory, because each broker has only some of the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.refusals import refusal
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.groups.requests import Code
from topicfs.coordination.groups.runtime.service import EmbeddedGroups
from topicfs.coordination.membership import Position
from topicfs.coordination.transactions.coordinator import TransactionCoordinator
from topicfs.replication import EmbeddedEngine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.model import TopicPartition
from topicfs.storage.partitioning import coordinator_partition

PARTITIONS, MISSING = 4, 1
CONFIG = EngineConfig(
    transaction_topic_num_partitions=PARTITIONS,
    offsets_topic_num_partitions=PARTITIONS,
    recovery_threads=1,
    topic_defaults=TopicConfig(segment_index_bytes=1200),
)
NAMES = [f"name{number}" for number in range(20)]
LOST = [name for name in NAMES if coordinator_partition(name, PARTITIONS) == MISSING]
HERE = [name for name in NAMES if name not in LOST]
PLACE = TopicPartition("orders", 0)
MINUTE = 60_000


def opened(disk: SimulatedDisk) -> EmbeddedEngine:
    engine = engine_on(disk, config=CONFIG)
    if "orders" not in engine.topics():
        append_lines(engine.create_topic("orders", partitions=1).partitions()[0], "apple\n")
    return engine


def lose(disk: SimulatedDisk, engine: EmbeddedEngine, topic: str) -> EmbeddedEngine:
    """Remove the directory of one partition of `topic` while no engine runs."""
    path = DATA / f"{topic}-{MISSING}"
    engine.close()
    for entry in disk.list_directory(path):
        disk.unlink(path / entry.name)
    disk.remove_directory(path)
    return opened(disk)


@contextmanager
def coordinator_of(engine: EmbeddedEngine) -> Iterator[TransactionCoordinator]:
    assert isinstance(engine.groups, EmbeddedGroups)
    coordinator = TransactionCoordinator(engine, engine.groups, CONFIG, ManualClock())
    coordinator.maintain()
    try:
        yield coordinator
    finally:
        coordinator.close()


def test_a_group_is_found_in_the_partition_that_has_its_records(disk: SimulatedDisk):
    """While a partition is missing, groups of other partitions keep their positions, and can commit new positions."""
    engine = opened(disk)
    for name in NAMES:
        engine.groups.set_positions(name, {PLACE: Position(1)})
    engine = lose(disk, engine, "__consumer_offsets")
    for name in HERE:
        assert 1 == engine.groups.positions(name).committed[PLACE].offset
        engine.groups.set_positions(name, {PLACE: Position(0)})
    engine.close()
    engine = opened(disk)
    assert [0] * len(HERE) == [engine.groups.positions(name).committed[PLACE].offset for name in HERE]
    engine.close()


def test_a_group_whose_partition_is_unknown_is_refused(disk: SimulatedDisk):
    """While a partition is missing, a group without records here is refused: the missing partition may have them."""
    engine = opened(disk)
    engine.groups.set_positions(HERE[0], {PLACE: Position(1)})
    engine = lose(disk, engine, "__consumer_offsets")
    for name in LOST:
        with pytest.raises(PartitionOfflineError, match="some of its partitions are not here"):
            engine.groups.positions(name)
        with pytest.raises(PartitionOfflineError, match="some of its partitions are not here"):
            engine.groups.set_positions(name, {PLACE: Position(1)})
    assert [HERE[0]] == list(engine.groups.listed())
    engine.close()


def test_a_queue_whose_partition_is_unknown_is_refused(disk: SimulatedDisk):
    """While a partition is missing, a queue that has records here can be used, and no other queue can."""
    engine = opened(disk)
    engine.create_topic("__share_group_state", partitions=1)
    engine.groups.create("any")
    session = engine.share_groups.group(HERE[0]).open(["orders"], holder="")
    assert session.take() is not None
    session.close()
    engine = lose(disk, engine, "__consumer_offsets")
    assert engine.share_groups.group(HERE[0]).open(["orders"], holder="").take() is not None
    with pytest.raises(PartitionOfflineError, match="some of its partitions are not here"):
        engine.share_groups.group(LOST[0]).open(["orders"], holder="")
    engine.close()


def test_a_transactional_id_whose_partition_is_unknown_is_refused(disk: SimulatedDisk):
    """While a partition is missing, an id keeps its producer id if its state is here. All other ids are refused."""
    engine = opened(disk)
    with coordinator_of(engine) as coordinator:
        before = {name: coordinator.init_producer_id(name, MINUTE, None) for name in NAMES}
    engine = lose(disk, engine, "__transaction_state")
    with coordinator_of(engine) as coordinator:
        for name in HERE:
            run = coordinator.init_producer_id(name, MINUTE, None)
            assert (before[name].producer_id, before[name].epoch + 1) == run
        for name in LOST:
            assert Code.NOT_COORDINATOR == refusal(coordinator.init_producer_id, name, MINUTE, None)
    engine.close()
