"""Tests that a topic that is deleted and created again keeps nothing of the old topic.

Other tests prove this for named producers, staged and placed writes, queues, replicas, mirrors and queries.
"""

from __future__ import annotations

import pytest

from tests.doubles.engines import TINY_SEGMENTS, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End
from tests.doubles.records import produced
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.staged_writes import compact
from topicfs.coordination.membership import Position
from topicfs.replication import EmbeddedEngine
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset, TopicPartition

ORDERS = TopicPartition("orders", 0)


def orders(engine: EmbeddedEngine) -> Log:
    partition = engine.partition(*ORDERS)
    assert isinstance(partition, Log)
    return partition


def lived_in(disk: SimulatedDisk, clock: ManualClock) -> EmbeddedEngine:
    """Return an engine whose topic `orders` has left all kinds of state.

    The topic has settings, producers, checkpoints, deleted and compacted records, and a group that reads it.
    """
    engine = engine_on(disk, clock=clock)
    engine.create_topic("__consumer_offsets", partitions=1)
    engine.create_topic("orders", partitions=2, overrides={"max.message.bytes": "5000", **TINY_SEGMENTS})
    log = orders(engine)
    for number in range(30):
        log.append(produced(b"%d" % number, pid=7, epoch=3, sequence=number))
    engine.groups.set_positions("readers", {ORDERS: Position(Offset(20))})
    log.delete_records(Offset(10))
    engine.alter_config("orders", {"cleanup.policy": "compact"})
    compact(log, clock)
    engine.close()
    return engine_on(disk, clock=clock)


@pytest.mark.parametrize("end", [None, *End], ids=str)
def test_nothing_of_the_former_topic_is_left(end: End | None, clock: ManualClock) -> None:
    """After a restart or a crash the new topic has only its own records, producers and settings."""
    disk = SimulatedDisk()
    engine = lived_in(disk, clock)
    former = engine.topic("orders").topic_id
    engine.delete_topic("orders")
    topic = engine.create_topic("orders")
    append_lines(orders(engine), "new\n")
    orders(engine).append(produced(b"first", pid=7, epoch=0, sequence=0))
    orders(engine).sync()
    disk.sync_directory(orders(engine).directory)
    if end is None:
        engine.close()
    else:
        end.of(disk)
    engine = engine_on(disk, clock=clock)
    found, log = engine.topic("orders"), orders(engine)
    assert former != topic.topic_id == found.topic_id
    assert ({"retention.ms": "-1"}, 1) == (found.overrides, len(found.partitions()))
    assert ["new", "first"] == read_lines(log)
    assert (0, 2, 2) == (log.log_start_offset, log.high_watermark, log.log_end_offset)
    assert [(7, 0)] == [(one.producer_id, one.epoch) for one in log.producers()]
    assert {} == engine.groups.positions("readers").committed
    assert log.status().first_dirty_offset is None
