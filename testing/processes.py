"""Processes that always end with the test or benchmark that starts them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Yield a process that is ended with the `with` block, even if the block raises; `options` are those of Popen.

    Popen's own context manager only waits for the process. If a test fails before it has ended the process, that wait
    lasts forever.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ending_with_this(command: Sequence[str], signal: str) -> Sequence[str]:
    """Return a command that gets `signal` when this process ends, even if this process is killed.

    Only some systems support this; on others, return `command`.
    """
    return ["setpriv", "--pdeathsig", signal, *command] if shutil.which("setpriv") else command
