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


def touch_memory(file: Path, size: int) -> None:
    """Write as much as will be written, and give it back.

    A virtual machine gets each page of its memory when it first writes there, which may take longer than all else.
    """
    block = bytes(1 << 20)
    with file.open("wb", buffering=0) as touched:
        for _ in range(-(-size // len(block))):
            touched.write(block)
    file.unlink()


def _room(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize
