"""The owner and permissions shown for all files of a mount."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

USUAL_UMASK = 0o022


class Ownership(NamedTuple):
    """The owner of all files and directories, and the umask for their permissions."""

    uid: int
    gid: int
    umask: int = USUAL_UMASK

    @classmethod
    def of_process(cls) -> Ownership:
        """Return the ownership of the daemon's user."""
        return cls(os.getuid(), os.getgid())


def shown_mode(mode: int, umask: int) -> int:
    """Return the mode for stat: the owner's permissions apply to everyone, except where `umask` removes them.

    A symbolic link keeps its mode. If a file's mode gives others no permission, reading the file changes something.
    So users to whom `umask` denies writing such a file may not read it either.
    """
    if stat.S_ISLNK(mode):
        return mode
    permissions = (mode >> 6 & 7) * 0o111 & ~umask
    if not mode & 0o077:
        permissions &= (permissions & 0o222) * 3
    return (mode & ~0o777) | permissions
