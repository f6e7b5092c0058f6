"""Processes that always end with the test or benchmark that starts them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Yield a process that is ended with the block, however the block ends; `options` are Popen's.

    Popen's own context manager waits for the process: forever if a test fails before it ends the process.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ending_with_this(command: Sequence[str], signal: str) -> Sequence[str]:
    """Return a command that gets `signal` when this process ends, even if killed, where the system supports that."""
    return ["setpriv", "--pdeathsig", signal, *command] if shutil.which("setpriv") else command
