"""Pending signals of a program that waits for a read."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from testing.processes import started
from topicfs.fusefs.processes.signals import Look, descriptor_holders, look, parse_status

STATUS = b"""Name:\tcat
State:\tD (disk sleep)
Pid:\t12
PPid:\t7
SigPnd:\t%b
ShdPnd:\t%b
SigBlk:\t%b
SigIgn:\t0000000000000000
"""
NONE, INT, KILL = b"0" * 16, b"0000000000000002", b"0000000000000100"
NEWS = b"%016x" % sum(
    1 << number - 1 for number in (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH)
)


@pytest.mark.parametrize(
    ("thread", "process", "blocked", "pending"),
    [
        pytest.param(NONE, NONE, NONE, 0, id="none"),
        pytest.param(KILL, NONE, NONE, 0x100, id="KILL for the thread"),
        pytest.param(NONE, INT, NONE, 2, id="Ctrl-C for the process"),
        pytest.param(NONE, INT, INT, 0, id="blocked"),
        pytest.param(KILL, INT, INT, 0x100, id="one of them blocked"),
        pytest.param(NEWS, NEWS, NONE, 0, id="CHLD, CONT, URG and WINCH"),
    ],
)
def test_pending_and_not_blocked(thread: bytes, process: bytes, blocked: bytes, pending: int):
    """A signal is pending if SigPnd or ShdPnd has it and SigBlk does not have it.

    Signals that a process ignores by default do not count.
    """
    assert parse_status(STATUS % (thread, process, blocked)) == Look(7, stuck=True, pending=pending)


@pytest.mark.parametrize("state", [b"Z (zombie)", b"X (dead)"])
def test_a_zombie_counts_as_gone(state: bytes):
    """A zombie or a dead process counts as a process that is gone."""
    assert parse_status(STATUS.replace(b"D (disk sleep)", state) % (NONE, NONE, NONE)) is None


@pytest.mark.parametrize("status", [b"", b"Name:\tx\n", b"SigPnd:\t\n"])
def test_fields_that_are_missing_count_as_nothing(status: bytes):
    """Fields that are missing in the status count as zero."""
    assert parse_status(status) == Look(0, stuck=False, pending=0)


def test_this_process_waits_for_nothing():
    """For the test's own process, the real /proc shows no uninterruptible wait."""
    seen = look(os.getpid())

    assert seen is not None
    assert (seen.parent, seen.stuck) == (os.getppid(), False)


def test_a_process_that_is_gone():
    """The state of a process that has ended is None."""
    process = subprocess.Popen(["true"])
    process.wait()

    assert look(process.pid) is None


def test_a_pending_signal_is_seen():
    """A signal that a stopped process has not handled yet is found to be pending."""
    with started(["sleep", "60"]) as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        os.kill(process.pid, signal.SIGTERM)
        seen = look(process.pid)
        os.kill(process.pid, signal.SIGCONT)

    assert seen is not None
    assert seen.pending & 1 << signal.SIGTERM - 1


def test_processes_are_found_by_the_file_that_they_have_open(tmp_path: Path):
    """The processes that have a file open are found, each with the process IDs of its ancestors."""
    path = tmp_path / "follow"
    with path.open("w") as file, started(["sleep", "60"], stdout=file) as process:
        found = descriptor_holders(str(path), stuck=False)

    assert {holder.pid for holder in found} == {os.getpid(), process.pid}
    child = next(holder for holder in found if holder.pid == process.pid)
    assert child.line[:2] == (process.pid, os.getpid())


def test_processes_that_are_not_stuck_are_not_searched(tmp_path: Path):
    """With `stuck`, processes that are not in an uninterruptible wait are not searched."""
    with (tmp_path / "follow").open("w"):
        assert [] == descriptor_holders(str(tmp_path / "follow"), stuck=True)


def test_the_user_is_the_real_one() -> None:
    """The user of a process is its real user ID, not its effective user ID."""
    status = STATUS % (NONE, NONE, NONE) + b"Uid:\t1000\t0\t0\t0\n"
    seen, own = parse_status(status), look(os.getpid())
    assert seen is not None
    assert own is not None
    assert (1000, os.getuid()) == (seen.user, own.user)
