"""A small disk is kept full: writers never stop, and an owner frees space in every possible way.

Two topics limit their own size, one by retention and one by compaction. A third topic fills the remaining space, and
its owner in turn deletes it, shortens its retention, and raises its start. After each of these changes every writer
must make progress, and in the end the mount closes cleanly, with each acknowledged line in its place.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.doubles.small_disk import small_disk
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.storage.disk.native import NativeFileSystem

DUTIES = {"retention_check_interval_ms": 500, "cleaner_backoff_ms": 500, "initial_task_delay_ms": 500}
SEGMENTS = "segment.bytes=1048576\nfile.delete.delay.ms=500\n"
TIMEOUT_SECONDS = 120
"""Timeout in seconds for a writer to make progress after space was freed, even on a busy machine."""
REFUSALS = {errno.ENOSPC, errno.ENOENT, errno.ESTALE}
"""Errors that a write may get from a full disk or a topic that was just deleted."""


class Writer(threading.Thread):
    """Appends blocks of lines as fast as it can; a refused block is written again."""

    def __init__(self, path: Path, block: Callable[[int], bytes]) -> None:
        super().__init__(name=f"write {path}", daemon=True)
        self.path = path
        self.block = block
        self.stopping = threading.Event()
        self.taken = 0
        """Number of blocks whose write returned."""
        self.refused = 0
        self.failure: OSError | None = None

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.write()
            except OSError as error:
                if error.errno not in REFUSALS and not self._was_deleted():
                    self.failure = error
                    return
                self.refused += 1
                self.stopping.wait(0.01)

    def _was_deleted(self) -> bool:
        """Return whether EIO was returned because the topic was deleted during the write."""
        status = (self.path.parents[2] / "@status").read_text()
        return (
            f"{'/'.join(self.path.parts[-3:])}: {'-'.join(self.path.parts[-3:-1])}: the topic was deleted"
            in status
        )

    def write(self) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            while not self.stopping.is_set():
                os.write(descriptor, self.block(self.taken))
                self.taken += 1
        finally:
            with suppress(OSError):
                os.close(descriptor)


def numbered(block: int) -> bytes:
    return b"".join(b"%0999d\n" % line for line in range(block * 32, block * 32 + 32))


def keyed(block: int) -> bytes:
    return b"".join(b"key%d\t%0990d\n" % (line % 100, line) for line in range(block * 32, block * 32 + 32))


def keep_full(base: Path, *, seconds: float, kind: str = "tmpfs", size_mb: int = 64) -> Counter[str]:
    """Keep a disk full for `seconds` and until space was freed in every way; return counts.

    Raises AssertionError.
    """
    base.mkdir(exist_ok=True)
    with small_disk(base, kind=kind, size_mb=size_mb) as disk:
        mount = Mount(base, directories=str(disk / "data"), allow_delete=True, engine=DUTIES)
        try:
            mount.start()
            seen = _run(mount, disk, seconds, size_mb)
            assert 0 == mount.stop(), mount.log
            _check(disk / "data")
            return seen
        finally:
            mount.clean_up()


def _run(mount: Mount, disk: Path, seconds: float, size_mb: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    make(mount, "kept", f"retention.bytes={size_mb << 17}\n")
    make(mount, "compacted", "cleanup.policy=compact\nmin.cleanable.dirty.ratio=0.1\n")
    make(mount, "greedy", "")
    writers = [
        Writer(mount.path / "kept/0/log", numbered),
        Writer(mount.path / "compacted/0/log.kv", keyed),
        Writer(mount.path / "greedy/0/log", numbered),
    ]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + seconds
    for free in itertools.cycle((delete, shorten, raise_start)):
        if time.monotonic() >= deadline and f"given back: {free.__name__}" in seen:
            break
        _wait_until_full(writers, seen)
        before = [writer.taken for writer in writers]
        began = time.monotonic()
        free(mount)
        for writer, taken in zip(writers, before, strict=True):
            _wait(lambda writer=writer, taken=taken: writer.taken > taken, writers, f"{writer.name} gets on")  # type: ignore[misc]
        seen[f"given back: {free.__name__}"] += 1
        seen["slowest ms"] = max(seen["slowest ms"], round(1000 * (time.monotonic() - began)))
        seen["deleted files open"] = max(seen["deleted files open"], deleted_files_open(mount.pid, disk))
    for writer in writers:
        writer.stopping.set()
    for writer in writers:
        writer.join(TIMEOUT_SECONDS)
        assert writer.failure is None, f"{writer.name}: {writer.failure}"
        seen[f"KiB {writer.path.parent.parent.name}"] = writer.taken * 32
    _check_lines(mount.path / "kept/0/log", writers[0].taken)
    assert "offline" not in (mount.path / "@status").read_text()
    return seen


def make(mount: Mount, topic: str, settings: str) -> None:
    (mount.path / topic).mkdir()
    write(mount.path / topic / "config", SEGMENTS + settings)


def delete(mount: Mount) -> None:
    """Remove the topic by `rmdir`, and create it again."""
    (mount.path / "greedy").rmdir()

    def is_made() -> bool:
        try:
            make(mount, "greedy", "")
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            with suppress(FileNotFoundError):
                (mount.path / "greedy").rmdir()
            return False
        return True

    wait_until(is_made, "the topic is made", timeout_seconds=TIMEOUT_SECONDS)


def shorten(mount: Mount) -> None:
    """Set a retention of a few megabytes, wait for its effect, then remove the setting."""
    config = mount.path / "greedy" / "config"
    write(config, "retention.bytes=4194304\n")
    size = mount.path / "greedy/0/status"

    def is_short() -> bool:
        (log_bytes,) = (line for line in size.read_text().splitlines() if "log_bytes" in line)
        return int(log_bytes.split()[1]) <= 16 << 20

    wait_until(is_short, "old segments are deleted", timeout_seconds=TIMEOUT_SECONDS)
    write(config, "retention.bytes=\n")


def raise_start(mount: Mount) -> None:
    """Raise the log start to the newest record."""
    partition = mount.path / "greedy" / "0"
    write(partition / "start", f"{(partition / 'latest').readlink()}\n")


def write(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line)


def deleted_files_open(pid: int, disk: Path) -> int:
    """Return the number of the disk's deleted files that the daemon still has open."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(link)
            count += target.startswith(str(disk)) and target.endswith("(deleted)")
    return count


def _wait_until_full(writers: list[Writer], seen: Counter[str]) -> None:
    refused = [writer.refused for writer in writers]
    _wait(
        lambda: all(w.refused > r for w, r in zip(writers[2:], refused[2:], strict=True)),
        writers,
        "it is full",
    )
    seen["full"] += 1


def _wait(condition: Callable[[], bool], writers: list[Writer], what: str) -> None:
    def is_so() -> bool:
        for writer in writers:
            assert writer.is_alive(), f"{writer.name}: {writer.failure}"
        return condition()

    wait_until(is_so, what, timeout_seconds=TIMEOUT_SECONDS)


def _check_lines(log: Path, blocks: int) -> None:
    """Check that the remaining lines are the newest lines, each once and in order."""
    lines = log.read_bytes().splitlines()
    assert lines
    assert [b"%0999d" % number for number in range(blocks * 32 - len(lines), blocks * 32)] == lines


def _check(data: Path) -> None:
    assert (data / ".kafka_cleanshutdown").exists()
    findings = list(DirectoryCheck(data, NativeFileSystem(read_only=True)).findings())
    assert [] == findings, findings
