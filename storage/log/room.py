"""Whether there is room on the disk for more records."""

from __future__ import annotations

import errno
from pathlib import Path


class Room:
    """What all logs of a data directory ask before they grow; its keeper alone changes it."""

    __slots__ = ("kept_back",)

    def __init__(self) -> None:
        self.kept_back = False
        """Whether the room that is left is for what frees space, so that no record is taken."""

    @staticmethod
    def refusal(directory: Path) -> OSError:
        """What is raised then."""
        return OSError(
            errno.ENOSPC, "the disk is full; records are taken again once there is room", str(directory)
        )
