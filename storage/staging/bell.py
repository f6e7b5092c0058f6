"""A bell at each data directory: a socket by which a job and the directory's owner wake each other.

The job wakes the owner after submitting a write, and the owner wakes the job after looking for writes. Both also look
twice a second, so the bell may fail. The bell is a datagram socket that carries no data. Its abstract name is the
directory's device and inode. Any user of the machine may ring the bell or take its name. So the owner looks at most
once per `LOOK_PAUSE_SECONDS`, spends at most half of its time on looking, and never waits for a caller.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

LOOK_PAUSE_SECONDS = 0.02
"""Shortest pause between two looks. After a look that took longer, the pause is as long as that look."""
_MAX_CALLERS = 100
"""Largest number of callers that the owner answers after one look. Callers that keep ringing therefore cannot delay
the look.
"""


class Bell:
    """The owner's end: a thread that calls `work` when a job rings. It must be closed."""

    def __init__(self, directory: Path, work: Callable[[], None]) -> None:
        """Begin to listen for rings. Raises OSError."""
        self._work = work
        self._closed = Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind(_address(directory))
        except OSError:
            self._socket.close()
            raise
        self._thread = Thread(target=self._listen, name="staged-writes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        # This wakes the thread even if unread answers have filled the socket, which then could not send to
        # itself.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        pause = 0.0
        while not self._closed.wait(pause):
            callers = self._callers()
            if self._closed.is_set() or not callers:
                return
            begun = time.monotonic()
            self._work()
            pause = max(LOOK_PAUSE_SECONDS, time.monotonic() - begun)
            for caller in callers:
                with suppress(
                    OSError, TypeError
                ):  # Some callers have no name to which an answer could be sent.
                    self._socket.sendto(b"\n", socket.MSG_DONTWAIT, caller)

    def _callers(self) -> list[Any]:
        """Wait for a ring, and return all callers that have rung by then. Empty if the socket fails."""
        callers: list[Any] = []
        with suppress(OSError):
            while len(callers) < _MAX_CALLERS:
                callers.append(self._socket.recvfrom(1, socket.MSG_DONTWAIT if callers else 0)[1])
        return callers


def ring(directory: Path, seconds: float) -> None:
    """Wake the directory's owner; return when it answers, or after `seconds`. Blocks."""
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
