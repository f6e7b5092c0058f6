"""Opening a plain file, and nothing else that bears its name.

A FIFO would make the one who opens it wait for a writer, a device may do anything, and a link leads out of the directory
that this process owns. A data directory itself may be a link, and so may the directories above it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from storage.errors import NotAPlainFileError

_MODE = 0o644
_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
    stat.S_IFDIR: "directory",
}


def open_plain(path: Path, flags: int) -> int:
    """Open as os.open does, without ever waiting; a new file can be read by all. NotAPlainFileError, OSError."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, _MODE)
    except OSError as error:
        # What links, sockets, directories, and FIFOs and devices that nobody serves, answer.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR):
            check_plain(path, path.lstat().st_mode)
        raise
    try:
        check_plain(path, os.fstat(descriptor).st_mode)
    except NotAPlainFileError:
        os.close(descriptor)
        raise
    return descriptor


def check_plain(path: Path, mode: int) -> None:
    """Raise NotAPlainFileError for a mode, as stat tells it, of anything else."""
    if not stat.S_ISREG(mode):
        raise NotAPlainFileError(path, _KINDS.get(stat.S_IFMT(mode), "special file"))
