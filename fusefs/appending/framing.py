"""Lines out of bytes that arrive in arbitrary pieces, as pure functions.

A record is a line. The bytes after the last newline wait; after a refusal input is skipped to the next newline, so
that the rest of a refused line never becomes a record of its own.
"""

from __future__ import annotations

from typing import NamedTuple


class Waiting(NamedTuple):
    """What an open file remembers between two writes."""

    tail: bytes = b""
    """The begun line."""
    skipping: bool = False
    """Drop input up to and including the next newline: its line's beginning was refused."""


NOTHING = Waiting()


class Framed(NamedTuple):
    """One write taken apart."""

    lines: bytes
    """Whole lines, each with its newline; empty when none was completed."""
    waiting: Waiting
    """What waits when this write is accepted."""


def frame(waiting: Waiting, data: bytes) -> Framed:
    """Cut `data`, which follows `waiting`, after its last newline."""
    if waiting.skipping:
        line_end = data.find(b"\n") + 1
        if not line_end:
            return Framed(b"", waiting)
        waiting, data = NOTHING, data[line_end:]
    cut = data.rfind(b"\n") + 1
    if not cut:
        return Framed(b"", Waiting(waiting.tail + data))
    if cut == len(data):
        return Framed(waiting.tail + data if waiting.tail else data, NOTHING)
    return Framed(waiting.tail + data[:cut], Waiting(data[cut:]))


def after_refusal(data: bytes) -> Waiting:
    """What is remembered when the write of `data` was refused for what it said: nothing of it."""
    return Waiting(skipping=not data.endswith(b"\n"))
