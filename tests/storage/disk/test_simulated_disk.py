"""Tests of the simulated disk, which tests crash: it guarantees exactly what a real disk guarantees."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.doubles.simulated_disk import CrashedError, SimulatedDisk
from topicfs.storage.errors import ReadOnlyError
from topicfs.storage.model import Position

ROOT = Path("/")
LOG = Path("/log")


@pytest.fixture
def file(disk):
    return disk.open(LOG, create=True)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_survives_a_crash(seed):
    """Content and names that were synced survive a crash.

    A part of the content that was appended after the sync may survive as well, at its own position.
    """
    disk = SimulatedDisk(seed=seed)
    file = disk.open(LOG, create=True)
    file.append(b"a" * 1000)
    file.sync()
    disk.sync_directory(ROOT)
    file.append(b"b" * 3000)
    disk.crash()
    content = disk.read_bytes(LOG)
    assert b"a" * 1000 == content[:1000]
    assert set(content[1000:]) <= set(b"b\0")
    assert len(content) <= 4000


def test_an_unsynced_name_may_be_lost():
    """A file in a directory that was not synced sometimes survives a crash, and sometimes does not."""
    outcomes = set()
    for seed in range(30):
        disk = SimulatedDisk(seed=seed)
        disk.open(LOG, create=True).sync()
        disk.crash()
        outcomes.add(disk.exists(LOG))
    assert {True, False} == outcomes


def test_a_crash_that_keeps_nothing_keeps_no_unsynced_name():
    """With `keep=0` a crash removes unsynced names, and undoes renames and removals of files."""
    kept, renamed, removed = Path("/kept"), Path("/renamed"), Path("/removed")
    for seed in range(30):
        disk = SimulatedDisk(seed=seed)
        for path in (kept, renamed, removed):
            disk.write_bytes(path, path.name.encode(), sync=True)
        disk.sync_directory(ROOT)
        disk.write_bytes(LOG, b"made", sync=True)
        disk.make_directory(Path("/directory"))
        disk.rename(renamed, Path("/elsewhere"))
        disk.link(kept, Path("/linked"))
        disk.unlink(removed)
        disk.crash(keep=0.0)
        assert {str(path): path.name.encode() for path in (kept, renamed, removed)} == disk.tree()
        assert not disk.exists(Path("/directory"))


def test_a_crash_that_keeps_everything_keeps_every_name():
    """With `keep=1` all changes of names survive a crash, as they survive a kill."""
    for seed in range(30):
        disk = SimulatedDisk(seed=seed)
        disk.write_bytes(Path("/old"), b"old")
        disk.rename(Path("/old"), LOG)
        disk.write_bytes(Path("/removed"), b"")
        disk.unlink(Path("/removed"))
        disk.crash(keep=1.0)
        assert {"/log": b"old"} == disk.tree()


def test_renames_survive_in_order():
    """A crash undoes the newest renames of a directory first."""
    for seed in range(30):
        disk = SimulatedDisk(seed=seed)
        disk.write_bytes(Path("/new"), b"new", sync=True)
        disk.write_bytes(LOG, b"old", sync=True)
        disk.sync_directory(ROOT)
        disk.rename(Path("/new"), LOG)
        disk.open(Path("/later"), create=True)
        disk.crash()
        assert disk.exists(LOG)
        if disk.exists(Path("/later")):
            assert b"new" == disk.read_bytes(LOG)


def test_a_full_disk_takes_nothing(disk, file):
    """A write that does not fit changes nothing, and succeeds once there is room."""
    disk.fill(1024)
    file.append(b"a" * 1024)
    with pytest.raises(OSError) as full:
        file.append(b"b")
    assert errno.ENOSPC == full.value.errno
    assert 1024 == file.size()
    disk.fill(None)
    file.append(b"b")
    assert 1025 == file.size()


def test_planned_failures_come_when_they_are_due(disk):
    """A planned failure hits the n-th call of a kind on a matching path, as often as requested."""
    file, other = disk.open(LOG, create=True), disk.open(Path("/other"), create=True)
    disk.fail("pwrite", after=1, times=2, suffix="log")
    file.append(b"1")
    other.append(b"1")
    for _ in range(2):
        with pytest.raises(OSError) as failure:
            file.append(b"2")
        assert errno.EIO == failure.value.errno
    file.append(b"3")
    assert b"13" == disk.read_bytes(LOG)


def test_a_failed_sync_loses_what_it_should_have_written(disk, file):
    """After a failed sync, the next sync succeeds although the blocks of the failed sync are lost, as in Linux."""
    file.sync()
    disk.sync_directory(ROOT)
    file.append(b"lost")
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert b"lost" == disk.read_bytes(LOG)
    disk.crash(keep=1.0)
    assert b"\0" * 4 == disk.read_bytes(LOG)


def test_files_die_with_the_crash(disk, file):
    """A file opened before a crash cannot be used after it."""
    disk.crash()
    with pytest.raises(CrashedError):
        file.pread(1, Position(0))


def test_a_read_only_view_refuses_changes(disk):
    """A read-only view has the same content and refuses changes."""
    disk.write_bytes(LOG, b"1")
    view = disk.read_only_view()
    assert b"1" == view.read_bytes(LOG)
    with pytest.raises(ReadOnlyError):
        view.unlink(LOG)
    with pytest.raises(OSError) as refused:
        view.open(LOG).append(b"2")
    assert errno.EBADF == refused.value.errno
