"""Leaving the terminal: the command that started the daemon waits until the mount is ready, and reports the result."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from topicfs.storage.messages import printable


class Readiness:
    """Reports to the daemon's terminal, if it has one, that the daemon serves, or why it cannot."""

    def mounted(self) -> None:
        """Report that the mount is ready."""

    def failed(self, reason: str) -> None:
        """Report why the mount failed, in one line."""
        print(f"topicfs: {printable(reason)}", file=sys.stderr, flush=True)  # noqa: T201 - the daemon's only word to a person


class Background(Readiness):
    """A daemon in the background: reports to its parent through a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def mounted(self) -> None:
        """Let the parent exit, and detach from the terminal."""
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
    """Run `serve` in a separate process; return the parent's exit status as soon as the mount is ready or failed.

    Forks twice, so that the daemon has no terminal and cannot get one. The intermediate process waits for the
    daemon's report. If the daemon ends without a report, the intermediate process reports how the daemon ended.
    `serve` must acquire everything that does not survive a fork, such as Kafka's lock on the directory.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        outcome = _outcome(reading)
        os.waitpid(child, 0)
        return outcome
    os.close(reading)
    os.setsid()
    from_daemon, to_starter = os.pipe()
    daemon = os.fork()
    if daemon:
        os.close(to_starter)
        _pass_on(from_daemon, writing, daemon)
    os.close(from_daemon)
    os.close(writing)
    return _be_daemon(serve, Background(to_starter))


def _be_daemon(serve: Callable[[Readiness], int], background: Background) -> NoReturn:
    status = 1
    try:
        status = serve(background)
    except BaseException as error:
        traceback.print_exc()
        background.failed(f"the daemon failed: {type(error).__name__}: {error}")
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _pass_on(reading: int, writing: int, daemon: int) -> NoReturn:
    """Pass the daemon's report to the waiting process, or report how the daemon ended without a report."""
    words = _read_all(reading)
    if not words:
        _, status = os.waitpid(daemon, 0)
        words = b"." + _ending(os.waitstatus_to_exitcode(status)).encode()
    os.write(writing, words)
    os._exit(0)


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"the daemon ended with exit status {exit_code} before mounting"
    name = signal.strsignal(-exit_code) or "unknown"
    return f"the daemon was ended by signal {-exit_code} ({name}) before mounting"


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read()


def _outcome(reading: int) -> int:
    words = _read_all(reading)
    if words == b".":
        return 0
    reason = words[1:].decode() or "the daemon ended without a report"
    print(f"topicfs: {printable(reason)}", file=sys.stderr, flush=True)  # noqa: T201 - the command's own answer
    return 1
