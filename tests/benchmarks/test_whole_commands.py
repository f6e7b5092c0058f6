"""Commands that benchmarks run as a whole: only one that did its work has a time."""

from __future__ import annotations

import os
import subprocess

import pytest

from benchmarks.peers.shell import seconds_of


def test_a_command_gets_its_input_and_takes_some_time(tmp_path):
    """What it prints is not shown."""
    given = tmp_path / "given"
    given.write_text("three\n")
    assert seconds_of(["sh", "-c", 'read line && [ "$line" = three ] && echo said'], given) > 0


def test_a_command_that_fails_has_no_time():
    """It may have ended early."""
    with pytest.raises(subprocess.CalledProcessError, match="status 3"):
        seconds_of(["sh", "-c", "exit 3"])


def test_a_command_that_does_not_end_is_ended(tmp_path):
    """It is gone when this is said."""
    pid, seconds = tmp_path / "pid", 0.25
    script = f"echo $$ > {tmp_path}/begun; mv {tmp_path}/begun {pid}; exec sleep 600"
    while not pid.exists():  # A busy machine may not have begun it in time.
        seconds *= 2
        with pytest.raises(subprocess.TimeoutExpired):
            seconds_of(["sh", "-c", script], timeout=seconds)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
