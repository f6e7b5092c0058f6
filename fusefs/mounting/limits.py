"""Limits of the process and of the kernel for a mount, raised as far as permitted. A failure is not an error."""

from __future__ import annotations

import contextlib
import ctypes
import re
import resource
from collections.abc import Iterator
from pathlib import Path

READ_AHEAD_KIB = 1024
"""Read-ahead in KiB for cached reads. With the kernel's default, the kernel sends a request for every 128 KiB."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MALLOC_THRESHOLD_BYTES = 32 * 1024 * 1024


def raise_open_files() -> None:
    """Raise the process's limit of open files to its hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Let the C library reuse large buffers instead of mapping new memory: writes of 1 MiB become twice as fast."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _MALLOC_THRESHOLD_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _MALLOC_THRESHOLD_BYTES)


def raise_read_ahead(mountpoint: str) -> None:
    """Raise the mount's read-ahead. Has an effect only for root."""
    device = mounts().get(mountpoint)
    if device is not None:
        with contextlib.suppress(OSError):
            Path(f"/sys/class/bdi/{device}/read_ahead_kb").write_text(str(READ_AHEAD_KIB))


def mounts(fstype: str | None = None, process: str = "self") -> dict[str, str]:
    """Return a process's mountpoints (of type `fstype`) with their devices as `major:minor`; queries no filesystem."""
    table = _mount_table(process)
    return {path: device for path, device, kind, _ in table if kind == fstype or fstype is None}


def mounters(fstype: str) -> dict[str, int]:
    """Return the user who mounted each FUSE filesystem of type `fstype`, by mountpoint."""
    users = re.compile(r"(?:^|,)user_id=(\d+)")
    table = [(path, users.search(options)) for path, _, kind, options in _mount_table() if kind == fstype]
    return {path: int(user[1]) for path, user in table if user is not None}


def _mount_table(process: str = "self") -> Iterator[tuple[str, str, str, str]]:
    """Yield mountpoint, device, type and super options of each mount, in mount order."""
    for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        _id, _parent, device, _root, path, *_options = fields.split(" ")
        kind, _source, options = rest.split(" ", 2)
        yield _unescaped(path), device, kind, options


def _unescaped(path: str) -> str:
    """Decode the octal escapes of mountinfo."""
    return path.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")
