"""The one interface through which the engine touches a disk.

Tests put a disk in its place that crashes, fills up and fails. Every method raises OSError (its errno says why)
unless stated otherwise; a disk opened read-only raises ReadOnlyError from whatever would change it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from topicfs.storage.model import Buffer, Position, Timestamp

Clock: TypeAlias = Callable[[], Timestamp]
"""Returns the present time in milliseconds since the epoch."""


class DirectoryEntry(NamedTuple):
    name: str
    is_directory: bool


class FileEnds(NamedTuple):
    """Size of a file in bytes, and its first and its last bytes."""

    size: int
    first: bytes
    last: bytes


class DiskSpace(NamedTuple):
    """The result of statvfs(2) for the file system that holds a path."""

    block_bytes: int
    total_blocks: int
    free_blocks: int
    available_blocks: int
    """Free for users other than root."""
    total_files: int
    free_files: int


class File(Protocol):
    """An open file, readable from any thread; its descriptor may be closed and opened again.

    The caller's lock guards changes. Before the first change, a file with other hard links is replaced by a copy.
    """

    @property
    def path(self) -> Path: ...

    def size(self) -> int:
        """Return the file's bytes, as the disk knows them."""

    def append(self, data: Buffer) -> None:
        """Add `data` at the end: all of it, or none with OSError."""

    def pwrite(self, data: Buffer, position: Position) -> None:
        """Write `data` at `position`: all of it, or OSError; what a failed write added at the end is cut off."""

    def pread(self, size: int, position: Position) -> bytes:
        """Return up to `size` bytes from `position`; fewer at the end of the file only."""

    def map(self, length: int) -> memoryview:
        """Return the first `length` bytes as a read-only mapping, valid after a close; ValueError if the file is shorter.

        Ask again for each use: it is cheap, shows all writes made before, and lets an idle mapping be dropped.
        """

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros that take no room) to `size` bytes."""

    def sync(self) -> None:
        """Put the content on disk (blocking)."""

    def moved(self, path: Path) -> None:
        """Take note that the file, or a directory above it, was renamed: `path` is where it is found from now on."""

    def close(self) -> None:
        """Free the descriptor. Idempotent."""


class FileSystem(Protocol):
    """A disk. Paths are absolute; nothing here keeps a current directory."""

    @property
    def read_only(self) -> bool:
        """True if all that would change the disk raises ReadOnlyError."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file; with `create` a missing one is made, empty. FileNotFoundError otherwise."""

    def exists(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int:
        """Return the file's bytes, as the disk knows them."""

    def list_directory(self, path: Path, *, prefix: str = "") -> list[DirectoryEntry]:
        """Return the entries whose names begin with `prefix`, by name, ascending. FileNotFoundError, NotADirectoryError."""

    def make_directory(self, path: Path, *, private: bool = False) -> None:
        """Make a directory in an existing one; with `private` nobody but its owner may enter it. FileExistsError."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; OSError (ENOTEMPTY) for any other."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory atomically; a file at `target` is replaced."""

    def link(self, source: Path, target: Path) -> bool:
        """Return a file a second name, which must be free; False where the disk cannot (another one, or no hard links)."""

    def unlink(self, path: Path) -> None:
        """Unlink a file. FileNotFoundError."""

    def read_bytes(self, path: Path) -> bytes:
        """Return the content of a small file. Raises CorruptionError if no file but a segment can be that large."""

    def read_ends(self, directory: Path, name: str, length: int) -> FileEnds:
        """Return up to `length` bytes of both ends of a file that is not kept open. FileNotFoundError."""

    def write_bytes(self, path: Path, data: Buffer, *, sync: bool = False) -> None:
        """Create or replace a small file in place (not atomic); with `sync` its content is on disk after."""

    def sync_directory(self, path: Path) -> None:
        """Put the names in a directory on disk (blocking)."""

    def sync_all(self, path: Path) -> None:
        """Put everything in and below a directory on disk, whatever else that takes (blocking)."""

    def modified_time_ms(self, path: Path) -> Timestamp: ...

    def set_modified_time(self, path: Path, modified_time: Timestamp) -> None: ...

    def space(self, path: Path) -> DiskSpace: ...
