"""Tests that a partition never has two holders, whichever members join, leave, hang or commit."""

from __future__ import annotations

import threading
from random import Random

import pytest

from tests.doubles.engines import engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.waiting import wait_until
from topicfs.coordination.membership import MemberPartitions, Position, Subscription
from topicfs.replication import EmbeddedEngine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.model import TopicPartition

STEPS = 150


class Watched:
    """A group of readers. It notes the holder of each partition, and each time when a partition had two holders."""

    def __init__(self, engine: EmbeddedEngine, assignor: str, seed: int) -> None:
        self.engine = engine
        self.random = Random(seed)
        engine.groups.create("g")
        engine.groups.alter_config("g", {"assignor": assignor})
        self.readers: list[WatchedReader] = []
        self.holders: dict[TopicPartition, WatchedReader] = {}
        self.wrong: list[str] = []
        self.acknowledged: dict[TopicPartition, int] = {}
        self.step = 0

    def come(self) -> None:
        if len(self.readers) < 6:
            self.readers.append(WatchedReader(self, f"m{self.step}"))

    def go(self) -> None:
        if len(self.readers) > 1:
            leaving = self.readers.pop(self.random.randrange(len(self.readers)))
            leaving.member.leave().result(30)

    def hang(self) -> None:
        for reader in self.readers[:1]:
            reader.hangs = not reader.hangs
            if not reader.hangs:
                reader.member.give_up(reader.member.held().wanted_back)

    def grow(self) -> None:
        if self.step % 10 == 0:
            partitions = self.engine.topic("orders").partitions()
            self.engine.add_partitions("orders", total=len(partitions) + 1)

    def commit(self) -> None:
        holders = sorted(self.holders.items(), key=lambda item: item[0])
        if holders:
            place, reader = self.random.choice(holders)
            if reader.member.commit({place: Position(self.step)}).exception(30) is None:
                self.acknowledged[place] = self.step


class WatchedReader:
    """A reader that reports its partitions whenever they change."""

    def __init__(self, group: Watched, name: str) -> None:
        self.group = group
        self.hangs = False
        made = threading.Event()

        def listener() -> None:
            made.wait()
            self.told()

        self.member = group.engine.groups.join(
            "g", Subscription(topics=frozenset({"orders"})), client_id=name, listener=listener
        )
        made.set()

    def told(self) -> None:
        held: MemberPartitions = self.member.held()
        holders = self.group.holders
        for partition in [one for one, who in list(holders.items()) if who is self]:
            if partition not in held.partitions:
                del holders[partition]
        for partition in held.partitions:
            if holders.setdefault(partition, self) is not self:
                self.group.wrong.append(f"{partition} in step {self.group.step}")
        if held.wanted_back and not self.hangs:
            self.member.give_up(held.wanted_back)


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "sticky", "range"])
def test_a_partition_has_one_holder_at_most(disk: SimulatedDisk, clock: ManualClock, assignor: str):
    """No partition ever has two holders.

    At the end each partition has a holder, and the group's positions are the last acknowledged positions.
    """
    engine = engine_on(disk, clock=clock, config=EngineConfig(offsets_topic_num_partitions=1))
    engine.create_topic("orders", partitions=7)
    group = Watched(engine, assignor, seed=7)
    actions = [group.come, group.go, group.commit, group.commit, group.hang, group.grow]
    for group.step in range(STEPS):
        group.random.choice(actions)()
    for reader in group.readers:
        reader.hangs = False
        reader.member.give_up(reader.member.held().wanted_back)
    everything = {TopicPartition("orders", number) for number in engine.topic("orders").partitions()}
    wait_until(lambda: everything == set(group.holders), "each partition has a holder")

    assert [] == group.wrong
    positions = engine.groups.positions("g").committed
    assert group.acknowledged == {place: one.offset for place, one in positions.items()}
    assert len(group.acknowledged) > 3
    engine.close()
