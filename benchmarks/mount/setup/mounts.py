"""A mount of topicfs, and mounts of the empty filesystem, each in a process of its own that is always ended."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.frame.machine import MOUNT_OPTIONS
from benchmarks.frame.question import OURS, SkippedError
from benchmarks.lines import BLOCK, READABLE
from testing.processes import ending_with_this
from topicfs.fusefs.mounting.limits import mounts

EMPTY = "empty filesystem"
"""The empty filesystem with the request loop of topicfs: the least time of a mount in Python."""
EMPTY_PLAIN = "empty, plain loop"
"""The empty filesystem with pyfuse3's own request loop."""
EMPTY_READING = "empty, segment read"
"""The empty filesystem that reads a segment for its answers, computes the CRC-32C and copies the bytes."""
EMPTY_KEEPING = "empty, then a batch"
"""The empty filesystem that encodes the lines of each append as a record batch, and writes the batch to a file in
memory.
"""
EMPTY_IN_C = "empty, C libfuse"
"""The empty filesystem in C, which calls libfuse directly."""
FUSE_DEVICE = Path("/dev/fuse")
TIMEOUT_SECONDS = 30
ROOT = Path(__file__).parents[3]
C_SOURCE = Path(__file__).with_name("empty_filesystem.c")
EMPTY_PROGRAM = "benchmarks.mount.setup.empty_filesystem"
C_PROGRAM = ROOT / "build" / "benchmarks" / "empty_filesystem"


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount, and the process that serves it."""

    side: str
    path: Path
    pid: int

    def partition(self, topic: str = "bench") -> Path:
        """Return the directory of a topic's first partition."""
        return self.path / topic / "0"


@contextmanager
def topicfs(directory: Path, data: Path, *options: str) -> Iterator[Mount]:
    """Mount a data directory with the real command and the given `options`."""
    options = (*shlex.split(os.environ.get(MOUNT_OPTIONS, "")), *options)
    mountpoint = directory / f"mnt-{data.name}"
    command = str(Path(sys.executable).with_name("topicfs"))
    with _mounted(
        [command, "mount", "--foreground", *options, str(data), str(mountpoint)], mountpoint
    ) as pid:
        yield Mount(OURS, mountpoint, pid)


@contextmanager
def empty_filesystem(
    directory: Path, *, log_bytes: int = 0, plain: bool = False, segment: Path | None = None
) -> Iterator[Mount]:
    """Mount the empty filesystem, with `log_bytes` of text in its log; with a `segment`, reads also read that file."""
    side, options = EMPTY, ["--bytes", str(log_bytes)]
    if plain:
        side, options = EMPTY_PLAIN, [*options, "--plain"]
    if segment is not None:
        side, options = EMPTY_READING, [*options, "--segment", str(segment)]
    with _empty_program(directory, side, *options) as mount:
        yield mount


@contextmanager
def keeping_filesystem(directory: Path) -> Iterator[Mount]:
    """Mount an empty filesystem that writes each append to the file `batches` in `directory`."""
    options = ["--batches", str(directory / "batches")]
    with _empty_program(directory, EMPTY_KEEPING, *options) as mount:
        yield mount


@contextmanager
def _empty_program(directory: Path, side: str, *options: str) -> Iterator[Mount]:
    """Run the empty filesystem with `options`; its mountpoint has the name of the side."""
    mountpoint = directory / side.replace(", ", "-").replace(" ", "-")
    with _mounted([sys.executable, "-m", EMPTY_PROGRAM, str(mountpoint), *options], mountpoint) as pid:
        yield Mount(side, mountpoint, pid)


@contextmanager
def empty_filesystem_in_c(directory: Path, *, log_bytes: int = 0) -> Iterator[Mount]:
    """Mount the empty filesystem in C, with `log_bytes` of text in its log. Raises CalledProcessError."""
    if not C_PROGRAM.exists() or C_PROGRAM.stat().st_mtime < C_SOURCE.stat().st_mtime:
        C_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        # Like pyfuse3, it is built with a compiler, pkg-config and the headers of libfuse
        # (scripts/prepare.sh).
        command = f"cc -O2 $(pkg-config --cflags fuse3) {C_SOURCE} -o {C_PROGRAM} $(pkg-config --libs fuse3)"
        subprocess.run(command, shell=True, check=True)
    text = directory / "text"
    text.write_bytes(READABLE)
    mountpoint = directory / "mnt-c"
    with _mounted(
        [str(C_PROGRAM), str(mountpoint), str(log_bytes), str(text), str(len(BLOCK))], mountpoint
    ) as pid:
        yield Mount(EMPTY_IN_C, mountpoint, pid)


@contextmanager
def _mounted(command: Sequence[str], mountpoint: Path) -> Iterator[int]:
    """Run a daemon, wait until it is mounted, and yield its process ID. Raises SkippedError if there is no FUSE."""
    if not FUSE_DEVICE.exists():
        raise SkippedError(
            f"{FUSE_DEVICE} is missing: load the module fuse, or let the container have the device"
        )
    mountpoint.mkdir()
    log = mountpoint.with_suffix(".log")
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            ending_with_this(command, "TERM"),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        _wait_until_mounted(daemon, mountpoint, log)
        yield daemon.pid
    finally:
        _end(daemon, mountpoint)


def _wait_until_mounted(daemon: subprocess.Popen[bytes], mountpoint: Path, log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    # Both programs print this line once they are mounted and have set the read-ahead.
    while "mounted" not in log.read_text():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{mountpoint}: the mount failed: {log.read_text()}")
        time.sleep(0.01)  # The pause between two checks for the line.


def _end(daemon: subprocess.Popen[bytes], mountpoint: Path) -> None:
    daemon.terminate()
    try:
        daemon.wait(TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    if str(mountpoint.resolve()) in mounts():
        unmount = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*unmount, str(mountpoint)], check=False)
