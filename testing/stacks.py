"""Prints the stacks of Spark's processes before a test that waits for them reaches its time limit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TIMEOUT_SECONDS = 240
"""Seconds before the stacks are printed, less than the time limit of a test."""


@contextmanager
def printed_if_late(seconds: float = TIMEOUT_SECONDS) -> Iterator[None]:
    """If the block takes longer than `seconds`, let this process's Spark processes (Java and Python) print stacks."""
    timer = threading.Timer(seconds, print_stacks)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def print_stacks() -> None:
    """Print the stacks of Spark's processes.

    Java prints its stacks to its output on SIGQUIT. Processes forked by `testing/spark_forks.py` print theirs to
    standard error on SIGUSR1.
    """
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if _parent(process) == os.getpid() and words[0].endswith(b"java"):
                os.kill(int(process.name), signal.SIGQUIT)
            elif b"testing.spark_forks" in words and str(os.getpid()).encode() in words:
                os.kill(int(process.name), signal.SIGUSR1)


def _parent(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])
