"""Whether the disks have room for a write: asked before its first record, so that none of it is visible where they have not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from storage.disk.filesystem import DiskSpace, FileSystem
from storage.errors import StorageError

BESIDE_BYTES = 1 << 20
"""For what comes beside the batches: index entries, checkpoints, names."""


class NoRoomError(StorageError):
    """A write does not fit the disk."""


def check_room(needed: Mapping[Path, int], files: FileSystem) -> None:
    """Whether so many bytes of batches fit what is free, by directory (NoRoomError, OSError).

    Directories whose disks show the same figures are taken for one disk.
    """
    by_disk: Counter[DiskSpace] = Counter()
    directories: dict[DiskSpace, Path] = {}
    for directory, size in needed.items():
        space = files.space(directory)
        by_disk[space] += size
        directories[space] = directory
    for space, size in by_disk.items():
        free = space.available_blocks * space.block_bytes
        if size + BESIDE_BYTES > free:
            raise NoRoomError(
                f"{directories[space].parent}: the write has {size} bytes of batches and needs {BESIDE_BYTES} beside "
                f"them, but {free} bytes are free on the disk; nothing of it was written"
            )
