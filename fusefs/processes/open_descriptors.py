"""The descriptors of the process that opened a file: one of them may still hold it after a close.

The kernel sends FLUSH at every close of every duplicate of a descriptor, also when a child of a shell ends, and
does not say which. A descriptor is taken out of its process's table before FLUSH is sent, so what /proc still
lists is held by another descriptor. Only links are read: a stat would ask this very daemon, and deadlock.
"""

# ruff: noqa: PTH115, PTH123, PTH208 - many files of /proc are read in a row: os calls, without a Path for each

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

_UNLINKED = " (deleted)"


def holds(pid: int, path: str, *, proc: str = "/proc") -> bool:
    """Say whether process `pid` has a file open whose name ends in `path` (`/orders/0/log`).

    The end alone is compared, for the mount may be bound or chrooted elsewhere. False where /proc cannot tell: the
    process is gone, belongs to someone else, or lives in another pid namespace (0).
    """
    return any(True for _ in _descriptors(pid, path, proc))


def appends(pid: int, path: str, *, proc: str = "/proc") -> bool:
    """Return whether process `pid` has such a file open with O_APPEND; False where /proc cannot tell."""
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
        # The kernel marks a name that it was told to forget, though the file is as good as before.
        return os.readlink(path).removesuffix(_UNLINKED)
    except OSError:
        return ""  # Closed since it was listed.
