"""A real directory on which a process is "killed" at a chosen change: before it, after it, or within a write."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from tests.doubles.mortal_disk import Killed
from topicfs.storage.disk.filesystem import Clock, DiskSpace, File
from topicfs.storage.disk.native import DescriptorPool, NativeFile, NativeFileSystem
from topicfs.storage.model import Buffer, Position, Timestamp

SPACE = DiskSpace(4096, 1 << 8, 1 << 20, 1 << 20, 1 << 20, 1 << 20)
"""The reported disk. It has 1 MiB in all, so that an engine keeps 16 KiB in reserve."""


class MortalDirectory(NativeFileSystem):
    """The real disk with a countdown; at change number `steps_left` the process is "killed" (raises Killed).

    From then on every change raises Killed, so that no handler of the killed process can clean up. Files get their
    times from the engine's clock. Nothing is synced, because the machine and its page cache keep running.
    """

    def __init__(self, clock: Clock, chance: Random) -> None:
        super().__init__(max_open_files=200)
        self.clock = clock
        self.chance = chance
        self.steps_left: int | None = None
        self.dead = False
        self.last_change = ""

    def dies(self, operation: str, path: Path) -> bool:
        """Count a change; return True if the process is killed at this change."""
        if self.dead:
            raise Killed(f"{operation} {path.name}: after the kill")
        if self.steps_left is None:
            return False
        if self.steps_left > 0:
            self.steps_left -= 1
            return False
        self.dead = True
        self.last_change = f"{operation} {path.name}"
        return True

    def kill(self) -> None:
        """End the process between two changes."""
        self.dead, self.last_change = True, "between two changes"

    def stamp(self, target: int | Path) -> None:
        """Set a file's modification time by the engine's clock."""
        nanoseconds = self.clock() * 1_000_000
        os.utime(target, ns=(nanoseconds, nanoseconds))

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        creates = create and not read_only and not self.exists(path)
        dies = creates and self.dies("open", path)
        if dies and self.chance.random() < 0.5:
            raise Killed(self.last_change)
        file = MortalFile(path, os.O_RDONLY if read_only else os.O_RDWR, self._pool, self)
        file.reach(create=create)
        if creates:
            self.stamp(path)
        if dies:
            raise Killed(self.last_change)
        return file

    def make_directory(self, path: Path, *, private: bool = False) -> None:
        self._change("make_directory", path, partial(super().make_directory, path, private=private))

    def remove_directory(self, path: Path) -> None:
        self._change("remove_directory", path, partial(super().remove_directory, path))

    def rename(self, source: Path, target: Path) -> None:
        self._change("rename", source, partial(super().rename, source, target))

    def link(self, source: Path, target: Path) -> bool:
        self._end(self.dies("link", target))
        return super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._change("unlink", path, partial(super().unlink, path))

    def write_bytes(self, path: Path, data: Buffer, *, sync: bool = False) -> None:
        dies = self.dies("write_bytes", path)
        written = memoryview(data)[: self.chance.randint(0, len(data))] if dies else data
        super().write_bytes(path, written, sync=False)
        self.stamp(path)
        self._end(dies)

    def set_modified_time(self, path: Path, modified_time: Timestamp) -> None:
        dies = self.dies("set_modified_time", path)
        super().set_modified_time(path, modified_time)
        self._end(dies)

    def sync_directory(self, path: Path) -> None:
        self._end(self.dead)

    def sync_all(self, path: Path) -> None:
        self._end(self.dead)

    def space(self, path: Path) -> DiskSpace:
        return SPACE

    def _change(self, operation: str, path: Path, make: Callable[[], None]) -> None:
        """Make a change. If the process is killed at this change, the change is made or not, at random."""
        dies = self.dies(operation, path)
        if not dies or self.chance.random() < 0.5:
            make()
        self._end(dies)

    def _end(self, dies: bool) -> None:
        if dies:
            raise Killed(self.last_change)


class MortalFile(NativeFile):
    """A file of a MortalDirectory."""

    __slots__ = ("_disk",)

    def __init__(self, path: Path, flags: int, pool: DescriptorPool, disk: MortalDirectory) -> None:
        super().__init__(path, flags, pool)
        self._disk = disk

    def pwrite(self, data: Buffer, position: Position) -> None:
        disk = self._disk
        dies = disk.dies("pwrite", self.path)
        written = memoryview(data)[: disk.chance.randint(0, len(data))] if dies else data
        if len(written):
            super().pwrite(written, position)
        disk.stamp(self._open().number)
        if dies:
            raise Killed(f"{disk.last_change}: {len(written)} of {len(data)} bytes")

    def truncate(self, size: int) -> None:
        disk = self._disk
        dies = disk.dies("truncate", self.path)
        if not dies or disk.chance.random() < 0.5:
            super().truncate(size)
            disk.stamp(self._open().number)
        if dies:
            raise Killed(disk.last_change)

    def sync(self) -> None:
        if self._disk.dead:
            raise Killed(f"sync {self.path.name}: after the kill")
