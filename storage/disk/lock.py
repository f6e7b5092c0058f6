"""The lock on a data directory: Kafka's `.lock`, with a POSIX record lock (kafka-storage.md#directory-lock).

A broker (Java's FileChannel.tryLock) locks the whole file exclusively. This engine takes a shared lock on the first
byte, which excludes a broker too, and shows that the owner is not a broker. The lock ends with its process. A forked
child does not inherit the lock, and the process loses the lock when it closes *any* descriptor of the file. So take
the lock after daemonizing, and query it only through this module.
"""

import errno
import fcntl
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from topicfs.storage.disk import names
from topicfs.storage.disk.plain_files import open_plain
from topicfs.storage.errors import DirectoryLockedError

# struct flock as 64-bit glibc and the BSDs define it.
_FLOCK = struct.Struct("qqihh" if sys.platform == "darwin" else "hhqqi4x")


class _Identity(NamedTuple):
    device: int
    inode: int


_held: dict[_Identity, int] = {}
"""The lock files that are held, each with the ID of the process that locked it. A forked child inherits this
dictionary, but not the locks.
"""
_held_guard = Lock()


class DirectoryLock:
    """Ownership of a data directory, until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        """Take the lock. Raises DirectoryLockedError (with the holder's process ID), OSError."""
        self.directory = directory
        self._path = directory / names.LOCK
        with _held_guard:
            self._descriptor, self._identity = self._take()
            self._owner = os.getpid()
            _held[self._identity] = self._owner

    @property
    def held(self) -> bool:
        """True if this process has the lock; False in a child that was forked after the lock was taken."""
        return self._descriptor >= 0 and self._owner == os.getpid()

    def renew(self) -> None:
        """Lock again if the directory was replaced. An error changes nothing. Raises DirectoryLockedError, OSError."""
        with _held_guard:
            if self.held and _identity_at(self._path) == self._identity:
                return
            descriptor, identity = self._take()
            self._close()
            self._descriptor, self._identity, self._owner = descriptor, identity, os.getpid()
            _held[identity] = self._owner

    def release(self) -> None:
        """Delete the lock file and give up the lock. Idempotent; a forked child only closes its descriptor."""
        with _held_guard:
            if self._descriptor < 0:
                return
            # If the directory vanished and came back, the lock file may belong to another process.
            with suppress(OSError):
                if self.held and _identity_at(self._path) == self._identity:
                    self._path.unlink()
            self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            _held.pop(self._identity, None)
            os.close(self._descriptor)
            self._descriptor = -1

    def _take(self) -> tuple[int, _Identity]:
        while True:
            self._refuse_own_second()
            descriptor = open_plain(self._path, os.O_RDWR | os.O_CREAT)
            try:
                self._lock(descriptor)
                identity = _identity(os.fstat(descriptor))
                # The previous holder may have deleted the file after we opened it and before we locked it.
                # Another process can then lock a new file, and our lock protects nothing.
                if identity == _identity_at(self._path):
                    return descriptor, identity
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _refuse_own_second(self) -> None:
        """Refuse a second lock in this process: closing its descriptor would release the first lock."""
        identity = _identity_at(self._path)
        if identity is not None and _held.get(identity) == os.getpid():
            raise DirectoryLockedError(self.directory, os.getpid())

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            holder = _conflicting_lock(descriptor)
            raise DirectoryLockedError(self.directory, holder and holder.pid) from None
        # Change the lock to a shared lock in a single step, so that the first byte is never unlocked.
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)


class LockHolder(NamedTuple):
    """The owner of a data directory."""

    pid: int | None
    """None if the system does not report it, because the owner is in another PID namespace or on another machine."""
    is_this_engine: bool
    """True if the owner is a process of this engine. False if it is a broker, whose topics may have other replicas."""


def find_holder(directory: Path) -> LockHolder | None:
    """Return the process that has `directory`'s lock, or None. Changes and creates nothing. Raises OSError."""
    path = directory / names.LOCK
    with _held_guard:
        identity = _identity_at(path)
        if identity is None:
            return None
        if _held.get(identity) == os.getpid():
            return LockHolder(os.getpid(), is_this_engine=True)
        try:
            descriptor = open_plain(path, os.O_RDONLY)
        except FileNotFoundError:
            # The owner released the lock and deleted its file a moment ago.
            return None
        try:
            return _conflicting_lock(descriptor)
        finally:
            os.close(descriptor)


def _conflicting_lock(descriptor: int) -> LockHolder | None:
    """Return the holder of a lock on the first byte, which every owner locks (F_GETLK); None if there is no lock."""
    if sys.platform == "darwin":
        _, _, pid, kind, _ = _FLOCK.unpack(
            fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(0, 1, 0, fcntl.F_WRLCK, os.SEEK_SET))
        )
    else:
        kind, _, _, _, pid = _FLOCK.unpack(
            fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        )
    if kind == fcntl.F_UNLCK:
        return None
    return LockHolder(pid if pid > 0 else None, is_this_engine=kind == fcntl.F_RDLCK)


def _identity(status: os.stat_result) -> _Identity:
    return _Identity(status.st_dev, status.st_ino)


def _identity_at(path: Path) -> _Identity | None:
    try:
        return _identity(path.stat())
    except FileNotFoundError:
        return None
