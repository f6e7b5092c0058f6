"""Tests of commands that benchmarks run as a whole: only a command that succeeds has a time."""

from __future__ import annotations

import os
import subprocess

import pytest

from benchmarks.peers.shell import seconds_of


def test_a_command_gets_its_input_and_takes_some_time(tmp_path):
    """A command gets its input and takes time, and its output is discarded."""
    given = tmp_path / "given"
    given.write_text("three\n")
    assert seconds_of(["sh", "-c", 'read line && [ "$line" = three ] && echo said'], given) > 0


def test_a_command_that_fails_has_no_time():
    """The time of a failed command does not count, because the command may have ended early."""
    with pytest.raises(subprocess.CalledProcessError, match="status 3"):
        seconds_of(["sh", "-c", "exit 3"])


def test_a_command_that_does_not_end_is_ended(tmp_path):
    """A command that does not end is killed before the error is raised."""
    pid, seconds = tmp_path / "pid", 0.25
    script = f"echo $$ > {tmp_path}/begun; mv {tmp_path}/begun {pid}; exec sleep 600"
    while not pid.exists():  # On a busy machine the command may not have started yet.
        seconds *= 2
        with pytest.raises(subprocess.TimeoutExpired):
            seconds_of(["sh", "-c", script], timeout=seconds)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
