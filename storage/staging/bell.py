"""A bell at each data directory: a job wakes the owner, and the owner wakes the job when it has looked.

Both also look by themselves twice a second, so the bell may fail: on another system than Linux, in another network
namespace, or where somebody else took its name. It carries no data. It is a datagram socket whose abstract name is the
directory's device and inode, so that it needs no file and ends with its process.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread


class Bell:
    """The owner's end: a thread that works when a job rings. Close it."""

    def __init__(self, directory: Path, work: Callable[[], None]) -> None:
        """Begin to listen (OSError)."""
        self._work = work
        self._closed = False
        self._address = _address(directory)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind(self._address)
        except OSError:
            self._socket.close()
            raise
        self._thread = Thread(target=self._listen, name="staged-writes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, after the work in progress (blocking)."""
        self._closed = True
        with suppress(OSError):
            self._socket.sendto(b"\n", socket.MSG_DONTWAIT, self._address)
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while True:
            _, caller = self._socket.recvfrom(1)
            if self._closed:
                return
            self._work()
            with suppress(OSError, TypeError):  # Some callers have no name.
                self._socket.sendto(b"\n", socket.MSG_DONTWAIT, caller)


def ring(directory: Path, seconds: float) -> None:
    """Wake the directory's owner, and return when it answers, or after `seconds` (blocking)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        try:
            caller.bind("")
            caller.settimeout(seconds)
            caller.sendto(b"\n", socket.MSG_DONTWAIT, _address(directory))
        except OSError:
            time.sleep(seconds)
            return
        with suppress(TimeoutError):
            caller.recv(1)


def _address(directory: Path) -> str:
    found = directory.stat()
    return f"\0topicfs-{found.st_dev:x}-{found.st_ino:x}"
