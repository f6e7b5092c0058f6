"""Tests of output that differs between a terminal and a pipe."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def on_a_terminal(*words: str, columns: int = 80) -> str:
    """Run the command on a terminal, and return what it shows, without colors."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    command = [str(Path(sys.executable).with_name("topicfs")), *words]
    with open(ours, "rb", buffering=0) as screen:
        subprocess.run(command, stdout=theirs, env=environment, check=True)
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # EIO means that the terminal has no writer any more.
            while data := screen.read(4096):
                shown += data
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


def test_a_terminal_gets_a_newline_behind_a_record(orders):
    """On a terminal `cat` adds a newline after a record; in a pipe it adds none."""
    assert "one\ntwo\none\ntwo\nthree\n" == on_a_terminal("cat", "orders/0/0", "orders/0/1", "orders/0")
    assert b"onetwo" == orders("cat", "orders/0/0", "orders/0/1").output


def test_an_explanation_breaks_no_word(orders):
    """On a terminal `explain` breaks lines only between words."""
    shown = on_a_terminal("explain", "orders/0/1", columns=50)
    assert 50 >= max(map(len, shown.splitlines()))
    assert orders("explain", "orders/0/1").text.split() == shown.split()
