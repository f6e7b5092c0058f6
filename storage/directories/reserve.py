"""The reserve: space kept in a data directory, so that operations that free space succeed even on a full disk.

Freeing space needs some space: retention may begin a segment, and deleting a topic writes a new `topicfs.topics`
before the old one is removed. A file of random bytes, `topicfs.reserve`, which a broker ignores, keeps that space. On
a full disk the file is deleted, the operation is done, and the file is made again once there is space. Meanwhile logs
accept no records, because a writer that retries would otherwise use the space first.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem, is_full
from topicfs.storage.log.parts import AppendGate
from topicfs.storage.messages import ReportLine

T = TypeVar("T")

RESERVE_BYTES = 1 << 20
"""Large enough for any of the small files of a directory with ten thousand partitions."""
MAX_DISK_SHARE = 64
"""On a small disk, the reserve takes at most 1/64 of the disk."""


class _Sizes(NamedTuple):
    wanted: int
    available: int
    """Bytes that users other than root may use."""
    free: int


class Reserve:
    """A data directory's reserve. Safe from any thread."""

    def __init__(self, directory: Path, files: FileSystem, warn: ReportLine) -> None:
        self.append_gate = AppendGate()
        """Closed while appends must be refused; the directory's logs check the gate before they grow."""
        self._path = directory / names.RESERVE
        self._files = files
        self._warn = warn
        self._lock = threading.Lock()
        self._borrowers = 0
        self._is_there = False

    def lend(self, action: Callable[[], T]) -> T:
        """Run `action`; if the disk is full, run it again with the reserve's space. So `action` must be repeatable."""
        try:
            return action()
        except OSError as error:
            if not is_full(error) or not self._existed():
                raise
        with self.lent():
            return action()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Make the reserve's space available inside the block. Raises OSError."""
        with self._lock:
            self._borrowers += 1
            if self._is_there:
                self._remove()
        try:
            yield
        finally:
            with self._lock:
                self._borrowers -= 1
                self._make()

    @contextmanager
    def lent_when_low(self) -> Iterator[None]:
        """If the disk is low on space, make the reserve available inside the block. For long work."""
        if self._existed() and self._is_low():
            with self.lent():
                yield
        else:
            yield

    def begin(self) -> None:
        """Find the reserve, or make it; if there is no space, it is made later. Raises OSError."""
        with self._lock:
            wanted, _available, _free = self._sizes()
            self._is_there = self._files.exists(self._path) and self._files.size(self._path) >= wanted
            if not self._is_there:
                self._make()
            if not self._is_there:
                self._warn(
                    f"{self._path}: no space for a reserve of {wanted} bytes; without it, nothing can be deleted on a full disk"
                )

    def restore(self) -> None:
        """Make the reserve again if it is missing and there is space."""
        if not self._is_there:
            with self._lock:
                self._make()

    def _existed(self) -> bool:
        """Return whether the reserve exists, or existed until now. Its space must stay free in both cases."""
        return self._is_there or self.append_gate.closed

    def _remove(self) -> None:
        self.append_gate.closed = True
        self._is_there = False
        with suppress(FileNotFoundError):
            self._files.unlink(self._path)
        with suppress(OSError):
            self._files.sync_directory(
                self._path.parent
            )  # A journaling file system frees the blocks only once the deletion is on disk.

    def _make(self) -> None:
        if self._is_there or self._borrowers:
            return
        try:
            wanted, _available, free = self._sizes()
            if free < wanted:
                return
            # Only a write shows whether this user may use so much space. The bytes cannot be compressed, and
            # are flushed, so that the reserve has all of its space even after a crash.
            self._files.write_bytes(self._path, os.urandom(wanted), sync=True)
        except OSError:
            with suppress(OSError):
                self._files.unlink(self._path)
            return
        self._is_there = True
        self.append_gate.closed = False

    def _is_low(self) -> bool:
        try:
            wanted, available, _free = self._sizes()
        except OSError:
            return False  # The next write reports the error of such a disk.
        return available < wanted

    def _sizes(self) -> _Sizes:
        """Return the reserve's intended size, and the disk's available and free bytes. Raises OSError."""
        space = self._files.space(self._path.parent)
        if not space.total_blocks:  # A file system that does not report its size.
            return _Sizes(RESERVE_BYTES, RESERVE_BYTES, RESERVE_BYTES)
        wanted = min(RESERVE_BYTES, space.total_blocks * space.block_bytes // MAX_DISK_SHARE)
        return _Sizes(
            wanted, space.available_blocks * space.block_bytes, space.free_blocks * space.block_bytes
        )
