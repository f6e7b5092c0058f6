"""Tests of `topicfs append --producer` over several directories, after one is lost or their order has changed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.config.broker import EngineConfig

APPEND = ("append", "--producer", "nightly", "orders/0", "events.txt", "--data")


def started(*names: str, left_out: tuple[str, ...] = ()) -> None:
    """Open replicated directories as a mount does, and copy records until all replicas are in sync."""
    without = tuple(Path(name).absolute() for name in left_out)
    config = EngineConfig(replication_factor=2)
    directories = [Path(name) for name in names]
    with closing(open_replicas(directories, config=config, left_out=without, in_background=False)) as engine:
        if "orders" not in engine.topics():
            engine.create_topic("orders")
        engine.catch_up()


@pytest.mark.parametrize("order", ["a,b", "b,a"])
@pytest.mark.parametrize("lost", ["a", "b"])
def test_a_repeated_append_adds_nothing_after_a_disk_is_lost(topicfs, lost, order):
    """After a directory was lost, a repeated append adds nothing, because every directory stores how far the append got."""
    left = "ab".replace(lost, "")
    started("a", "b")
    Path("events.txt").write_bytes(b"1\n2\n")
    assert "2 records appended" in topicfs(*APPEND, order).text
    Path(lost).rename("lost")
    started(left, left_out=(lost,))
    assert "nightly: 0 records appended" in topicfs(*APPEND, left).text
    assert b"1\n2\n" == topicfs("cat", "orders/0/log", "--data", left).output


def test_a_directory_that_was_away_does_not_bring_an_old_position(topicfs):
    """A directory that was missing gets the newer progress at the next start."""
    started("a", "b")
    Path("events.txt").write_bytes(b"1\n")
    assert 0 == topicfs(*APPEND, "a,b").status
    Path("b").rename("away")
    started("a", left_out=("b",))
    for lines in (b"1\n2\n", b"1\n2\n3\n"):
        Path("events.txt").write_bytes(lines)
        assert "1 records appended" in topicfs(*APPEND, "a").text
    Path("away").rename("b")
    started("b", "a")
    Path("a").rename("lost")
    started("b", left_out=("a",))
    assert "nightly: 0 records appended" in topicfs(*APPEND, "b").text
    assert b"1\n2\n3\n" == topicfs("cat", "orders/0/log", "--data", "b").output


def test_directories_without_replicas_may_be_named_in_any_order(topicfs):
    """Each directory has the progress even without replicas, so the directories may be named in any order."""
    topicfs("topics", "create", "orders", "--data", "a,b")
    Path("events.txt").write_bytes(b"1\n2\n")
    assert "2 records appended" in topicfs(*APPEND, "a,b").text
    assert "nightly: 0 records appended" in topicfs(*APPEND, "b,a").text
    assert b"1\n2\n" == topicfs("cat", "orders/0/log", "--data", "a,b").output
