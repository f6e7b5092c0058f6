"""Opens files of a directory that another user may have filled: never waits, and refuses all but plain files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from topicfs.storage.errors import NotAPlainFileError

_MODE = 0o644
_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
    stat.S_IFDIR: "directory",
}


def open_plain(path: Path | str, flags: int) -> int:
    """Open a plain file as os.open does, but never wait. Raises NotAPlainFileError, OSError."""
    return open_known(path, flags)[0]


def open_known(path: Path | str, flags: int) -> tuple[int, os.stat_result]:
    """Do the same as `open_plain`; return the descriptor, and the result of fstat(2)."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, _MODE)
    except OSError as error:
        # Errors of opening links, sockets and directories, and FIFOs and devices without a peer.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR):
            check_plain(path, os.lstat(path).st_mode)
        raise
    found = os.fstat(descriptor)
    try:
        check_plain(path, found.st_mode)
    except NotAPlainFileError:
        os.close(descriptor)
        raise
    return descriptor, found


def check_plain(path: Path | str, mode: int) -> None:
    """Raise NotAPlainFileError unless `mode`, as returned by stat(2), is the mode of a plain file."""
    if not stat.S_ISREG(mode):
        raise NotAPlainFileError(Path(path), _KINDS.get(stat.S_IFMT(mode), "special file"))
