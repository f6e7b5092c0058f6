"""Tests of the lags of groups in a report, read from a data directory."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from tests.doubles.engines import append_lines
from topicfs.coordination.membership import Position
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.report.collector import find_lags
from topicfs.pipeline.report.numbers import GroupLag
from topicfs.replication import open_directories, open_engine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.model import Offset, TopicPartition


def test_a_lag_is_not_negative(tmp_path: Path):
    """If a group's position is beyond the end, as after a topic was created again, its lag is 0."""
    with closing(open_engine(tmp_path)) as engine:
        append_lines(engine.create_topic("orders").partitions()[0], "a\nb\n")
        orders = TopicPartition("orders", 0)
        engine.groups.set_positions("behind", {orders: Position(Offset(1))})
        engine.groups.set_positions("before", {orders: Position(Offset(9))})

    found = find_lags(SparkPlace(path=str(tmp_path)), None)
    assert {orders: (GroupLag("before", 9, 0), GroupLag("behind", 1, 1))} == found


def test_lags_are_read_without_a_lost_replica_directory(tmp_path: Path):
    """The lags can be read even if the place leaves out a lost replica directory."""
    roots = [tmp_path / name for name in ("a", "b", "c")]
    config = EngineConfig()._replace(replication_factor=3)
    orders = TopicPartition("orders", 0)
    with closing(open_directories(roots, replicated=True, config=config)) as engine:
        append_lines(engine.create_topic("orders", partitions=1).partitions()[0], "a\nb\n")
        engine.groups.set_positions("behind", {orders: Position(Offset(1))})
    shutil.rmtree(roots[0])

    place = SparkPlace(path=",".join(map(str, roots)), without=str(roots[0]))
    assert {orders: (GroupLag("behind", 1, 1),)} == find_lags(place, None)
