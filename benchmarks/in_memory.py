"""A place in memory for what is to be measured without a disk: there fsync waits for nothing and no write is held up.

What others write to the same disk, and how soon the kernel wants pages written back, would be most of a figure.
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
    """A temporary directory in memory; where there is none, or no room, the benchmark's own on the disk."""
    if not os.access(SHARED_MEMORY, os.W_OK) or _room(SHARED_MEMORY) < 2 * needed_bytes:
        yield conditions.directory
        return
    with tempfile.TemporaryDirectory(prefix="topicfs-bench-", dir=SHARED_MEMORY) as directory:
        yield Path(directory)


def touch_memory(directory: Path, size: int) -> None:
    """Write as much as will be written next, and give it back: to be done right before what is measured.

    A virtual machine gets each page of its memory when it first writes there, which may take ten times longer than all else,
    and loses it again when it is free for long, or much of it. Each processor keeps free pages of its own for what runs there.
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
