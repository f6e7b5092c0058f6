"""Redirects the standard error of Spark's processes, which can be pages long where a user expects one line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

STDERR = 2
MESSAGE_PREFIX = "topicfs: "
"""Prefix of lines from topicfs that a user must see, from any process, including Spark's Python processes."""


@contextmanager
def redirected_stderr(file: IO[bytes] | None) -> Iterator[None]:
    """Make `file` the standard error of all processes that start in the block. If `file` is None, change nothing.

    During the block, `file` is also this process's standard error: visible output needs a copy of the old descriptor.
    """
    if file is None:
        yield
        return
    own = os.dup(STDERR)
    try:
        os.dup2(file.fileno(), STDERR)
        yield
    finally:
        os.dup2(own, STDERR)
        os.close(own)


def important_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines that a user must see. Each different line is returned once."""
    return list(dict.fromkeys(line.rstrip() for line in lines if line.startswith(MESSAGE_PREFIX)))
