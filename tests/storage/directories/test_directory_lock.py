"""Tests of Kafka's lock on a data directory, between real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.broker_lock import locked_by_a_broker, refused_elsewhere
from topicfs.storage.disk.lock import DirectoryLock, LockHolder, find_holder
from topicfs.storage.errors import DirectoryLockedError


@pytest.fixture
def holder_pid(tmp_path: Path) -> Iterator[int]:
    """The process ID of another process that holds the lock as a broker does."""
    with locked_by_a_broker(tmp_path) as pid:
        yield pid


def test_lock_is_taken_and_given_up(tmp_path: Path) -> None:
    """The lock file exists while the lock is held. A lock that was released can be taken again."""
    for _ in range(2):
        lock = DirectoryLock(tmp_path)
        assert lock.held
        assert b"" == (tmp_path / ".lock").read_bytes()
        lock.release()
        lock.release()
        assert not lock.held
        assert [] == list(tmp_path.iterdir())


def test_the_error_for_a_second_process_names_the_holder(tmp_path: Path, holder_pid: int) -> None:
    """The error for a second process has the directory and the holder's process ID. The holder keeps its lock."""
    for _ in range(2):
        with pytest.raises(DirectoryLockedError, match=f"process {holder_pid}; ") as caught:
            DirectoryLock(tmp_path)
        assert (tmp_path, holder_pid) == (caught.value.directory, caught.value.holder_pid)
    assert (tmp_path / ".lock").exists()


def test_second_engine_of_one_process_is_refused(tmp_path: Path) -> None:
    """A second lock in the same process is refused.

    fcntl would grant a second lock, and the first close would drop both locks.
    """
    lock = DirectoryLock(tmp_path)
    with pytest.raises(DirectoryLockedError) as caught:
        DirectoryLock(tmp_path)
    assert os.getpid() == caught.value.holder_pid
    assert refused_elsewhere(tmp_path)
    lock.release()


def test_asking_for_the_holder_changes_nothing(tmp_path: Path, holder_pid: int) -> None:
    """`find_holder` returns the process ID of a broker, and does not create a missing lock file."""
    assert LockHolder(holder_pid, is_this_engine=False) == find_holder(tmp_path)
    (tmp_path / "empty").mkdir()
    assert find_holder(tmp_path / "empty") is None
    assert [] == list((tmp_path / "empty").iterdir())


def test_asking_about_an_own_lock_keeps_it(tmp_path: Path) -> None:
    """`find_holder` keeps a lock that its own process holds. Opening and closing the lock file would drop this lock."""
    lock = DirectoryLock(tmp_path)
    assert LockHolder(os.getpid(), is_this_engine=True) == find_holder(tmp_path)
    assert refused_elsewhere(tmp_path)
    lock.release()


def test_a_lock_shows_whether_topicfs_or_a_broker_holds_it(tmp_path: Path) -> None:
    """Another process can tell that topicfs, and not a broker, holds the lock. A broker cannot take this lock."""
    lock = DirectoryLock(tmp_path)
    assert f"{LockHolder(os.getpid(), is_this_engine=True)}" == found_elsewhere(tmp_path)
    assert refused_elsewhere(tmp_path)
    lock.release()


def test_left_over_file_is_no_lock(tmp_path: Path) -> None:
    """A lock file that a killed process left behind is not a lock."""
    (tmp_path / ".lock").touch()
    assert find_holder(tmp_path) is None
    lock = DirectoryLock(tmp_path)
    lock.release()


def test_lock_does_not_survive_a_fork(tmp_path: Path) -> None:
    """A forked child neither holds the lock nor can take it, and keeps the parent's lock when it exits."""
    lock = DirectoryLock(tmp_path)
    child = os.fork()
    if not child:
        status = 1
        try:
            assert not lock.held
            lock.release()
            try:
                DirectoryLock(tmp_path)
            except DirectoryLockedError as error:
                status = 0 if error.holder_pid == os.getppid() else 2
        finally:
            os._exit(status)
    assert 0 == os.waitpid(child, 0)[1]
    assert lock.held
    assert (tmp_path / ".lock").exists()
    assert refused_elsewhere(tmp_path)
    lock.release()


def found_elsewhere(directory: Path) -> str:
    """Return what `find_holder` returns in another process."""
    script = (
        "import sys; from pathlib import Path; from topicfs.storage.disk.lock import find_holder;"
        "print(find_holder(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", script, directory]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_lock_on_a_file_that_was_just_deleted_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the lock file is deleted just after a process has opened it, the process locks a new lock file."""
    opens, deletions = os.open, iter([True])

    def opened_just_before_its_end(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = opens(path, flags, mode)
        if next(deletions, False):
            path.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", opened_just_before_its_end)
    lock = DirectoryLock(tmp_path)
    monkeypatch.undo()
    assert f"{LockHolder(os.getpid(), is_this_engine=True)}" == found_elsewhere(tmp_path)
    lock.release()


def test_giving_up_leaves_somebody_elses_lock_file(tmp_path: Path) -> None:
    """If a new directory has replaced the locked one, releasing the lock keeps the new directory's lock file."""
    directory = tmp_path / "data"
    directory.mkdir()
    lock = DirectoryLock(directory)
    directory.rename(tmp_path / "away")
    directory.mkdir()
    (directory / ".lock").touch()
    lock.release()
    assert [directory / ".lock"] == list(directory.iterdir())
