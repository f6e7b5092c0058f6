"""Mounts and unmounts by system calls if permitted, otherwise by fusermount3, which sends back the device."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import select
import shutil
import socket
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from topicfs.fusefs.mounting.mountpoint import FSTYPE, MountError, unmount_command
from topicfs.storage.messages import reason_of

_READ_ONLY, _NO_SUID, _NO_DEVICES = 1, 2, 4
_DETACH = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(mountpoint: Path, source: bytes, *, allow_other: bool, read_only: bool) -> int:
    """Mount a filesystem whose modes the kernel checks; return the open /dev/fuse. Raises MountError."""
    options = ["default_permissions", *(["allow_other"] if allow_other else [])]
    try:
        return _by_system_call(mountpoint, source, options, read_only=read_only)
    except PermissionError:
        return _by_fusermount(mountpoint, source, options, read_only=read_only)
    except OSError as error:
        raise _refused(mountpoint, reason_of(error)) from error


def _by_system_call(mountpoint: Path, source: bytes, options: list[str], *, read_only: bool) -> int:
    mode = stat.S_IFMT(mountpoint.stat().st_mode)
    device = os.open("/dev/fuse", os.O_RDWR)
    given = [
        f"fd={device}",
        f"rootmode={mode:o}",
        f"user_id={os.getuid()}",
        f"group_id={os.getgid()}",
        *options,
    ]
    flags = _NO_SUID | _NO_DEVICES | (_READ_ONLY if read_only else 0)
    path, fstype = os.fsencode(mountpoint), FSTYPE.encode()
    if _LIBC.mount(source, path, fstype, ctypes.c_ulong(flags), ",".join(given).encode()):
        number = ctypes.get_errno()
        os.close(device)
        raise OSError(number, os.strerror(number))
    return device


def _by_fusermount(mountpoint: Path, source: bytes, options: list[str], *, read_only: bool) -> int:
    program = shutil.which("fusermount3")
    if program is None:
        raise _refused(mountpoint, "fusermount3 is missing")
    escaped = re.sub(rb"([,\\])", rb"\\\1", source)
    given = ["ro" if read_only else "rw", "nosuid", "nodev", *options, f"subtype={FSTYPE.partition('.')[2]}"]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ran = subprocess.run(  # noqa: S603 - fixed words and a path
            [program, "-o", ",".join(given).encode() + b",fsname=" + escaped, "--", mountpoint],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        if not ran.returncode:  # The mount exists, but this process had no free descriptor for it.
            unmount_command(str(mountpoint), lazily=True)
        reason = ran.stderr.decode(errors="replace").strip() or "fusermount3 sent no device"
        raise _refused(mountpoint, reason)
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _refused(mountpoint: Path, reason: str) -> MountError:
    remedy = "mounting needs /dev/fuse, fusermount3 (package fuse3) and a mountpoint that you own"
    return MountError(f"{mountpoint}: cannot be mounted ({reason}); {remedy}")


def unmount(mountpoint: Path, device: int) -> None:
    """Close the device, and unmount the filesystem if it is still mounted."""
    poll = select.poll()
    poll.register(device, 0)
    unmounted = bool(poll.poll(0))
    os.close(device)
    if (
        not unmounted
        and _LIBC.umount2(os.fsencode(mountpoint), _DETACH)
        and ctypes.get_errno() == errno.EPERM
    ):
        with suppress(MountError):
            unmount_command(str(mountpoint), lazily=True)
