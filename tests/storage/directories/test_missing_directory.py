"""Tests of opening an engine while a data directory is missing or in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.engines import QUIET
from tests.doubles.manual_clock import ManualClock
from tests.doubles.several_disks import ALWAYS, A, B, SeveralDisks, contents, filled, opened, places, states
from topicfs.storage.errors import DirectoryLockedError, StorageError, TopicExistsError
from topicfs.storage.manager import Machine, open_engine

pytestmark = pytest.mark.slow


def test_opening_without_a_directory(disks: SeveralDisks, clock: ManualClock) -> None:
    """Partitions of a missing directory are offline with the reason, and are not created in another directory."""
    filled(disks, clock).close()
    disks.disks[B].rename(B, Path("/away"))
    disks.disks[B].make_directory(B)  # an empty mount point
    engine = opened(disks, clock)
    assert {"t-0": "online", "t-1": "offline"} == states(engine)
    assert "is its disk mounted?" in engine.partition("t", 1).status().state
    assert [] == list(disks.list_directory(B))
    with pytest.raises(TopicExistsError):
        engine.create_topic("t")
    engine.add_partitions("t", total=3)
    assert "/a" == places(engine)["t-2"]
    engine.alter_config("t", {"max.message.bytes": "9000"})
    with pytest.raises(OSError, match=r"meta\.properties"):
        engine.reopen_partition("t", 1)
    engine.close()
    disks.disks[B].remove_directory(B)
    engine = opened(disks, clock)
    assert {"t-0": "online", "t-1": "offline", "t-2": "online"} == states(engine)
    disks.disks[B].rename(Path("/away"), B)
    engine.reopen_partition("t", 1)
    assert {"t-0": ["0"], "t-1": ["1"], "t-2": []} == contents(engine)
    assert 9000 == engine.partition("t", 1).config.max_message_bytes
    engine.close()
    assert () == opened(disks, clock).warnings


def test_a_topic_that_stands_wholly_in_a_missing_directory_is_known(
    disks: SeveralDisks, clock: ManualClock
) -> None:
    """A topic whose partitions are all in a missing directory is offline, but keeps its name and settings."""
    engine = filled(disks, clock)
    engine.create_topic("here")
    engine.create_topic("there", overrides={"max.message.bytes": "77"})
    assert "/b" == places(engine)["there-0"]
    engine.close()
    disks.disks[B].fail("list_directory", times=ALWAYS)
    engine = opened(disks, clock)
    assert "offline" == states(engine)["there-0"]
    assert 77 == engine.topic("there").config.max_message_bytes
    engine.close()
    disks.disks[B].heal()
    again = opened(disks, clock)
    assert ("online", 77) == (states(again)["there-0"], again.topic("there").config.max_message_bytes)


def test_without_any_directory_there_is_no_engine(disks: SeveralDisks) -> None:
    """If all directories fail, opening raises the error of the directory that was opened last."""
    opened(disks).close()
    for disk in disks.disks.values():
        disk.fail("list_directory", times=ALWAYS)
    with pytest.raises(OSError, match="Input/output error"):
        opened(disks)


def test_a_partition_in_no_directory_is_reported(disks: SeveralDisks) -> None:
    """If a partition is in no opened directory, a warning names the partition.

    The partition is not created again, because it may be in another directory.
    """
    filled(disks).close()
    alone = opened(disks, None, A)
    assert [0] == list(alone.topic("t").partitions())
    assert ("t: not in /a: partition 1",) == alone.warnings
    alone.close()
    again = opened(disks)
    assert {"t-0": ["0"], "t-1": ["1"]} == contents(again)


def test_one_locked_directory_refuses_all(tmp_path: Path) -> None:
    """If one directory is locked, none is opened, so that no topic is served in part. The other locks are released."""
    owner = open_engine(tmp_path / "b")
    with pytest.raises(DirectoryLockedError, match="/b: in use"):
        open_engine((tmp_path / "a", tmp_path / "b"))
    assert not (tmp_path / "a" / ".lock").exists()
    owner.close()
    both = open_engine((tmp_path / "a", tmp_path / "b"))
    both.close()
    assert [False, False] == [(tmp_path / name / ".lock").exists() for name in ("a", "b")]


def test_a_directory_that_went_and_came_back_is_locked_again(tmp_path: Path) -> None:
    """A directory that returns without its lock file is locked again, so that no second owner can take it."""
    clock = ManualClock()
    engine = open_engine((tmp_path / "a", tmp_path / "b"), config=QUIET, machine=Machine(clock=clock))
    engine.create_topic("t", partitions=2)
    (tmp_path / "b").rename(tmp_path / "away")
    clock.advance(1_000)
    engine.maintenance(clock())
    (tmp_path / "away").rename(tmp_path / "b")
    (tmp_path / "b" / ".lock").unlink()
    engine.reopen_partition("t", 1)
    with pytest.raises(DirectoryLockedError):
        open_engine(tmp_path / "b")
    engine.close()
    assert not (tmp_path / "b" / ".lock").exists()


def test_a_missing_parent_is_a_mistake(tmp_path: Path) -> None:
    """A directory without a parent directory is refused as a mistake. It does not count as a failed disk."""
    with pytest.raises(StorageError, match="its parent directory does not exist"):
        open_engine((tmp_path / "a", tmp_path / "no" / "such"))
