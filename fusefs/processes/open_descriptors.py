"""Checks which descriptors the opener of a file still has after a close.

The kernel sends FLUSH when any duplicate of a descriptor is closed, also when a child of a shell ends. FLUSH does not
say which descriptor was closed. The kernel removes a descriptor from the process's table before it sends FLUSH, so
any descriptor that /proc still lists is still open. This module reads only the links in /proc: a stat would send a
request to this daemon, and deadlock.
"""

# ruff: noqa: PTH115, PTH123, PTH208 - many files of /proc are read in a row: os calls, without a Path for each

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

_UNLINKED = " (deleted)"


def holds(pid: int, path: str, *, proc: str = "/proc") -> bool:
    """Return whether process `pid` has a file open whose path ends in `path` (`/orders/0/log`).

    Only the end of the path is compared, because the mount may be bound or chrooted elsewhere. Returns False if /proc
    does not show the process: it is gone, belongs to another user, or is in another pid namespace (then `pid` is 0).
    """
    return any(True for _ in _descriptors(pid, path, proc))


def appends(pid: int, path: str, *, proc: str = "/proc") -> bool:
    """Do the same as `holds`, but count only files that are open with O_APPEND."""
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
        return ""  # The descriptor was closed since it was listed.
