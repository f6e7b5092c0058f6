"""Tests that sparse files of 8 TB in place of small files are refused without being read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.engines import read_lines
from topicfs.fusefs.views.view_file import ViewStore
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication.scrub.scrubber import read_position
from topicfs.storage.disk.names import SCRUB, view_file
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import CorruptionError, PartitionOfflineError
from topicfs.storage.manager import open_engine
from topicfs.storage.model import Offset

BYTES = 8 << 40
CAUSE = f"a file of {BYTES} bytes"
FIRST = f"{0:020d}"
OF_A_PARTITION = [f"{1:020d}.snapshot", "leader-epoch-checkpoint", "partition.metadata"]
INDEXES = [f"{FIRST}.index", f"{FIRST}.timeindex", f"{FIRST}.txnindex"]
CHECKPOINTS = ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"]
OF_THE_DIRECTORY = ["meta.properties", "topicfs.topics"]


def grow(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(BYTES)
    return path


@pytest.mark.parametrize("name", OF_A_PARTITION)
def test_only_the_partition_with_such_a_file_is_offline(data: Path, name: str) -> None:
    """A partition with an oversize file is offline, and the reason has file and size. Other partitions are served."""
    grow(data / "damaged-0" / name)
    engine = open_engine(data)
    with pytest.raises(PartitionOfflineError, match=f"{name}: position 0: {CAUSE}"):
        read_lines(engine.partition("damaged", 0))
    assert ["line"] == read_lines(engine.partition("whole", 0))
    engine.close()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_an_oversize_checkpoint_counts_as_empty(data: Path, name: str) -> None:
    """An oversize checkpoint counts as empty, with a warning, like a damaged one."""
    grow(data / name)
    engine = open_engine(data)
    (warning,) = engine.warnings
    assert warning.startswith(f"{data / name}: position 0: {CAUSE}")
    assert ["line"] == read_lines(engine.partition("damaged", 0))
    engine.close()


@pytest.mark.parametrize("name", OF_THE_DIRECTORY)
def test_a_directory_with_an_oversize_file_of_its_own_is_refused(data: Path, name: str) -> None:
    """If a file of the directory itself is oversize, opening is refused, because its topics are unknown."""
    grow(data / name)
    with pytest.raises(CorruptionError, match=f"{name}: position 0: {CAUSE}"):
        open_engine(data)


@pytest.mark.parametrize("name", [*OF_A_PARTITION, *INDEXES])
def test_a_check_reports_the_file_and_continues(data: Path, name: str) -> None:
    """A check reports the oversize file and still checks the other partition."""
    path = grow(data / "damaged-0" / name)
    examination = DirectoryCheck(data, NativeFileSystem(read_only=True))
    assert [True] == [one.cause.startswith(CAUSE) for one in examination.findings() if one.file == path]
    assert 2 == examination.summary.partitions


def test_an_oversize_file_that_can_be_made_again_is_ignored(data: Path) -> None:
    """An oversize file with a scrub's position or with view positions is ignored, like a damaged one."""
    files = NativeFileSystem()
    grow(data / SCRUB)
    assert None is read_position(files, data)
    grow(data / "damaged-0" / view_file(Offset(0)))
    assert None is ViewStore(data / "damaged-0", files).load(Offset(0), ".kv", memoryview(b""))
