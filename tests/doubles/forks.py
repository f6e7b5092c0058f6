"""Programs of this project that start quickly, because a process that has already imported everything forks them.

The imports of a program that mounts a cluster take most of a second of CPU time, and tests start hundreds of mounts.
`python -m tests.doubles.forks` is the process that forks. For each program it receives a JSON message and three open
files over a socket, and answers with the program's process id. A later message asks for the status of an ended
program. When the other end of the socket closes, the process kills its programs and ends.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

ROOT = Path(__file__).parents[2]
COMMAND, MOUNT = "command", "mount"
"""The two kinds of programs: `topicfs` with its arguments, and `tests/fusefs/mounted/serve.py`."""
USED = ("topicfs.fusefs.daemon", "topicfs.cluster.engine", "topicfs.cluster.mirror", "topicfs.data_directory")
"""Modules that commands import only when they need them. The forking process imports them before it forks."""
LARGEST_MESSAGE = 1 << 17


class Ended(NamedTuple):
    """The result of a program that has ended."""

    status: int
    output: bytes
    errors: bytes


class Forked:
    """A program that a `Forks` has started, with the methods of a Popen."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._forks = forks
        self._end = os.pidfd_open(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until the program has ended, as Popen does at the end of its block."""
        self.wait()

    def poll(self) -> int | None:
        """Return the exit status, negative if a signal ended the program, or None while the program runs."""
        if self.returncode is None and self._ended(0):
            self.returncode = self._forks.ask({"ended": self.pid})
            os.close(self._end)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the program to end, and return its exit status. Raises TimeoutExpired if it still runs after `timeout`."""
        if self.returncode is None and not self._ended(timeout):
            raise subprocess.TimeoutExpired(f"program {self.pid}", timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send the signal `number`, unless the program has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._end, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> bool:
        ended = select.poll()  # select(2) takes no descriptor above 1,023.
        ended.register(self._end, select.POLLIN)
        return bool(ended.poll(None if timeout is None else timeout * 1_000))


class Forks:
    """A client of the forking process. The forking process is started with the first program."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = socket.socket()
        self._one_at_a_time = threading.Lock()

    def start(
        self,
        what: str,
        *words: str,
        files: Sequence[int | None] = (None, None, None),
        environment: Mapping[str, str] | None = None,
        new_session: bool = False,
    ) -> Forked:
        """Start a COMMAND or a MOUNT in this process's current directory.

        `files` are the program's standard input, output and error. None means an empty input, or the output or error
        of this process.
        """
        with Path(os.devnull).open("rb") as nothing:
            usual = (nothing.fileno(), 1, 2)
            given = [mine if one is None else one for one, mine in zip(files, usual, strict=True)]
            asked = {
                "what": what,
                "words": words,
                "environment": dict(os.environ if environment is None else environment),
                "directory": str(Path.cwd()),
                "new_session": new_session,
            }
            return Forked(self, self.ask(asked, given))

    def run(
        self, what: str, *words: str, given: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> Ended:
        """Run a program to its end with `given` as its standard input."""
        with (
            tempfile.TemporaryFile() as source,
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            source.write(given)
            source.seek(0)
            files = (source.fileno(), output.fileno(), errors.fileno())
            status = self.start(what, *words, files=files, environment=environment).wait()
            # The program and this process share the positions of these open files.
            output.seek(0)
            errors.seek(0)
            return Ended(status, output.read(), errors.read())

    def ask(self, what: Mapping[str, object], files: Sequence[int] = ()) -> int:
        """Send one message and return the answer."""
        with self._one_at_a_time:
            if self._process is None or self._process.poll() is not None:
                self._begin()
            socket.send_fds(self._asked, [json.dumps(what).encode()], files)
            return int(self._asked.recv(LARGEST_MESSAGE))

    def close(self) -> None:
        """End the forking process; before its end it kills the programs that still run."""
        if self._process is not None:
            self._asked.close()
            self._process.wait()
            self._process = None

    def _begin(self) -> None:
        self._asked.close()
        self._asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            end = theirs.fileno()
            command = [sys.executable, "-m", __name__, str(end)]
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[end])
        atexit.register(self.close)


FORKS = Forks()
"""The instance that all tests of a process share."""


def main() -> None:
    # Imported here, so that a test that uses only the classes above does not import all these modules.
    from tests.fusefs.mounted import serve
    from topicfs.main import COMMANDS, run

    for place, _help in COMMANDS.values():
        importlib.import_module(f"topicfs.commands.{place.partition(':')[0]}")
    for module in USED:
        importlib.import_module(module)
    gc.freeze()
    running: set[int] = set()
    asking = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, files, _, _ = socket.recv_fds(asking, LARGEST_MESSAGE, 3)
        if not message:
            break
        asked = json.loads(message)
        if "ended" in asked:
            pid, status = os.waitpid(asked["ended"], 0)
            running.remove(pid)
            asking.send(b"%d" % os.waitstatus_to_exitcode(status))
        elif pid := os.fork():
            running.add(pid)
            for file in files:
                os.close(file)
            asking.send(b"%d" % pid)
        else:
            asking.close()
            _become(asked, files)
            _end(run(asked["words"]) if asked["what"] == COMMAND else serve.main(*asked["words"]))
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _become(asked: Mapping[str, Any], files: Sequence[int]) -> None:
    """Take over the open files, the environment and the current directory that the message names."""
    if asked["new_session"]:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    sys.argv = ["topicfs", *asked["words"]]


def _end(status: int) -> NoReturn:
    """End the process like the interpreter, but skip the teardown of modules, which takes longer than most programs."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    logging.shutdown()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
