"""A file in memory, for data that is rebuilt while the directory must not be written."""

from __future__ import annotations

from pathlib import Path

from topicfs.storage.model import Buffer, Position


class MemoryFile:
    """Implements `storage.disk.filesystem.File`; `path` is only the name of the file that it replaces."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = bytearray()

    def size(self) -> int:
        return len(self._data)

    def append(self, data: Buffer) -> None:
        self._data = self._data + data

    def pwrite(self, data: Buffer, position: Position) -> None:
        missing = position + len(data) - len(self._data)
        if missing > 0:
            # A new buffer, because a buffer that is mapped cannot be extended.
            self._data = self._data + bytes(missing)
        self._data[position : position + len(data)] = data

    def pread(self, size: int, position: Position) -> bytes:
        return bytes(self._data[position : position + size])

    def map(self, length: int) -> memoryview:
        if length > len(self._data):
            raise ValueError("mapping longer than the file")
        return memoryview(self._data).toreadonly()[:length]

    def truncate(self, size: int) -> None:
        self._data = self._data[:size] + bytes(max(0, size - len(self._data)))

    def sync(self) -> None:
        """Do nothing, because the content ends with the process."""

    def moved(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        """Do nothing."""
