"""Leaving the terminal: whoever started the daemon waits until the mount stands, and is told how it went."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Protocol

from storage.messages import printable


class Readiness(Protocol):
    """How the daemon tells that it serves, or why it cannot."""

    def mounted(self) -> None:
        """The mount stands."""
        ...

    def failed(self, reason: str) -> None:
        """It does not, for a reason; one line."""
        ...


class Foreground:
    """There is a terminal: failures go there."""

    def mounted(self) -> None:
        pass

    def failed(self, reason: str) -> None:
        print(f"topicfs: {printable(reason)}", file=sys.stderr, flush=True)  # noqa: T201 - the daemon's only word to a person


class Background:
    """There is a parent that waits at the other end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def mounted(self) -> None:
        """Let the parent go, and let go of the terminal."""
        self._tell(b"")
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)

    def failed(self, reason: str) -> None:
        self._tell(printable(reason).encode() or b"failed")

    def _tell(self, words: bytes) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.write(descriptor, b"." + words)
            os.close(descriptor)


def run_in_background(serve: Callable[[Readiness], int]) -> int:
    """Run `serve` in a process of its own; return its parent's exit status as soon as it stands or failed.

    Forked twice, so that the daemon has no terminal and can get none. Whatever must not survive a fork, such as
    Kafka's lock on the directory, is taken by `serve`.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        os.waitpid(child, 0)
        return _outcome(reading)
    os.close(reading)
    os.setsid()
    if os.fork():
        os._exit(0)
    status = 1
    try:
        status = serve(Background(writing))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _outcome(reading: int) -> int:
    with os.fdopen(reading, "rb") as pipe:
        words = pipe.read()
    if words == b".":
        return 0
    reason = words[1:].decode() or "the daemon ended without a word"
    print(f"topicfs: {printable(reason)}", file=sys.stderr, flush=True)  # noqa: T201 - the command's own answer
    return 1
