"""The commands `topicfs serve` and `topicfs mount --listen`, each in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("topicfs"))
TIMEOUT_SECONDS = 60.0


class Daemon:
    """A `topicfs serve` process over the directory `data` of a folder. It can start again at the same address."""

    def __init__(self, folder: Path, *options: str, address: str = "127.0.0.1:0") -> None:
        self._folder = folder
        self._options = options
        self.address = address
        self.start()

    def start(self) -> None:
        command = [PROGRAM, "serve", "data", "--listen", self.address, *self._options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self._folder)
        self.address = self.read_address()

    def read_address(self) -> str:
        """Return the address at the end of the next line that the process prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()[-1]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end of the process; return the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(TIMEOUT_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[str]:
    """Mount the directory `data` of a folder at `mnt` during the block; yield the address of the listener."""
    (folder / "mnt").mkdir()
    command = [PROGRAM, "mount", *options, "data", "mnt"]
    subprocess.run(command, check=True, cwd=folder, timeout=TIMEOUT_SECONDS)
    try:
        status = (folder / "mnt" / "@status").read_text()
        yield next(line.split()[1] for line in status.splitlines() if line.startswith("listener "))
    finally:
        subprocess.run([PROGRAM, "umount", "mnt"], check=True, cwd=folder, timeout=TIMEOUT_SECONDS)
