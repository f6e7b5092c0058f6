"""Tests that unused slots of an index use no disk blocks, even when the index is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.indexes.offset_index import OffsetIndex
from topicfs.storage.indexes.time_index import TimeIndex
from topicfs.storage.model import Offset

IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def disk_in_memory(tmp_path: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else tmp_path) as directory:
        yield Path(directory)


@pytest.mark.parametrize("index", [OffsetIndex, TimeIndex])
def test_opening_a_preallocated_index_takes_no_room(
    disk_in_memory: Path, index: type[OffsetIndex | TimeIndex]
) -> None:
    """Opening a sparse index touches none of its pages, because on a full tmpfs a touched page would raise SIGBUS."""
    path = disk_in_memory / "index"
    path.touch()
    os.truncate(path, 10 << 20)
    opened = index(NativeFileSystem().open(path), Offset(0))
    opened.slots.close()
    assert 0 == path.stat().st_blocks
