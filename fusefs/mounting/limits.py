"""Limits around a mount: those of the process and of the kernel. They are raised as far as permitted, and never a reason to fail."""

from __future__ import annotations

import contextlib
import ctypes
import re
import resource
from collections.abc import Iterator
from pathlib import Path

READ_AHEAD_KIB = 1024
"""For cached reads of a mount: the kernel's 128 KiB costs a request for each."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 32 * 1024 * 1024


def raise_open_files() -> None:
    """Raise the process's limit of open files to the highest it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Have the C library reuse large buffers in place of mapping each again: writes of 1 MiB are twice as fast."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def raise_read_ahead(mountpoint: str) -> None:
    """Raise the mount's read-ahead, which root alone may."""
    device = mounts().get(mountpoint)
    if device is not None:
        with contextlib.suppress(OSError):
            Path(f"/sys/class/bdi/{device}/read_ahead_kb").write_text(str(READ_AHEAD_KIB))


def mounts(fstype: str | None = None, process: str = "self") -> dict[str, str]:
    """Read the mountpoints (of one type) that a process sees, with their devices as `major:minor`; no file system is asked."""
    table = _mount_table(process)
    return {path: device for path, device, kind, _ in table if kind == fstype or fstype is None}


def mounters(fstype: str) -> dict[str, int]:
    """Read from the kernel which user mounted each FUSE file system of a type, by mountpoint."""
    users = re.compile(r"(?:^|,)user_id=(\d+)")
    table = [(path, users.search(options)) for path, _, kind, options in _mount_table() if kind == fstype]
    return {path: int(user[1]) for path, user in table if user is not None}


def _mount_table(process: str = "self") -> Iterator[tuple[str, str, str, str]]:
    """Yield mountpoint, device, type and super options of each mount, in the order of mounting."""
    for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        _id, _parent, device, _root, path, *_options = fields.split(" ")
        kind, _source, options = rest.split(" ", 2)
        yield _unescaped(path), device, kind, options


def _unescaped(path: str) -> str:
    """Undo the octal escapes of mountinfo."""
    return path.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")
