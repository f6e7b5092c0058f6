"""Positions in a topic that was deleted, where a new topic has its name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import Position
from topicfs.replication import open_engine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.model import TopicPartition

T0 = TopicPartition("orders", 0)


def alone(directory: Path) -> Engine:
    return open_engine(directory / "1")


def replicated(directory: Path) -> Engine:
    return open_replicas([directory / "1", directory / "2"])


def committed(engine: Engine) -> dict[TopicPartition, int]:
    return {place: one.offset for place, one in engine.groups.positions("g").committed.items()}


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("opened", [alone, replicated])
def test_a_new_topic_of_the_name_begins_without_a_position(
    tmp_path, opened: Callable[[Path], Engine], loaded: bool
):
    """Also if the groups were not in use as the topic was deleted, and after a restart; its own position counts."""
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    with closing(opened(tmp_path)) as engine:
        engine.create_topic("__consumer_offsets", partitions=1)
        engine.create_topic("orders")
        engine.groups.set_positions("g", {T0: Position(3)})
    with closing(opened(tmp_path)) as engine:
        if loaded:
            assert {T0: 3} == committed(engine)
        engine.delete_topic("orders")
        engine.create_topic("orders")
        assert {} == committed(engine)
    with closing(opened(tmp_path)) as engine:
        assert {} == committed(engine)
        engine.groups.set_positions("g", {T0: Position(1)})
    with closing(opened(tmp_path)) as engine:
        assert {T0: 1} == committed(engine)
        engine.groups.delete_positions("g", [T0])
        assert {} == committed(engine)
