"""The place of a mount: fit to be mounted on, left over from a daemon that is gone, or to be unmounted."""

from __future__ import annotations

import errno
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from fusefs.mounting.limits import mounts
from storage.errors import StorageError

FSTYPE = "fuse.topicfs"

UNMOUNT_SECONDS = 60.0
"""How long an unmount waits for its daemon to flush and go."""


class MountError(StorageError):
    """A mount, or an unmount, that cannot be done as things are."""


def prepare(mountpoint: Path, directories: Sequence[Path]) -> str | None:
    """Make sure that `mountpoint` can be mounted on; a word on what was done for it, or None.

    A mountpoint whose daemon was killed is taken over. Raises MountError.
    """
    word = None
    try:
        # Not stat: the kernel answers that from its cache for a while after the daemon is gone.
        os.statvfs(mountpoint)
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            _detach(mountpoint)
            word = f"{mountpoint}: the daemon of an earlier mount is gone; its mountpoint was taken over"
        elif error.errno == errno.ENOENT:
            raise MountError(f"{mountpoint}: no such directory; make it first") from None
        else:
            raise MountError(f"{mountpoint}: {error.strerror}") from None
    if not mountpoint.is_dir():
        raise MountError(f"{mountpoint}: not a directory")
    real = mountpoint.resolve()
    if str(real) in mounts(FSTYPE):
        raise MountError(f"{mountpoint}: a topicfs is mounted there already; `topicfs umount` it first")
    for directory in directories:
        data = directory.resolve()
        if real == data or data in real.parents or real in data.parents:
            raise MountError(
                f"{mountpoint}: the mountpoint and the data directory {directory} must not contain each other"
            )
    return word


def unmount(path: Path) -> None:
    """Unmount, and wait until the daemon has flushed everything and is gone. Raises MountError."""
    mountpoint = str(path.absolute())
    if mountpoint not in mounts(FSTYPE) and str(_resolved(path)) in mounts(FSTYPE):
        mountpoint = str(_resolved(path))
    if mountpoint not in mounts(FSTYPE):
        raise MountError(f"{path}: no topicfs is mounted there")
    pid = _daemon_pid(mountpoint)
    descriptor = _process(pid)
    try:
        _unmount_command(mountpoint, lazily=pid is None)
        if descriptor is not None and not _ended(descriptor, UNMOUNT_SECONDS):
            raise MountError(f"{path}: unmounted, but its daemon (process {pid}) still flushes")
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except OSError:
        return path  # A dead mount cannot be looked into.


def _daemon_pid(mountpoint: str) -> int | None:
    try:
        with open(f"{mountpoint}/@status", encoding="utf-8") as file:  # noqa: PTH123 - beside the os calls around it
            for line in file:
                name, _, value = line.partition(" ")
                if name == "pid":
                    return int(value)
    except (OSError, ValueError):
        pass
    return None


def _process(pid: int | None) -> int | None:
    """A descriptor of the process: waiting on a number alone might wait for another one that took it."""
    if pid is None:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _ended(descriptor: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(deadline - time.monotonic(), 0) * 1000))


def _detach(mountpoint: Path) -> None:
    _unmount_command(str(mountpoint.absolute()), lazily=True)


def _unmount_command(mountpoint: str, *, lazily: bool) -> None:
    fusermount = shutil.which("fusermount3") or shutil.which("fusermount")
    if os.geteuid() == 0 and shutil.which("umount"):
        command = ["umount", *(["-l"] if lazily else []), mountpoint]
    elif fusermount is not None:
        command = [fusermount, "-u", *(["-z"] if lazily else []), mountpoint]
    else:
        raise MountError("fusermount3 is missing; install the package fuse3")
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed words and a path
    if result.returncode:
        raise MountError(f"{mountpoint}: {result.stderr.strip() or 'cannot be unmounted'}")
