"""The only interface through which the engine uses a disk.

Tests replace the disk by one that crashes, fills up and fails. Unless stated otherwise, every method raises OSError,
whose errno gives the reason. On a disk opened read-only, every change raises ReadOnlyError.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from topicfs.storage.model import Buffer, Position, Timestamp

Clock: TypeAlias = Callable[[], Timestamp]
"""Returns the present time in milliseconds since the epoch."""


def is_full(error: OSError) -> bool:
    """Return whether the error means that the disk is full, and not that the disk has failed."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


class DirectoryEntry(NamedTuple):
    name: str
    is_directory: bool


class FileEnds(NamedTuple):
    """Size of a file in bytes, its first bytes and its last bytes."""

    size: int
    first: bytes
    last: bytes


class DiskSpace(NamedTuple):
    """The result of statvfs(2) for the file system that holds a path."""

    block_bytes: int
    total_blocks: int
    free_blocks: int
    available_blocks: int
    """Blocks that users other than root may use."""
    total_files: int
    free_files: int


class File(Protocol):
    """An open file, readable from any thread.

    Between two uses, its descriptor may be closed and opened again. Callers change the file only under their own
    lock. Before the first change, a file with other hard links is replaced by a copy.
    """

    @property
    def path(self) -> Path: ...

    def size(self) -> int:
        """Return the file's size as the disk reports it."""

    def append(self, data: Buffer) -> None:
        """Append all of `data`. Raises OSError, and then appends none of it."""

    def pwrite(self, data: Buffer, position: Position) -> None:
        """Write all of `data` at `position`. Raises OSError, and cuts off what a failed write added at the end."""

    def pread(self, size: int, position: Position) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""

    def map(self, length: int) -> memoryview:
        """Return the first `length` bytes as a read-only mapping. Raises ValueError if the file is shorter.

        The mapping stays valid after a close. Call this again for each use: the call is cheap, the mapping then shows
        all earlier writes, and an idle mapping can be dropped.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros that take no space."""

    def sync(self) -> None:
        """Flush the content to disk. Blocks."""

    def moved(self, path: Path) -> None:
        """Note that the file, or a directory above it, was renamed: the file's path is now `path`."""

    def close(self) -> None:
        """Close the descriptor. Idempotent."""


class FileSystem(Protocol):
    """A disk. Paths are absolute, because there is no current directory."""

    @property
    def read_only(self) -> bool:
        """True if every change of the disk raises ReadOnlyError."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file. If it is missing, `create` makes it; without `create`, raises FileNotFoundError."""

    def exists(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int:
        """Return the file's size as the disk reports it."""

    def list_directory(self, path: Path, *, prefix: str = "") -> list[DirectoryEntry]:
        """Return the sorted entries whose names begin with `prefix`. Raises FileNotFoundError, NotADirectoryError."""

    def make_directory(self, path: Path, *, private: bool = False) -> None:
        """Make a directory in an existing one; with `private`, only its owner may enter. Raises FileExistsError."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory. Raises OSError (ENOTEMPTY) if it is not empty."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory atomically, replacing a file at `target`."""

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second, unused name; return False if the file systems do not allow a hard link."""

    def unlink(self, path: Path) -> None:
        """Remove a file's name. Raises FileNotFoundError."""

    def read_bytes(self, path: Path) -> bytes:
        """Return the content of a small file. Raises CorruptionError if the file is too large to be one."""

    def read_ends(self, directory: Path, name: str, length: int) -> FileEnds:
        """Return a file's size and up to `length` bytes of each end; close the file. Raises FileNotFoundError."""

    def write_bytes(self, path: Path, data: Buffer, *, sync: bool = False) -> None:
        """Create a small file or replace its content, not atomically; with `sync`, flush the content to disk."""

    def sync_directory(self, path: Path) -> None:
        """Flush the names in a directory to disk. Blocks."""

    def sync_all(self, path: Path) -> None:
        """Flush the directory and everything below it to disk, even if that flushes the whole disk. Blocks."""

    def modified_time_ms(self, path: Path) -> Timestamp: ...

    def set_modified_time(self, path: Path, modified_time: Timestamp) -> None: ...

    def space(self, path: Path) -> DiskSpace: ...
