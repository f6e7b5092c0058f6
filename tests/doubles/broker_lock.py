"""Other processes that lock a data directory as a broker does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked_by_a_broker(directory: Path) -> Iterator[int]:
    """Hold the lock in another process, which ends with the block; yield its process ID."""
    with subprocess.Popen(_command(directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"held\n" == process.stdout.readline()
        yield process.pid


def refused_elsewhere(directory: Path) -> bool:
    """Return whether another process fails to take the lock."""
    ended = subprocess.run(_command(directory), check=False, stdin=subprocess.DEVNULL, capture_output=True)
    return b"BlockingIOError" in ended.stderr


def _command(directory: Path) -> list[str]:
    return [sys.executable, "-c", HOLD, str(directory / ".lock")]
