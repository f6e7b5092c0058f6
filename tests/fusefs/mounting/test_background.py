"""The process that starts a daemon in the background always reports whether the start succeeded."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = """
import os, signal, sys, time
from topicfs.fusefs.mounting.background import run_in_background

def stands(readiness):
    readiness.mounted()
    return 0

def refuses(readiness):
    readiness.failed("no such directory")
    return 1

def raises(readiness):
    raise ValueError("that way not")

def ends(readiness):
    return 3

def is_killed(readiness):
    os.kill(os.getpid(), signal.SIGBUS)

sys.exit(run_in_background(globals()[sys.argv[1]]))
"""


def started(serve: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", START, serve], capture_output=True, text=True, check=False)


def test_a_successful_start_prints_nothing() -> None:
    """If the daemon gets mounted, the command ends with status 0 and prints nothing."""
    done = started("stands")
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("serve", "told"),
    [
        ("refuses", "topicfs: no such directory"),
        ("raises", "topicfs: the daemon failed: ValueError: that way not"),
        ("ends", "topicfs: the daemon ended with exit status 3 before mounting"),
        ("is_killed", "topicfs: the daemon was ended by signal 7 (Bus error) before mounting"),
    ],
)
def test_whatever_ends_the_daemon_is_reported(serve: str, told: str) -> None:
    """If the daemon ends before it mounts, the command's last line of output has the reason; its exit status is 1."""
    done = started(serve)
    assert (1, told) == (done.returncode, done.stderr.splitlines()[-1])
