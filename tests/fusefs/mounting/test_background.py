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


@pytest.mark.parametrize(
    ("serve", "status", "said"),
    [
        ("stands", 0, []),
        ("refuses", 1, ["topicfs: no such directory"]),
        ("raises", 1, ["topicfs: the daemon failed: ValueError: that way not"]),
        ("ends", 1, ["topicfs: the daemon ended with exit status 3 before mounting"]),
        ("is_killed", 1, ["topicfs: the daemon was ended by signal 7 (Bus error) before mounting"]),
    ],
)
def test_whatever_ends_the_daemon_is_reported(serve: str, status: int, said: list[str]) -> None:
    """If the daemon ends before it mounts, the command fails, and its last line has the reason.

    If the daemon gets mounted, the command ends with status 0 and prints nothing.
    """
    command = [sys.executable, "-c", START, serve]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (status, "", said) == (done.returncode, done.stdout, done.stderr.splitlines()[-1:])
