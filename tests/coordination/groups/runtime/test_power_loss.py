"""Tests that flushed positions survive if a machine loses power while groups commit, and no other positions appear."""

from __future__ import annotations

from random import Random

import pytest

from tests.doubles.engines import engine_on
from tests.doubles.group_reader import Reader, positions, wait_until_shared
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End, MortalDisk
from topicfs.coordination.membership import GroupState
from topicfs.storage.model import TopicPartition

TOPIC = "__consumer_offsets"
PLACES = [TopicPartition("orders", number) for number in range(4)]


def prepared(seed: int) -> MortalDisk:
    disk = MortalDisk(seed=seed)
    engine = engine_on(disk, clock=ManualClock())
    engine.create_topic(TOPIC, partitions=1)
    engine.create_topic("orders", partitions=len(PLACES))
    engine.close()
    return disk


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("end", [End.POWER_LOSS, End.POWER_LOSS_KEEPING_NOTHING])
def test_flushed_positions_survive_a_loss_of_power(end: End, seed: int) -> None:
    """After a loss of power each partition has a committed position, and the group continues from this position.

    The position is the last flushed one or a later one.
    """
    disk, chosen = prepared(seed), Random(seed)
    engine = engine_on(disk, clock=ManualClock())
    readers = [Reader(engine, "g", "orders", name=f"reader-{number}") for number in range(2)]
    wait_until_shared(readers, PLACES)
    committed: dict[TopicPartition, list[int]] = {place: [] for place in PLACES}
    flushed: dict[TopicPartition, int] = {}
    for offset in range(1, 40):
        reader = chosen.choice(readers)
        place = chosen.choice(reader.partitions)
        reader.commit(place, offset, "x" * chosen.randrange(200))
        committed[place].append(offset)
        if chosen.random() < 0.2:
            engine.partition(TOPIC, 0).sync()
            flushed = {one: offsets[-1] for one, offsets in committed.items() if offsets}
    end.of(disk)
    engine = engine_on(disk, clock=ManualClock())
    found = positions(engine)
    assert flushed.keys() <= found.keys()
    for place, offset in found.items():
        assert offset in committed[place]
        assert offset >= flushed.get(place, 0)
    if "g" in engine.groups.listed():
        assert GroupState.EMPTY is engine.groups.describe("g").state
    successor = Reader(engine, "g", "orders")
    wait_until_shared([successor], PLACES)
    assert {place: found.get(place) for place in PLACES} == {
        place: None if one is None else one.offset for place, one in successor.held.positions.items()
    }
    successor.commit(PLACES[0], 100)
    engine.close()
    engine = engine_on(disk, clock=ManualClock())
    assert 100 == positions(engine)[PLACES[0]]
    engine.close()
