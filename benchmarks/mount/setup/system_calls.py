"""The system calls that are measured on every side, and the removal of files from the page cache for cold reads.

Each measuring function returns seconds, including the time of the open. Files are removed from the page cache with
posix_fadvise, which needs no root and leaves other programs' files in the cache. Pages that a process has mapped stay
(topicfs maps its indexes), as with /proc/sys/vm/drop_caches.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from crc32c import crc32c

from benchmarks import lines
from benchmarks.frame.machine import filesystem_type
from benchmarks.frame.question import SkippedError, WrongResultError

KIB, MIB = 2**10, 2**20


def echo_lines(path: Path, line: str, count: int) -> float:
    """Run a loop in bash that opens the log, writes a line and closes the log, `count` times."""
    script = 'for ((i = 0; i < $3; i++)); do echo "$2" >> "$1"; done'
    started = time.perf_counter()
    subprocess.run(["bash", "-c", script, "bash", str(path), line, str(count)], check=True)
    return time.perf_counter() - started


def append_lines(path: Path, line: bytes, count: int) -> float:
    """Write a line `count` times to one descriptor."""
    started = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    write = os.write
    for _ in range(count):
        write(descriptor, line)
    os.close(descriptor)
    return time.perf_counter() - started


def append_pieces(path: Path, text: memoryview, piece: int) -> float:
    """Write a text in pieces to one descriptor, as `cat` and `dd bs=` do."""
    started = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for at in range(0, len(text), piece):
        os.write(descriptor, text[at : at + piece])
    os.close(descriptor)
    return time.perf_counter() - started


def read_through(path: Path, piece: int, size: int) -> float:
    """Read a file to its end in pieces into one buffer, as `cat` does.

    Raises WrongResultError unless `size` bytes came.
    """
    buffer = bytearray(piece)
    total = 0
    started = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY)
    while count := os.readv(descriptor, [buffer]):
        total += count
    os.close(descriptor)
    elapsed = time.perf_counter() - started
    if total != size:
        raise WrongResultError(f"{path}: read {total} of {size} bytes")
    return elapsed


def read_small(path: Path) -> bytes:
    """Open, read and close a small file, as programs do."""
    descriptor = os.open(path, os.O_RDONLY)
    content = os.read(descriptor, 4096)
    os.close(descriptor)
    return content


def check_text(path: Path, size: int) -> None:
    """Raise WrongResultError unless the file has exactly the first `size` bytes of the text of `lines`."""
    found = total = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(MIB):
            found = crc32c(piece, found)
            total += len(piece)
    if (total, found) != (size, lines.checksum(size)):
        raise WrongResultError(
            f"{path}: {total} bytes with checksum {found:08x} are not the {size} that were written"
        )


IN_MEMORY = frozenset({"tmpfs", "ramfs"})
MAX_PAGES_LEFT = 0.02
"""Largest share of a file's pages that may stay in memory because another process touches them."""


def drop(files: Iterable[Path]) -> None:
    """Remove `files` from the page cache. All their pages must have been written to disk before."""
    for path in files:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def check_can_drop(files: Sequence[Path]) -> None:
    """Write the files to disk, and check that the largest file can leave the page cache.

    Raises SkippedError if the files are not on a disk, WrongResultError if the largest file stays in memory.
    """
    largest = max(files, key=lambda path: path.stat().st_size)
    kind = filesystem_type(largest)
    if kind in IN_MEMORY:
        raise SkippedError(
            f"{largest} is on {kind}: its files cannot leave the page cache; give a --directory on a disk"
        )
    for path in files:
        with path.open("rb", buffering=0) as file:
            os.fsync(file.fileno())  # Only pages that are written to disk can leave the cache.
    drop(files)
    left = cached_share(largest)
    if left > MAX_PAGES_LEFT:
        raise WrongResultError(f"{largest}: {left:.0%} of it is still in memory")


def cached_share(path: Path) -> float:
    """Return the share of a file that is in the page cache, as mincore(2) reports it."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    if not pages:
        return 0.0
    # Map the file privately, so that ctypes can get the address. Nothing is written, and no page is touched.
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
