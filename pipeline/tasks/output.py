"""The standard error of Spark's processes, redirected: it is pages long where a person expects one line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

STDERR = 2
MESSAGE_PREFIX = "topicfs: "
"""Prefix of our own lines that must be read, from whichever process: Spark's Python processes, too."""


@contextmanager
def redirected_stderr(file: IO[bytes] | None) -> Iterator[None]:
    """Give processes started in the block `file` as their standard error, for life; None: the usual one.

    Meanwhile this process has it, too: output that must be seen needs a copy of the descriptor.
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
    """Return the lines that must be read, each once."""
    return list(dict.fromkeys(line.rstrip() for line in lines if line.startswith(MESSAGE_PREFIX)))
