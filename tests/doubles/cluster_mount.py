"""A cluster mounted by the real command, and shells in the mount."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until

TOPICFS = Path(sys.executable).with_name("topicfs")


class Ran(NamedTuple):
    """The result of a command that has ended."""

    status: int
    output: str
    errors: str


@contextmanager
def mounted_cluster(
    address: object, directory: Path, *options: str, as_a_program: bool = False
) -> Iterator[Path]:
    """Mount a cluster at `directory`/mnt; the test fails unless the daemon ends with status 0.

    If `as_a_program` is true, the daemon is started as from a shell. By default a prepared process forks the daemon.
    """
    mountpoint, log = directory / "mnt", directory / "daemon.log"
    mountpoint.mkdir()
    words = ("mount", "--foreground", "--log-file", str(log), *options, str(address), str(mountpoint))
    with subprocess.Popen((TOPICFS, *words)) if as_a_program else FORKS.start(COMMAND, *words) as daemon:
        try:
            wait_until(
                lambda: daemon.poll() is not None or (log.exists() and "mounted at" in log.read_text()),
                "the mount is there",
            )
            yield mountpoint
            daemon.send_signal(signal.SIGTERM)
            assert 0 == daemon.wait(TIMEOUT_SECONDS), log.read_text()
        finally:
            if os.path.ismount(mountpoint):
                subprocess.run(("umount", "-l", str(mountpoint)), check=False)
            daemon.kill()


def topicfs(address: object, *words: str, given: bytes = b"") -> Ran:
    """Run a command of `topicfs` with `--data` set to the cluster's `address`."""
    status, output, errors = FORKS.run(COMMAND, *words, "--data", str(address), given=given)
    return Ran(status, output.decode(), errors.decode())


def bash(directory: Path, script: str) -> Ran:
    done = subprocess.run(("bash", "-c", script), cwd=directory, capture_output=True, text=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)
