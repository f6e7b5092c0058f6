"""The owner and the permissions that all files of a mount show."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

USUAL_UMASK = 0o022


class Ownership(NamedTuple):
    """The owner of all files and directories, and the permissions that are kept from some."""

    uid: int
    gid: int
    umask: int = USUAL_UMASK

    @classmethod
    def of_process(cls) -> Ownership:
        """Return that of the daemon's own user."""
        return cls(os.getuid(), os.getgid())


def shown_mode(mode: int, umask: int) -> int:
    """Return the mode that stat shows: what a file lets its owner do, everyone may whom `umask` does not keep from it.

    A symbolic link's permissions mean nothing, and stay. A file that grants others nothing is one whose reading changes
    something: whom `umask` keeps from writing it, it keeps from reading it, too.
    """
    if stat.S_ISLNK(mode):
        return mode
    permissions = (mode >> 6 & 7) * 0o111 & ~umask
    if not mode & 0o077:
        permissions &= (permissions & 0o222) * 3
    return (mode & ~0o777) | permissions
