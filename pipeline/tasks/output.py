"""What Spark's own processes say on standard error, out of the way: pages where a person expects one line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

STDERR = 2
FOR_PEOPLE = "topicfs: "
"""Begins the lines of ours that must be read, wherever they are said: in Spark's Python processes, too."""


@contextmanager
def children_speak_to(file: IO[bytes] | None) -> Iterator[None]:
    """Processes started while the block runs have `file` for their standard error, for life; None: the usual one.

    For that moment this process has it, too: whoever must be heard meanwhile needs a copy of the descriptor.
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


def for_people(lines: Iterable[str]) -> list[str]:
    """Of what was said those lines that must be read, each once."""
    return list(dict.fromkeys(line.rstrip() for line in lines if line.startswith(FOR_PEOPLE)))
