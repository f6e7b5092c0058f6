"""Ctrl-C ends a command at any time."""

from __future__ import annotations

import subprocess
import sys

from testing.processes import started
from tests.fusefs.mounted.conftest import ROOT

FINALIZING = """
import os, signal, sys, time
from topicfs.main import main

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

class Broken:
    def __del__(self):
        raise ValueError("an error of another kind")

import topicfs.commands.check as check

def loop(*_, **__):
    Broken()
    Finalized()
    print("goes on", flush=True)
    while True:
        time.sleep(60)

check.check.callback = loop
main(["check", "data"])
"""


def test_an_interrupt_in_a_finalizer_comes_again():
    """An interrupt that arrives in a finalizer ends the command, although Python only prints exceptions of finalizers.

    Other exceptions of a finalizer do not end the command.
    """
    with started(
        [sys.executable, "-c", FINALIZING], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as command:
        said, errors = command.communicate(timeout=240)
    assert (130, b"goes on\n") == (command.returncode, said)
    assert b"ValueError: an error of another kind" in errors
    assert b"KeyboardInterrupt" not in errors
