"""The descriptors of the process that opened a file: one of them may still hold it after a close.

The kernel sends FLUSH at every close of every duplicate of a descriptor, also when a child of a shell ends, and
does not say which. A descriptor is taken out of its process's table before FLUSH is sent, so what /proc still
lists is held by another descriptor. Only links are read: a stat would ask this very daemon, and deadlock.
"""

# ruff: noqa: PTH115, PTH208 - many links are read in a row: os calls, without a Path for each

from __future__ import annotations

import os

_UNLINKED = " (deleted)"


def holds(pid: int, path: str, *, proc: str = "/proc") -> bool:
    """Say whether process `pid` has a file open whose name ends in `path` (`/orders/0/log`).

    The end alone is compared, for the mount may be bound or chrooted elsewhere. False where /proc cannot tell: the
    process is gone, belongs to someone else, or lives in another pid namespace (0).
    """
    if not pid:
        return False
    table = f"{proc}/{pid}/fd"
    try:
        descriptors = os.listdir(table)
    except OSError:
        return False
    return any(_link(f"{table}/{descriptor}").endswith(path) for descriptor in descriptors)


def _link(path: str) -> str:
    try:
        # The kernel marks a name that it was told to forget, though the file is as good as before.
        return os.readlink(path).removesuffix(_UNLINKED)
    except OSError:
        return ""  # Closed since it was listed.
