"""Tests that directories made by topicfs are readable only by their owner, and existing ones keep their mode."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from topicfs.cluster.cache.cache import Cache
from topicfs.migration.takeover import BrokerDirectories, Takeover
from topicfs.replication import open_directories
from topicfs.storage.manager import open_engine
from topicfs.storage.messages import WarningBook
from topicfs.storage.model import Timestamp


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def one(base: Path) -> None:
    open_engine(base / "a").close()


def several(base: Path) -> None:
    open_engine([base / "a", base / "b"]).close()


def replicas(base: Path) -> None:
    open_directories([base / "a", base / "b"], read_only=False, config=None, replicated=True).close()


def taken_over(base: Path) -> None:
    (base / "broker").mkdir(0o700)
    engine = open_engine(base / "broker")
    engine.create_topic("orders")
    engine.close()
    source = BrokerDirectories(log_dirs=[base / "broker"], without_settings=True)
    Takeover(source, [base / "a"], report=print).take()


def cached(base: Path) -> None:
    Cache(base / "a", 1 << 20, WarningBook(lambda: Timestamp(0))).close()


MAKERS = [one, several, replicas, taken_over, cached]


@pytest.mark.parametrize("make", MAKERS)
def test_a_new_directory_is_private(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A new directory has mode 0700, whatever the umask allows."""
    make(tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert dict.fromkeys(modes, 0o700) == modes


@pytest.mark.parametrize("make", [one, cached])
def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """An existing directory keeps its mode, so that a user can share it with `mkdir -m 755`."""
    (tmp_path / "a").mkdir(0o755)
    make(tmp_path)
    assert 0o755 == stat.S_IMODE((tmp_path / "a").stat().st_mode)
