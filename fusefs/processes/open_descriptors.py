"""Checks which descriptors the opener of a file still has after a close.

The kernel sends FLUSH when any duplicate of a descriptor is closed, also when a child of a shell ends, and does not
say which. It removes a descriptor from its process's table before it sends FLUSH, so a descriptor that /proc still
lists is another one. Only links are read: a stat would send a request to this daemon, and deadlock.
"""

# ruff: noqa: PTH115, PTH123, PTH208 - many files of /proc are read in a row: os calls, without a Path for each

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

_UNLINKED = " (deleted)"


def holds(pid: int, path: str, *, proc: str = "/proc") -> bool:
    """Return whether process `pid` has a file open whose path ends in `path` (`/orders/0/log`).

    Only the end is compared, because the mount may be bound or chrooted elsewhere. False if /proc does not show it:
    the process is gone, belongs to another user, or is in another pid namespace (0).
    """
    return any(True for _ in _descriptors(pid, path, proc))


def appends(pid: int, path: str, *, proc: str = "/proc") -> bool:
    """Return whether process `pid` has such a file open with O_APPEND; False if /proc does not show it."""
    return any(_flags(f"{proc}/{pid}/fdinfo/{one}") & os.O_APPEND for one in _descriptors(pid, path, proc))


def _descriptors(pid: int, path: str, proc: str) -> Iterator[str]:
    if not pid:
        return
    table = f"{proc}/{pid}/fd"
    with suppress(OSError):
        yield from (one for one in os.listdir(table) if _link(f"{table}/{one}").endswith(path))


def _flags(path: str) -> int:
    with suppress(OSError), open(path, encoding="ascii") as lines:
        return next((int(line.split()[1], 8) for line in lines if line.startswith("flags:")), 0)
    return 0


def _link(path: str) -> str:
    try:
        # The kernel marks an invalidated name as deleted, although the file is still valid.
        return os.readlink(path).removesuffix(_UNLINKED)
    except OSError:
        return ""  # Closed since it was listed.
