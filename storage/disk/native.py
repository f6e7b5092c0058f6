"""The real disk, through system calls. A pool closes the descriptors of files that were not used lately.

A system call holds a reference to its descriptor. When the last reference is dropped, the descriptor is closed. Reads
and writes take no lock.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import DirectoryEntry, DiskSpace, File, FileEnds
from topicfs.storage.disk.plain_files import open_known, open_plain
from topicfs.storage.errors import CorruptionError, ReadOnlyError
from topicfs.storage.model import Buffer, HeldFile, Position, Timestamp

_MAX_SMALL_FILE_BYTES = 512 << 20
"""Larger than any index, snapshot or checkpoint: the largest time index has 35 million entries of 12 bytes."""


_SYNC = getattr(os, "fdatasync", os.fsync)
_SHARE_OF_LIMIT = 4
"""The pool holds at most 1/4 as many files as the process may have descriptors. A file may need two descriptors, so
half of the descriptors are left for other uses.
"""
_NO_HARD_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Errors of link(2) if the names are on different disks, or the file system has no hard links."""
_PAGE_BYTES = 4096
_TAIL_BYTES = 8
"""A file that ends in this many zeros was preallocated, and its owner will trim it."""
_MAX_COPIED_BYTES = 64 << 20
"""A file that its owner may trim is copied, and not mapped, if it has at most this size. By default an index has at
most 10 MiB.
"""


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Add the file's name to an OSError of the block, because the error of a call on a descriptor does not have it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def mountpoint_of(path: Path) -> Path:
    """Return the mount point of the file system that contains `path`; `path` need not exist."""
    return next(one for one in (path, *path.parents) if os.path.ismount(one))


def system_clock() -> Timestamp:
    return Timestamp(time.time_ns() // 1_000_000)


class _Descriptor:
    """An open descriptor, closed with its last reference. Hold a reference while a system call uses its number."""

    __slots__ = ("number", "shared")

    def __init__(self, number: int, *, shared: bool) -> None:
        self.number = number
        self.shared = shared
        """True if the file has other hard links. A change must not change the content under those names."""

    def __del__(self) -> None:
        os.close(self.number)

    def fileno(self) -> int:
        return self.number


class DescriptorPool:
    """Closes descriptors of files that were not used since the clock hand last passed them (CLOCK algorithm)."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        # In the order of the clock hand. Not a deque, because a file that is closed is removed from any
        # position.
        self._files: OrderedDict[NativeFile, None] = OrderedDict()
        self._lock = threading.Lock()

    def lend(self, file: NativeFile, descriptor: _Descriptor, mapping: memoryview | None = None) -> None:
        """Register a descriptor that `file` has just opened. First close other files if too many are open."""
        with self._lock:
            if not file.pooled:
                self._make_room()
                file.pooled = True
                self._files[file] = None
            file.hold(descriptor, mapping)

    def take_back(self, file: NativeFile) -> None:
        with self._lock:
            if file.pooled:
                file.pooled = False
                del self._files[file]
            file.release()

    def _make_room(self) -> None:
        while len(self._files) >= self._capacity:
            candidate, _ = self._files.popitem(last=False)
            if candidate.used:
                candidate.used = False
                self._files[candidate] = None
            else:
                candidate.pooled = False
                candidate.release()


class NativeFile:
    """A file, identified by its path and open only while it is used."""

    __slots__ = ("_descriptor", "_flags", "_mapping", "_pool", "path", "pooled", "used")

    def __init__(self, path: Path, flags: int, pool: DescriptorPool) -> None:
        self.path = path
        self._flags = flags
        self._pool = pool
        self._descriptor: _Descriptor | None = None
        self._mapping: memoryview | None = None
        self.pooled = False
        self.used = False

    def reach(self, *, create: bool = False) -> None:
        """Open the file now; with `create`, make it if it is missing. Raises OSError."""
        self._open(os.O_CREAT if create else 0)

    def size(self) -> int:
        descriptor = self._open()
        return os.fstat(descriptor.number).st_size

    def append(self, data: Buffer) -> None:
        self.pwrite(data, Position(self.size()))

    def pwrite(self, data: Buffer, position: Position) -> None:
        descriptor = self._descriptor or self._open()
        if descriptor.shared:
            descriptor = self._own()
        self.used = True
        try:
            # One call writes all bytes, unless the disk is full or a signal interrupts it.
            written = os.pwrite(descriptor.number, data, position)
            if written != len(data):
                self._pwrite_rest(descriptor.number, memoryview(data), position, written)
        except OSError as error:
            raise self._named(error) from None

    def pread(self, size: int, position: Position) -> bytes:
        descriptor = self._descriptor or self._open()
        self.used = True
        try:
            data = os.pread(descriptor.number, size, position)
            while len(data) < size:
                more = os.pread(descriptor.number, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._named(error) from None
        return data

    def open_file(self) -> HeldFile:
        """Return the open file; it stays readable even if the file is renamed, replaced or unlinked meanwhile."""
        return self._open()

    def map(self, length: int) -> memoryview:
        mapping = self._mapping
        self.used = True
        if mapping is None or len(mapping) < length:
            mapping = self._map(length)
        return mapping if len(mapping) == length else mapping[:length]

    def truncate(self, size: int) -> None:
        self._mapping = None
        descriptor = self._open()
        if descriptor.shared:
            descriptor = self._own()
        with naming(self.path):
            os.ftruncate(descriptor.number, size)

    def sync(self) -> None:
        descriptor = self._open()
        with naming(self.path):
            _SYNC(descriptor.number)

    def moved(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        self._pool.take_back(self)

    def hold(self, descriptor: _Descriptor, mapping: memoryview | None) -> None:
        """Keep a descriptor and a mapping that were opened. Only the pool calls this method and `release`."""
        # A reader may have opened the shared file just before its copy replaced it.
        if not descriptor.shared or self._descriptor in (None, descriptor):
            self._descriptor = descriptor
            self._mapping = mapping or self._mapping

    def release(self) -> None:
        """Drop the descriptor and the mapping; the next use opens the file again."""
        self._descriptor = None
        self._mapping = None

    def _named(self, error: OSError) -> OSError:
        error.filename = str(self.path)
        return error

    def _open(self, further_flags: int = 0) -> _Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._open_again(further_flags)
            self._pool.lend(self, descriptor)
        self.used = True
        return descriptor

    def _open_again(self, further_flags: int = 0) -> _Descriptor:
        number, found = open_known(self.path, self._flags | further_flags)
        return _Descriptor(number, shared=found.st_nlink > 1 and self._flags == os.O_RDWR)

    def _own(self) -> _Descriptor:
        """Replace a hard-linked file by a copy, all or nothing; on return the copy is on disk. Raises OSError."""
        descriptor = self._open_again()
        if descriptor.shared:
            # An interruption may leave the copy in the partition; a broker and this engine remove files with
            # its suffix.
            copy = self.path.with_name(self.path.name + names.OWN_COPY_SUFFIX)
            import shutil

            try:
                shutil.copy2(self.path, copy)
                _sync_path(copy)
                copy.replace(self.path)
            except OSError:
                copy.unlink(missing_ok=True)
                raise
            _sync_path(copy.parent)
            descriptor = self._open_again()
        self._pool.lend(self, descriptor)
        self._mapping = None
        return descriptor

    def _map(self, length: int) -> memoryview:
        """Map the whole file, so that the caller need not map it again each time it grows."""
        if length == 0:
            return memoryview(b"")
        descriptor = self._open()
        number = descriptor.number
        size = max(length, os.fstat(number).st_size)
        if self._may_be_cut(number, size):
            mapping = _copied(number, size)
            self._pool.lend(self, descriptor, mapping)
            return mapping
        with naming(self.path):
            try:
                mapping = _mapped(number, size)
            except ValueError:
                # The file was cut in the meantime, but not the part that the caller may read.
                mapping = _mapped(number, length)
        self._pool.lend(self, descriptor, mapping)
        return mapping

    def _may_be_cut(self, number: int, size: int) -> bool:
        """Return whether the file's owner may trim it.

        A read through a mapping, beyond the new end of the file, would kill this process (SIGBUS).
        """
        if self._flags & os.O_ACCMODE != os.O_RDONLY or size > _MAX_COPIED_BYTES:
            return False
        return not any(os.pread(number, _TAIL_BYTES, max(0, size - _TAIL_BYTES)))

    def _pwrite_rest(self, number: int, data: memoryview, position: int, written: int) -> None:
        try:
            while written < len(data):
                written += os.pwrite(number, data[written:], position + written)
        except OSError:
            # If the file ends with the bytes written here, cutting it at `position` loses nothing else.
            if os.fstat(number).st_size == position + written:
                os.ftruncate(number, position)
            raise


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mapped(number: int, size: int) -> memoryview:
    """Map a file for reading. If shared mappings fail, as in a mount, map it privately. Raises ValueError, OSError."""
    try:
        return memoryview(mmap.mmap(number, size, access=mmap.ACCESS_READ))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return memoryview(mmap.mmap(number, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))


def _copied(number: int, size: int) -> memoryview:
    """Return the file's bytes up to its first hole, and then zeros, which take no memory if they are only read."""
    copied = mmap.mmap(-1, size)
    try:
        end = os.lseek(number, 0, os.SEEK_HOLE)
    except OSError:  # The file was cut to zero bytes meanwhile, or its file system does not report holes.
        end = size
    data = os.pread(number, min(end, size), 0)
    copied[: len(data)] = data
    return memoryview(copied).toreadonly()


class NativeFileSystem:
    """The disk of this machine; `read_only` for directories that belong to another user or process."""

    def __init__(self, *, read_only: bool = False, max_open_files: int | None = None) -> None:
        self.read_only = read_only
        self._pool = DescriptorPool(max_open_files or _default_capacity())

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        if read_only or self.read_only:
            if create:
                raise ReadOnlyError(f"{path}: opened read-only; nothing there can be changed")
            file = NativeFile(path, os.O_RDONLY, self._pool)
        else:
            file = NativeFile(path, os.O_RDWR, self._pool)
        file.reach(create=create)
        return file

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def size(self, path: Path) -> int:
        return path.lstat().st_size

    def list_directory(self, path: Path, *, prefix: str = "") -> list[DirectoryEntry]:
        with os.scandir(path) as names:
            wanted = (name for name in names if name.name.startswith(prefix))
            return sorted((DirectoryEntry(name.name, name.is_dir()) for name in wanted), key=itemgetter(0))

    def make_directory(self, path: Path, *, private: bool = False) -> None:
        self._writable(path)
        path.mkdir(0o700 if private else 0o777)

    def remove_directory(self, path: Path) -> None:
        self._writable(path)
        (path.unlink if path.is_symlink() else path.rmdir)()

    def rename(self, source: Path, target: Path) -> None:
        self._writable(source)
        os.replace(source, target)  # noqa: PTH105 (Path.replace makes a Path of the target once more)

    def link(self, source: Path, target: Path) -> bool:
        self._writable(target)
        try:
            target.hardlink_to(source)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            return False
        return True

    def unlink(self, path: Path) -> None:
        self._writable(path)
        path.unlink()

    def read_bytes(self, path: Path) -> bytes:
        descriptor, found = open_known(path, os.O_RDONLY)
        with naming(path), os.fdopen(descriptor, "rb") as file:
            if found.st_size > _MAX_SMALL_FILE_BYTES:
                reason = f"a file of {found.st_size} bytes exceeds the limit of {_MAX_SMALL_FILE_BYTES}; restore it from a copy, or remove it"
                raise CorruptionError(path, 0, reason)
            return file.read()  # With a size, Python would allocate that many bytes first.

    def read_ends(self, directory: Path, name: str, length: int) -> FileEnds:
        path = f"{directory}/{name}"  # Making a Path takes as long as all other work here.
        descriptor, found = open_known(path, os.O_RDONLY)
        try:
            # Most indexes have at most one page, so one read returns both ends.
            with naming(path):
                size = found.st_size
                first = os.pread(descriptor, min(size, _PAGE_BYTES), 0)
                last = os.pread(descriptor, length, size - length) if size > _PAGE_BYTES else first[-length:]
        finally:
            os.close(descriptor)
        return FileEnds(size, first[:length], last)

    def write_bytes(self, path: Path, data: Buffer, *, sync: bool = False) -> None:
        self._writable(path)
        with naming(path), os.fdopen(open_plain(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
            file.truncate(0)
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def sync_directory(self, path: Path) -> None:
        self._writable(path)
        _sync_path(path)

    def sync_all(self, path: Path) -> None:
        self._writable(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync_disk(descriptor, path)
        finally:
            os.close(descriptor)

    def modified_time_ms(self, path: Path) -> Timestamp:
        return Timestamp(path.stat().st_mtime_ns // 1_000_000)

    def set_modified_time(self, path: Path, modified_time: Timestamp) -> None:
        self._writable(path)
        nanoseconds = modified_time * 1_000_000
        os.utime(path, ns=(nanoseconds, nanoseconds))

    def space(self, path: Path) -> DiskSpace:
        figures = os.statvfs(path)
        return DiskSpace(
            block_bytes=figures.f_frsize,
            total_blocks=figures.f_blocks,
            free_blocks=figures.f_bfree,
            available_blocks=figures.f_bavail,
            total_files=figures.f_files,
            free_files=figures.f_ffree,
        )

    def _writable(self, path: Path) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{path}: opened read-only; nothing there can be changed")


def _default_capacity() -> int:
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        soft_limit = 65_536
    return max(16, soft_limit // _SHARE_OF_LIMIT)


def _sync_disk(descriptor: int, path: Path) -> None:
    """Flush an open directory's disk with one syncfs(2), not two calls for each of many files. Raises OSError."""
    import ctypes  # Imported here, because a start without a flush does not need it.

    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
    elif syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
