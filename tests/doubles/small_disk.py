"""A real file system of a few megabytes that is mounted during a block, for tests with a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(place: Path, *, kind: str, size_mb: int) -> Iterator[Path]:
    """Mount a new file system of `kind`, tmpfs or ext4, at `place`/disk; unmount it at the end, even after an error."""
    mounted = place / "disk"
    mounted.mkdir()
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(mounted))
    else:
        image = place / "image"
        with image.open("wb") as file:
            file.truncate(size_mb << 20)
        run("mkfs.ext4", "-q", "-m", "0", str(image))
        run("mount", "-o", "loop", str(image), str(mounted))
    try:
        yield mounted
    finally:
        run("umount", "-l", str(mounted))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def fill(directory: Path) -> None:
    """Write the file `filler`, which takes all free space of the file system of `directory`."""
    with (directory / "filler").open("ab", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(os.urandom(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
        os.fsync(file.fileno())
