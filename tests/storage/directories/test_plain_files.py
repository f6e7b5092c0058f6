"""Tests that a FIFO, socket or link in place of a file never blocks, and that the error names this file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.engines import read_lines
from tests.doubles.manual_clock import ManualClock
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import CorruptionError, NotAPlainFileError, StorageError
from topicfs.storage.manager import Machine, open_engine

pytestmark = pytest.mark.slow

FIRST = f"{0:020d}"


def make_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def make_link(path: Path) -> None:
    """Make a link to a regular file."""
    away = path.with_name(f"{path.name}-away")
    away.touch()
    path.symlink_to(away)


MAKERS: dict[str, Callable[[Path], None]] = {
    "FIFO": os.mkfifo,
    "socket": make_socket,
    "symbolic link": make_link,
}
OF_A_PARTITION = [f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.timeindex", "leader-epoch-checkpoint"]
OF_THE_DIRECTORY = ["meta.properties", "topicfs.topics", ".lock"]
CHECKPOINTS = ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"]


@pytest.fixture
def data(data: Path) -> Path:
    """The data directory behind a symbolic link."""
    link = data.with_name("link")
    link.symlink_to(data)
    return link


def put(kind: str, path: Path) -> None:
    path.unlink(missing_ok=True)
    MAKERS[kind](path)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("name", OF_A_PARTITION)
@pytest.mark.parametrize("kind", MAKERS)
def test_only_the_partition_with_such_a_file_is_offline(
    data: Path, kind: str, name: str, *, clean: bool, read_only: bool
) -> None:
    """A partition with a special file is offline; the reason has the file and its kind. Other partitions are served."""
    path = data / "damaged-0" / name
    put(kind, path)
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    engine = open_engine(data, read_only=read_only)
    state = engine.partition("damaged", 0).status().state
    if read_only and not clean and name.endswith("index"):
        assert "online" == state, "a read-only engine makes indexes in memory"
    else:
        assert f"offline: {NotAPlainFileError(path, kind)}" == state
    assert ["line"] == read_lines(engine.partition("whole", 0))
    engine.close()
    assert path.is_symlink() or not path.is_file()


@pytest.mark.parametrize("name", OF_THE_DIRECTORY)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_directory_with_a_special_file_is_refused(data: Path, kind: str, name: str) -> None:
    """If a file of the directory itself is a special file, opening is refused before anything is changed.

    The error names the file.
    """
    put(kind, data / name)
    with pytest.raises(StorageError, match=f"{data / name}: .*a {kind} where a plain file belongs"):
        open_engine(data)


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_checkpoint_counts_as_empty_and_is_written_again(data: Path, kind: str, name: str) -> None:
    """A checkpoint that is not a regular file counts as empty, like a damaged one, and is written again."""
    path = data / name
    put(kind, path)
    engine = open_engine(data)
    assert [f"{NotAPlainFileError(path, kind)}; treated as empty"] == list(engine.warnings)
    assert ["line"] == read_lines(engine.partition("damaged", 0))
    engine.close()
    assert path.is_file()
    assert not path.is_symlink()


@pytest.mark.parametrize("name", [*OF_A_PARTITION, f"{1:020d}.snapshot", "partition.metadata"])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_check_reports_a_special_file(data: Path, kind: str, name: str) -> None:
    """`check` reports the special file and checks all other files."""
    path = data / "damaged-0" / name
    put(kind, path)
    examination = DirectoryCheck(data, NativeFileSystem(read_only=True))
    told = [finding for finding in examination.findings() if finding.file == path]
    assert [NotAPlainFileError(path, kind).cause] == [finding.cause for finding in told]
    assert 2 == examination.summary.partitions


@pytest.mark.parametrize("create", [False, True])
def test_a_device_is_no_file(create: bool) -> None:
    """A character device is refused, although it can be read."""
    with pytest.raises(CorruptionError, match="/dev/null: position 0: a character device"):
        NativeFileSystem().open(Path("/dev/null"), create=create)


def test_a_small_file_is_not_written_into_a_fifo(tmp_path: Path) -> None:
    """Writing to a FIFO is refused, because without a reader the write would block forever."""
    os.mkfifo(tmp_path / "file")
    with pytest.raises(NotAPlainFileError, match="a FIFO where a plain file belongs"):
        NativeFileSystem().write_bytes(tmp_path / "file", b"data")


def test_errors_of_a_descriptor_name_the_file(tmp_path: Path) -> None:
    """The errors of calls on a descriptor name the file."""
    path = tmp_path / "file"
    file = NativeFileSystem().open(path, create=True)
    with pytest.raises(OSError, match=str(path)):
        file.pread(1, -1)
    with pytest.raises(OSError, match=str(path)):
        file.pwrite(b"x", -1)
    with pytest.raises(OSError, match=str(path)):
        file.truncate(-1)


def test_a_deleted_partition_behind_a_link_goes(data: Path) -> None:
    """Deleting a partition whose directory is a link removes its files and the link. The link's target stays, empty."""
    clock = ManualClock()
    away = data.parent / "away"
    (data / "damaged-0").rename(away)
    (data / "damaged-0").symlink_to(away)
    engine = open_engine(data, machine=Machine(clock=clock))
    assert ["line"] == read_lines(engine.partition("damaged", 0))
    engine.delete_topic("damaged")
    clock.advance(60_000)
    engine.maintenance(clock())
    assert [] == [path.name for path in data.iterdir() if path.name.startswith("damaged")]
    assert [] == list(away.iterdir())
    assert () == engine.warnings
    engine.close()
