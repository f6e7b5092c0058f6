"""The report of what a daemon could not keep when its mount ended, for the command that unmounts it.

The words stand in a file of memory, which takes no room on a disk that may be full. `@status` names it by the daemon's
descriptor; who unmounts opens it before, and reads it when the daemon is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from storage.messages import printable

END = "."
"""The last line of a daemon that came to its end in order."""
SHOWN = 5
"""Lines that are told; the daemon's log has them all."""


class LastWords:
    """The daemon's side."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("topicfs-last-words")
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def end(self, lines: Iterable[str]) -> None:
        """Say what could not be kept, if anything; nothing comes after it."""
        text = "".join(f"{printable(line)}\n" for line in [*lines, END])
        os.write(self._descriptor, text.encode())


def read_last_words(descriptor: int) -> list[str]:
    """What the daemon, which is gone, could not keep; a daemon that was ended in between is told, too."""
    size = os.fstat(descriptor).st_size
    lines = os.pread(descriptor, size, 0).decode().splitlines()
    if not lines or lines[-1] != END:
        return ["the daemon ended before it had closed its data directories; the next mount recovers them"]
    return lines[:-1]


def shortened(lines: list[str]) -> str:
    """Lines as a part of one line."""
    more = f"; and {len(lines) - SHOWN} more, which the daemon's log has" if len(lines) > SHOWN else ""
    return "; ".join(lines[:SHOWN]) + more
