"""A directory in memory, for measurements without a disk: fsync does not wait there, and no write is delayed.

On a disk, a figure would mostly depend on other writes to the disk, and on when the kernel writes pages back.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.frame.question import Conditions

SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def directory_in_memory(conditions: Conditions, needed_bytes: int) -> Iterator[Path]:
    """Yield a temporary directory in memory.

    If memory has too little space, yield the benchmark's own directory on the disk.
    """
    if not os.access(SHARED_MEMORY, os.W_OK) or _room(SHARED_MEMORY) < 2 * needed_bytes:
        yield conditions.directory
        return
    with tempfile.TemporaryDirectory(prefix="topicfs-bench-", dir=SHARED_MEMORY) as directory:
        yield Path(directory)


def touch_memory(directory: Path, size: int) -> None:
    """Write and free `size` bytes right before a measurement that writes as many bytes.

    A virtual machine gets a page of memory from its host at the first write to the page, which may take ten times
    longer than everything else. The machine loses the page again if much memory is free for long. Each processor has
    its own free pages, so this function writes on each processor.
    """
    allowed = os.sched_getaffinity(0)
    try:
        for processor in allowed:
            os.sched_setaffinity(0, {processor})
            _write_and_forget(directory, size)
    finally:
        os.sched_setaffinity(0, allowed)


def _write_and_forget(directory: Path, size: int) -> None:
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(prefix="touched-", dir=directory, buffering=0) as touched:
        for _ in range(-(-size // len(block))):
            touched.write(block)


def _room(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize
