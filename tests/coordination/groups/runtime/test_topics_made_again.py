"""Tests of positions in a deleted topic after a new topic has taken its name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.engines import engine_on
from tests.doubles.group_reader import positions
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.engine import Engine
from topicfs.coordination.groups.offsets import NO_TOPIC_ID
from topicfs.coordination.groups.runtime.shard import OWN
from topicfs.coordination.membership import Position
from topicfs.coordination.records.group_records import CommittedOffset, write_committed_offset
from topicfs.replication import open_engine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.codec.records import encode
from topicfs.storage.model import Offset, Record, Timestamp, TopicPartition

T0 = TopicPartition("orders", 0)


def alone(directory: Path) -> Engine:
    return open_engine(directory / "1")


def replicated(directory: Path) -> Engine:
    return open_replicas([directory / "1", directory / "2"])


def commit_without_id(engine: Engine, offset: int) -> None:
    """Append a position without topic id, as a transaction or an older broker does."""
    position = CommittedOffset(
        group="g",
        topic="orders",
        partition=0,
        offset=offset,
        metadata="",
        commit_timestamp=0,
        expire_timestamp=-1,
        topic_id=NO_TOPIC_ID,
    )
    record = Record(Offset(0), Timestamp(0), *write_committed_offset(position))
    engine.partition("__consumer_offsets", 0).append(encode([record], OWN), durable=True, encoded_here=True)


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("opened", [alone, replicated])
def test_a_new_topic_of_the_name_begins_without_a_position(
    tmp_path, opened: Callable[[Path], Engine], loaded: bool
):
    """A position in the deleted topic does not count for the new topic of the same name.

    This holds after a restart as well, and even if no group was used before the deletion.
    """
    with closing(opened(tmp_path)) as engine:
        engine.create_topic("__consumer_offsets", partitions=1)
        engine.create_topic("orders")
        engine.groups.set_positions("g", {T0: Position(3)})
    with closing(opened(tmp_path)) as engine:
        if loaded:
            assert {T0: 3} == positions(engine)
        engine.delete_topic("orders")
        engine.create_topic("orders")
        assert {} == positions(engine)
    with closing(opened(tmp_path)) as engine:
        assert {} == positions(engine)
        engine.groups.set_positions("g", {T0: Position(1)})
    with closing(opened(tmp_path)) as engine:
        assert {T0: 1} == positions(engine)
        engine.groups.delete_positions("g", [T0])
        assert {} == positions(engine)


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("opened", [alone, replicated])
def test_a_position_without_the_id_of_its_topic_goes_with_the_topic(
    tmp_path, opened: Callable[[Path], Engine], loaded: bool
):
    """A position without topic id is deleted with its topic, even if no group was used before."""
    with closing(opened(tmp_path)) as engine:
        engine.create_topic("__consumer_offsets", partitions=1)
        engine.create_topic("orders")
        commit_without_id(engine, 3)
    with closing(opened(tmp_path)) as engine:
        if loaded:
            assert {T0: 3} == positions(engine)
        engine.delete_topic("orders")
        assert {} == positions(engine)
        engine.create_topic("orders")
        assert {} == positions(engine)


def test_a_position_that_outlived_its_topic_goes_before_the_next_topic_comes(disk: SimulatedDisk):
    """If the disk fails before a deleted topic's position is deleted, no new topic of the same name can be created.

    A new topic can be created as soon as the position is deleted.
    """
    engine = engine_on(disk)
    engine.create_topic("orders")
    engine.create_topic("__consumer_offsets", partitions=1)
    commit_without_id(engine, 3)
    assert {T0: 3} == positions(engine)
    disk.fail("pwrite", times=2, suffix=".log")
    engine.delete_topic("orders")
    assert {T0: 3} == positions(engine)
    with pytest.raises(OSError, match="Input/output error"):
        engine.create_topic("orders")
    assert "orders" not in engine.topics()
    engine.close()
    disk.heal()
    with closing(engine_on(disk)) as engine:
        engine.create_topic("orders")
        assert {} == positions(engine)


class RememberingDisk(SimulatedDisk):
    """A disk that copies its content before each change.

    Each copy has the content that a kill before this change would leave.
    """

    kept: list[SimulatedDisk] | None = None

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        if changes and self.kept is not None:
            self.kept.append(SimulatedDisk())
            self.kept[-1].take_content(self)
        super().happens(operation, path, changes=changes)


def test_a_kill_leaves_the_position_to_the_topic_that_it_belongs_to():
    """After a kill at any step of deleting a topic and creating it again, only the old topic has the old position."""
    disk = RememberingDisk()
    engine = engine_on(disk)
    topic_id = engine.create_topic("orders").topic_id
    engine.create_topic("__consumer_offsets", partitions=1)
    commit_without_id(engine, 3)
    disk.kept = kept = []

    def make_again() -> None:
        engine.delete_topic("orders")
        engine.create_topic("orders")

    engine.groups._runner.call(make_again)  # Makes all changes in one thread.
    disk.kept = None
    engine.close()
    found = set()
    for one in kept:
        with closing(engine_on(one)) as engine:
            before = engine.topics().get("orders")
            topic = before or engine.create_topic("orders")
            is_old = topic.topic_id == topic_id
            found.add("old" if is_old else "new" if before else "none")
            assert ({T0: 3} if is_old else {}) == positions(engine)
    assert {"old", "new", "none"} == found
