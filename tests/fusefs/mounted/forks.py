"""Daemons of mounts that begin at once: forked by one process that has everything imported.

A daemon that is started as a program takes half a second of the processor for its imports, and there are hundreds of
them. `python -m tests.fusefs.mounted.forks` is the process that forks: it reads a line of JSON for each daemon, and
prints its number; or for a daemon that ended, and prints its status. It ends with its standard input, and what it
forked with it.
"""

from __future__ import annotations

import atexit
import gc
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[3]


class ForkedDaemon:
    """A daemon that a `Forks` started, with the methods of a Popen."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._forks = forks
        self._end = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        if self.returncode is None and self._ended(0):
            self.returncode = self._forks.ask(ended=self.pid)
            os.close(self._end)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status as soon as there is one; raises TimeoutExpired."""
        if self.returncode is None and not self._ended(timeout):
            raise subprocess.TimeoutExpired(f"daemon {self.pid}", timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send it unless the daemon has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._end, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> bool:
        return bool(select.select([self._end], [], [], timeout)[0])


class Forks:
    """The process that forks, started when the first daemon is asked for."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._one_at_a_time = threading.Lock()

    def start(self, options: str, environment: Mapping[str, str], said: Path) -> ForkedDaemon:
        """Start `serve.py` with options of a mount as JSON; what it prints is added to the file `said`."""
        asked = {"options": options, "environment": dict(environment), "said": str(said)}
        return ForkedDaemon(self, self.ask(**asked))

    def ask(self, **what: Any) -> int:
        with self._one_at_a_time:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                atexit.register(self.close)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(json.dumps(what), file=self._process.stdin, flush=True)
            return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process, and what it forked."""
        if self._process is not None:
            with self._process:
                pass
            self._process = None


def main() -> None:
    from tests.fusefs.mounted import serve  # noqa: PLC0415 (what the others import is not wanted here alone)

    gc.freeze()
    running: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "ended" in asked:
            pid, status = os.waitpid(asked["ended"], 0)
            running.remove(pid)
            _answer(os.waitstatus_to_exitcode(status))
        elif pid := os.fork():
            running.add(pid)
            _answer(pid)
        else:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            said = os.open(asked["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.environ.clear()
            os.environ.update(asked["environment"])
            _end(serve.main(asked["options"]))
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _end(status: int) -> NoReturn:
    """End as the interpreter does, but without taking apart what was imported, which takes longer than it lived."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    logging.shutdown()
    os._exit(status)


if __name__ == "__main__":
    main()
