"""Processes that do not outlive the test or benchmark that starts them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that is gone behind the block, however the block ends; `options` are Popen's.

    Popen's own block waits for the process: for ever where a test fails before it ends the process.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ending_with_this(command: Sequence[str], signal: str) -> Sequence[str]:
    """The command so that it gets a signal when this process ends, even killed; where the system can do that."""
    return ["setpriv", "--pdeathsig", signal, *command] if shutil.which("setpriv") else command
