"""Fixtures of the tests of data directories."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.several_disks import A, B, SeveralDisks
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.manager import open_engine


@pytest.fixture
def disks() -> SeveralDisks:
    return SeveralDisks({A: SimulatedDisk(), B: SimulatedDisk()})


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed data directory with the topics `damaged` and `whole`."""
    directory = tmp_path_factory.mktemp("closed") / "data"
    engine = open_engine(directory)
    for name in ("damaged", "whole"):
        engine.create_topic(name)
        append_lines(engine.partition(name, 0), "line\n")
    engine.close()
    return directory


@pytest.fixture
def data(closed: Path, tmp_path: Path) -> Path:
    """A copy of the closed data directory."""
    return shutil.copytree(closed, tmp_path / "data")
