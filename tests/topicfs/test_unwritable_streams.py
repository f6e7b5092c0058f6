"""Tests of commands that cannot write to their standard output or standard error."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.topicfs.conftest import TOPICFS

pytestmark = pytest.mark.slow

SAID = "topicfs: No space left on device\n"


def run_in_shell(command: str) -> tuple[int, str]:
    """Run a command line in bash, where $0 is the path of `topicfs`. Return the exit status and the standard error."""
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    ran = subprocess.run(
        ["bash", "-c", command, TOPICFS], env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("words", ["--help", "--version", "", "mount --help"])
def test_output_that_cannot_be_written_is_an_error(words: str):
    """A command whose output cannot be written says so in one line."""
    assert (1, SAID) == run_in_shell(f"$0 {words} >/dev/full")


@pytest.mark.parametrize(
    ("words", "status"), [("nosuch", 2), ("topics list --data /nosuch", 1), ("--version", 0), ("", 2)]
)
@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-", ">&- 2>&-"])
def test_a_message_that_cannot_be_written_changes_no_status(words: str, status: int, stream: str):
    """A command that cannot print its message has the same exit status as one that can."""
    assert status == run_in_shell(f"$0 {words} {stream}")[0]


def test_mount_has_its_status_without_a_message():
    """mount.topicfs(8) reports a failed mount by status 32, as mount(8) expects, although it cannot print the reason."""
    assert 32 == run_in_shell("${0%topicfs}mount.topicfs /nosuch/data /nosuch/mnt 2>/dev/full")[0]
