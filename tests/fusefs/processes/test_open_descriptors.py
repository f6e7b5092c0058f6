"""How /proc shows whether a process has a file open."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from topicfs.fusefs.processes.open_descriptors import appends, holds


def test_an_open_file_is_held_until_it_is_closed(tmp_path: Path):
    """A process has a file open from open(2) to close(2)."""
    path = tmp_path / "orders" / "0" / "log"
    path.parent.mkdir(parents=True)
    with path.open("w"):
        assert holds(os.getpid(), "/orders/0/log")
    assert not holds(os.getpid(), "/orders/0/log")


def test_a_duplicate_keeps_the_file_open(tmp_path: Path):
    """A process has a file open as long as a duplicate of its descriptor is open."""
    descriptor = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)
    duplicate = os.dup(descriptor)
    os.close(descriptor)

    assert holds(os.getpid(), f"{tmp_path}/log")
    os.close(duplicate)


def test_o_append_is_seen_when_it_is_set_later(tmp_path: Path):
    """O_APPEND is noticed even if fcntl(2) sets it later, or through a duplicate."""
    with (tmp_path / "log").open("w") as file:
        duplicate = os.dup(file.fileno())
        assert not appends(os.getpid(), f"{tmp_path}/log")
        fcntl.fcntl(duplicate, fcntl.F_SETFL, os.O_APPEND)
        os.close(duplicate)
        assert appends(os.getpid(), f"{tmp_path}/log")
    assert not appends(os.getpid(), f"{tmp_path}/log")


def test_a_name_that_the_kernel_forgot_still_counts(tmp_path: Path):
    """A file whose name was invalidated still counts as open, although /proc adds ` (deleted)` to its name."""
    path = tmp_path / "log"
    with path.open("w"):
        path.unlink()

        assert holds(os.getpid(), f"{tmp_path}/log")


@pytest.mark.parametrize("pid", [0, 2**22 + 1], ids=["another pid namespace", "no such process"])
def test_a_process_that_proc_does_not_show_has_no_file_open(pid: int):
    """A process that /proc does not show has no file open, so that its unfinished line is appended."""
    assert not holds(pid, "/orders/0/log")


def test_another_file_of_the_same_last_name_is_another_file(tmp_path: Path):
    """Files are compared by their complete paths below the mount."""
    (tmp_path / "only-here").mkdir()
    with (tmp_path / "only-here" / "log").open("w"):
        assert not holds(os.getpid(), "/nor-here/log")
