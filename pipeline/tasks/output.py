"""Redirects the standard error of Spark's processes, which is pages long when a user expects one line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

STDERR = 2
MESSAGE_PREFIX = "topicfs: "
"""Prefix of our own lines that a user must see, from any process, including Spark's Python processes."""


@contextmanager
def redirected_stderr(file: IO[bytes] | None) -> Iterator[None]:
    """Give `file` as standard error, for their whole life, to processes that start in the block; None: no change.

    This process has it too during the block: output that must be seen needs a copy of the old descriptor.
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
    """Return the lines that a user must see, each once."""
    return list(dict.fromkeys(line.rstrip() for line in lines if line.startswith(MESSAGE_PREFIX)))
