"""A disk in memory that crashes, fills up and fails on request.

The disk promises what a real disk promises, and no more: content is safe after `sync` of the file, a name after
`sync_directory` of its directory. A crash keeps a random share of the unsynced changes: single blocks of the content,
and the oldest changes of each directory's names. So a removed file may come back, with its synced content. A failed
`sync` loses its blocks for good, though the running system still sees them, as on Linux.
"""

from __future__ import annotations

import errno
import os
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

from tests.doubles.simulated_nodes import BLOCK_BYTES, Content, Directory, Node, blocks
from topicfs.storage.disk.filesystem import DirectoryEntry, DiskSpace, File, FileEnds
from topicfs.storage.errors import ReadOnlyError
from topicfs.storage.model import Buffer, Position, Timestamp

TOTAL_BLOCKS = 1 << 13
"""The number of blocks that the disk reports: 4 MiB, for which an engine reserves 64 KiB instead of a megabyte."""


class CrashedError(Exception):
    """Raised if a test, by mistake, uses a file that it opened before a crash."""


@dataclass
class _Fault:
    operation: str
    calls_left: int
    number: int
    times: int
    suffix: str


class SimulatedDisk:
    """A FileSystem in memory. `calls` lists the operations so far, each with its name and path."""

    def __init__(self, *, seed: int = 0, read_only: bool = False) -> None:
        self._root = Directory()
        self._random = Random(seed)
        self._faults: list[_Fault] = []
        self._free_bytes: int | None = None
        self._read_only = read_only
        self.generation = 0
        self.time = 1_700_000_000_000
        self.calls: list[tuple[str, str]] = []

    # Methods for tests.

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return a disk with the same content, whose `calls` are empty."""
        made = memo[id(self)] = object.__new__(type(self))
        made.__dict__.update(deepcopy({**self.__dict__, "calls": []}, memo))
        return made

    def take_content(self, other: SimulatedDisk) -> None:
        """Replace this disk's synced and unsynced content with a copy of the content of another disk."""
        self._root = deepcopy(other._root)

    def crash(self, *, keep: float | None = None) -> None:
        """Lose power: about the share `keep` of the unsynced changes survives, by default a random share."""
        share = self._random.random() if keep is None else keep
        self.generation += 1
        self._faults.clear()
        self._crash_directory(self._root, share)

    def fill(self, free_bytes: int | None) -> None:
        """Let writes fail with ENOSPC after `free_bytes` more bytes, in whole blocks; with None they never fail."""
        self._free_bytes = free_bytes

    def fail(
        self, operation: str, *, after: int = 0, times: int = 1, number: int = errno.EIO, suffix: str = ""
    ) -> None:
        """Make `times` calls of the method `operation` fail, after `after` successful calls.

        Only calls with a path that ends in `suffix` count.
        """
        self._faults.append(_Fault(operation, after, number, times, suffix))

    def heal(self) -> None:
        """Cancel the planned failures that have not happened yet."""
        self._faults.clear()

    def read_only_view(self) -> SimulatedDisk:
        """Return a view of the same disk that refuses every change."""
        view = SimulatedDisk(read_only=True)
        view._root = self._root
        return view

    def tree(self) -> dict[str, bytes]:
        """Return every file's content by its path, so that a test can compare the disk before and after."""
        return {str(path): bytes(node.data) for path, node in self._walk(Path("/"), self._root)}

    # Methods of FileSystem.

    @property
    def read_only(self) -> bool:
        return self._read_only

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        parent = self._directory(path.parent)
        if path.name not in parent.names:
            if not create:
                raise _error(errno.ENOENT, path)
            self.happens("open", path, changes=True)
            parent.change({path.name: Content(modified=self.time)})
        else:
            self.happens("open", path, changes=False)
        node = parent.names[path.name]
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        return SimulatedFile(self, path, node, read_only=read_only or self._read_only)

    def exists(self, path: Path) -> bool:
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def size(self, path: Path) -> int:
        return len(self._content(path).data)

    def list_directory(self, path: Path, *, prefix: str = "") -> list[DirectoryEntry]:
        self.happens("list_directory", path, changes=False)
        names = self._directory(path).names
        shown = sorted(name for name in names if name.startswith(prefix))
        return [DirectoryEntry(name, isinstance(names[name], Directory)) for name in shown]

    def make_directory(self, path: Path, *, private: bool = False) -> None:
        self.happens("make_directory", path, changes=True)
        parent = self._directory(path.parent)
        if path.name in parent.names:
            raise _error(errno.EEXIST, path)
        parent.change({path.name: Directory()})

    def remove_directory(self, path: Path) -> None:
        self.happens("remove_directory", path, changes=True)
        if self._directory(path).names:
            raise _error(errno.ENOTEMPTY, path)
        self._directory(path.parent).change({path.name: None})

    def rename(self, source: Path, target: Path) -> None:
        self.happens("rename", source, changes=True)
        node = self._node(source)
        old, new = self._directory(source.parent), self._directory(target.parent)
        replaced = new.names.get(target.name)
        if isinstance(replaced, Content) and replaced is not node:
            self._lose_name(replaced)
        if old is new:
            old.change({source.name: None, target.name: node})
        else:
            new.change({target.name: node})
            old.change({source.name: None})

    def link(self, source: Path, target: Path) -> bool:
        self.happens("link", target, changes=True)
        parent = self._directory(target.parent)
        if target.name in parent.names:
            raise _error(errno.EEXIST, target)
        content = self._content(source)
        content.links += 1
        parent.change({target.name: content})
        return True

    def unlink(self, path: Path) -> None:
        self.happens("unlink", path, changes=True)
        self._lose_name(self._content(path))
        self._directory(path.parent).change({path.name: None})

    def read_bytes(self, path: Path) -> bytes:
        self.happens("read_bytes", path, changes=False)
        return bytes(self._content(path).data)

    def read_ends(self, directory: Path, name: str, length: int) -> FileEnds:
        self.happens("read_ends", directory / name, changes=False)
        data = bytes(self._content(directory / name).data)
        return ends_of(data, length)

    def write_bytes(self, path: Path, data: Buffer, *, sync: bool = False) -> None:
        self.happens("write_bytes", path, changes=True)
        file = self.open(path, create=True)
        file.truncate(0)
        file.append(data)
        if sync:
            file.sync()

    def sync_directory(self, path: Path) -> None:
        self.happens("sync_directory", path, changes=True)
        self._directory(path).sync()

    def sync_all(self, path: Path) -> None:
        self.happens("sync_all", path, changes=True)
        self._sync_below(self._directory(path))

    def _sync_below(self, directory: Directory) -> None:
        directory.sync()
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._sync_below(node)
            else:
                node.synced = node.on_platter()

    def modified_time_ms(self, path: Path) -> Timestamp:
        return Timestamp(self._node(path).modified)

    def set_modified_time(self, path: Path, modified_time: Timestamp) -> None:
        self.happens("set_modified_time", path, changes=True)
        self._content(path).modified = modified_time

    def space(self, path: Path) -> DiskSpace:
        free = (1 << 30 if self._free_bytes is None else self._free_bytes) // BLOCK_BYTES
        return DiskSpace(BLOCK_BYTES, TOTAL_BLOCKS, free, free, 1 << 20, 1 << 20)

    # Methods that files call.

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        """Record a call of `operation`, and raise the error that a test has planned for this call."""
        if changes and self._read_only:
            raise ReadOnlyError(f"{path}: opened read-only; nothing there can be changed")
        self.calls.append((operation, str(path)))
        for fault in list(self._faults):
            if fault.operation != operation or not str(path).endswith(fault.suffix):
                continue
            if fault.calls_left:
                fault.calls_left -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            raise _error(fault.number, path)

    def allocate(self, content: Content, start: int, end: int, path: Path) -> None:
        """Allocate those blocks of [start, end) that are not allocated yet, or raise ENOSPC."""
        missing = set(blocks(start, end)) - content.allocated
        if self._free_bytes is not None:
            if len(missing) * BLOCK_BYTES > self._free_bytes:
                raise _error(errno.ENOSPC, path)
            self._free_bytes -= len(missing) * BLOCK_BYTES
        content.allocated |= missing

    def give_back(self, content: Content, size: int) -> None:
        """Free the blocks after the first `size` bytes."""
        behind = {block for block in content.allocated if block >= -(-size // BLOCK_BYTES)}
        content.allocated -= behind
        if self._free_bytes is not None:
            self._free_bytes += len(behind) * BLOCK_BYTES

    def directory_of(self, path: Path) -> Directory:
        return self._directory(path.parent)

    def _lose_name(self, content: Content) -> None:
        content.links -= 1
        if not content.links:
            self.give_back(content, 0)

    def _crash_directory(self, directory: Directory, keep: float) -> None:
        directory.crash(self._random, keep)
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._crash_directory(node, keep)
            else:
                node.crash(self._random, keep)

    def _walk(self, path: Path, directory: Directory) -> list[tuple[Path, Content]]:
        found = []
        for name, node in sorted(directory.names.items()):
            if isinstance(node, Directory):
                found.extend(self._walk(path / name, node))
            else:
                found.append((path / name, node))
        return found

    def _node(self, path: Path) -> Node:
        node: Node = self._root
        for part in path.parts[1:]:
            if not isinstance(node, Directory):
                raise _error(errno.ENOTDIR, path)
            if part not in node.names:
                raise _error(errno.ENOENT, path)
            node = node.names[part]
        return node

    def _directory(self, path: Path) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def _content(self, path: Path) -> Content:
        node = self._node(path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        return node


class SimulatedFile:
    """An open file of a SimulatedDisk. The file keeps its content when its name is changed or removed."""

    def __init__(self, disk: SimulatedDisk, path: Path, content: Content, *, read_only: bool) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._read_only = read_only
        self._generation = disk.generation

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        return len(self._content.data)

    def append(self, data: Buffer) -> None:
        self.pwrite(data, Position(self.size()))

    def pwrite(self, data: Buffer, position: Position) -> None:
        self._happens("pwrite", changes=True)
        self._own()
        self._disk.allocate(self._content, position, position + len(data), self._path)
        self._content.write(data, position)
        self._content.modified = self._disk.time

    def pread(self, size: int, position: Position) -> bytes:
        self._happens("pread", changes=False)
        return bytes(self._content.data[position : position + size])

    def map(self, length: int) -> memoryview:
        if length > self.size():
            raise ValueError("mmap length is greater than file size")
        return memoryview(bytes(self._content.data[:length]))

    def truncate(self, size: int) -> None:
        self._happens("truncate", changes=True)
        self._own()
        data = self._content.data
        self._disk.give_back(self._content, size)
        del data[size:]
        data.extend(bytes(size - len(data)))

    def sync(self) -> None:
        try:
            self._happens("sync", changes=True)
        except OSError:
            self._content.lost |= self._content.dirty_blocks()
            raise
        self._content.synced = self._content.on_platter()

    def moved(self, path: Path) -> None:
        self._path = path

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _own(self) -> None:
        """Give this name a synced copy of the file before a change, if the file has several names.

        The real disk does the same.
        """
        directory = self._disk.directory_of(self._path)
        if self._content.links > 1 and directory.names.get(self._path.name) is self._content:
            self._disk.happens("rename", self._path, changes=True)
            data, self._content.links = self._content.data, self._content.links - 1
            self._content = Content(bytearray(data), bytes(data), modified=self._content.modified)
            self._disk.allocate(self._content, 0, len(data), self._path)
            directory.change({self._path.name: self._content})
            directory.sync()

    def _happens(self, operation: str, *, changes: bool) -> None:
        if self._generation != self._disk.generation:
            raise CrashedError(f"{self._path}: {operation} on a file opened before the crash")
        if changes and self._read_only:
            raise _error(errno.EBADF, self._path)
        self._disk.happens(operation, self._path, changes=changes)


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def ends_of(data: bytes, length: int) -> FileEnds:
    """Return the FileEnds of a file with the content `data`."""
    return FileEnds(len(data), data[:length], data[-length:])
