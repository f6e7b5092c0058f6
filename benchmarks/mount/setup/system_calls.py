"""The system calls that are measured, the same on every side. They return seconds; opening the file counts."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from crc32c import crc32c

from benchmarks import lines
from benchmarks.frame.question import WrongResultError

KIB, MIB = 2**10, 2**20


def echo_lines(path: Path, line: str, count: int) -> float:
    """A loop of bash: each line is an open, a write, and a close."""
    script = 'for ((i = 0; i < $3; i++)); do echo "$2" >> "$1"; done'
    started = time.perf_counter()
    subprocess.run(["bash", "-c", script, "bash", str(path), line, str(count)], check=True)
    return time.perf_counter() - started


def append_lines(path: Path, line: bytes, count: int) -> float:
    """Write a line again and again to one descriptor."""
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
    """Read a file to its end in pieces into one buffer, as `cat` does. Raises WrongResultError unless it has `size`."""
    buffer = bytearray(piece)
    total = 0
    started = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY)
    while count := os.readv(descriptor, [buffer]):
        total += count
    os.close(descriptor)
    elapsed = time.perf_counter() - started
    if total != size:
        raise WrongResultError(f"{path}: {total} bytes read of {size}")
    return elapsed


def read_small(path: Path) -> bytes:
    """Open, read and close: what a program does with a small file."""
    descriptor = os.open(path, os.O_RDONLY)
    content = os.read(descriptor, 4096)
    os.close(descriptor)
    return content


def check_text(path: Path, size: int) -> None:
    """Raise WrongResultError unless the file holds exactly the first `size` bytes of `lines`."""
    found = total = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(MIB):
            found = crc32c(piece, found)
            total += len(piece)
    if (total, found) != (size, lines.checksum(size)):
        raise WrongResultError(
            f"{path}: {total} bytes with checksum {found:08x} are not the {size} that were written"
        )
