"""Tests of many partitions under the usual limit of descriptors, and of the owner of a directory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from topicfs.storage.disk.native import NativeFile, NativeFileSystem
from topicfs.storage.errors import DirectoryLockedError, NotALogDirectoryError
from topicfs.storage.manager import Machine, open_engine

PARTITIONS = 1_000
USUAL_LIMIT = 1_024
OPEN = """
import sys
from pathlib import Path
from topicfs.storage.manager import open_engine
open_engine(Path(sys.argv[1]))
"""


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
def test_a_thousand_partitions_fit_the_usual_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand partitions are written, read, closed and opened again below the usual limit of descriptors.

    Syncs are skipped, because thousands of syncs would take a slow disk a minute. Descriptors that other tests left
    open do not count.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("topicfs.storage.disk.native._SYNC", lambda _: None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = USUAL_LIMIT + open_descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        engine = open_engine(tmp_path / "data", machine=Machine(files=NativeFileSystem()))
        engine.create_topic("t", partitions=PARTITIONS)
        for number, partition in engine.topic("t").partitions().items():
            append_lines(partition, f"{number}\n")
        assert open_descriptors() < limit
        engine.close()
        engine = open_engine(tmp_path / "data", machine=Machine(files=NativeFileSystem()))
        partitions = engine.topic("t").partitions()
        assert [[str(number)] for number in range(PARTITIONS)] == [
            read_lines(partition) for partition in partitions.values()
        ]
        assert open_descriptors() < limit
        engine.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_read_only_opening_maps_no_preallocated_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only opening maps no preallocated index. Mapping a thousand indexes of 10 MB would take a minute."""
    engine = open_engine(tmp_path / "data")
    engine.create_topic("t", partitions=3)
    for partition in engine.topic("t").partitions().values():
        append_lines(partition, "x\n")
        partition.sync()
    mapped: list[str] = []
    monkeypatch.setattr(NativeFile, "_map", lambda file, _: mapped.append(file.path.name) or memoryview(b""))
    looking = open_engine(tmp_path / "data", read_only=True)
    assert [1] * 3 == [
        partition.offsets().log_end_offset for partition in looking.topic("t").partitions().values()
    ]
    assert [] == mapped
    looking.close()
    monkeypatch.undo()
    engine.close()


def test_directory_has_one_owner(tmp_path: Path) -> None:
    """The error for a second engine has the owner's process ID, and the lock stays."""
    engine = open_engine(tmp_path / "data")
    for _ in range(2):
        with pytest.raises(DirectoryLockedError, match=f"process {os.getpid()}"):
            open_engine(tmp_path / "data")
    refused = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path / "data")], check=False, capture_output=True, text=True
    )
    assert f"in use by process {os.getpid()}" in refused.stderr
    engine.close()
    assert not (tmp_path / "data" / ".lock").exists()
    open_engine(tmp_path / "data").close()


def test_failed_opening_gives_the_lock_back(tmp_path: Path) -> None:
    """After a failed opening the lock is free. A foreign directory gets no lock file."""
    open_engine(tmp_path / "data").close()
    (tmp_path / "data" / "topicfs.topics").write_text("rubbish")
    with pytest.raises(Exception, match=r"topicfs\.topics"):
        open_engine(tmp_path / "data")
    (tmp_path / "data" / "topicfs.topics").unlink()
    open_engine(tmp_path / "data").close()
    (tmp_path / "data" / "lost+found").mkdir()
    with pytest.raises(NotALogDirectoryError):
        open_engine(tmp_path / "data")
    assert not (tmp_path / "data" / ".lock").exists()
