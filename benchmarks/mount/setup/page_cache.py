"""Files out of the page cache, for reads from the disk.

By posix_fadvise on the files themselves: it takes no root, and what other programs have cached stays. What a process
has mapped (topicfs maps its indexes) stays as well, as it would with /proc/sys/vm/drop_caches.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.frame.machine import filesystem_type
from benchmarks.frame.question import SkippedError, WrongResultError

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
MOST_LEFT = 0.02
"""Share of a file's pages that may stay: those that another process touches meanwhile."""


def drop(files: Iterable[Path]) -> None:
    """Take files that are on disk out of memory."""
    for path in files:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def check_can_drop(files: Sequence[Path]) -> None:
    """Put the files on disk, and see that the largest can be taken out of memory.

    Raises SkippedError where files have nowhere to go, WrongResultError where it stays.
    """
    largest = max(files, key=lambda path: path.stat().st_size)
    kind = filesystem_type(largest)
    if kind in IN_MEMORY:
        raise SkippedError(f"{largest} is on {kind}: nothing there can be cold; give a --directory on a disk")
    for path in files:
        with path.open("rb", buffering=0) as file:
            os.fsync(file.fileno())  # Pages that are not on disk yet are not dropped.
    drop(files)
    left = cached_share(largest)
    if left > MOST_LEFT:
        raise WrongResultError(f"{largest}: {left:.0%} of it is still in memory")


def cached_share(path: Path) -> float:
    """The share of a file that is in the page cache, by mincore(2)."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    if not pages:
        return 0.0
    # Private, so that ctypes may have its address: nothing is written and no page is touched.
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE) as mapping:
        resident = (ctypes.c_ubyte * pages)()
        start = (ctypes.c_char * size).from_buffer(mapping)
        result = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.byref(start), ctypes.c_size_t(size), resident
        )
        number = ctypes.get_errno()
        del start
    if result:
        raise OSError(number, os.strerror(number), str(path))
    return sum(page & 1 for page in resident) / pages
