"""`earliest` and `latest`: links to the names of the first and the last visible record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.nodes.nodes import LINK_MODE, Attributes, Directory, Link, nanoseconds
from topicfs.fusefs.views.records import find_record
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Offset

Find: TypeAlias = Callable[..., Offset | None]
"""Finds a record in `partition` that readers at `isolation` can see (blocking)."""


class RecordLink(Link):
    """A link to the name of a record in the same directory, with the suffix of the link itself."""

    __slots__ = ("_dated", "_files", "_find", "_suffix")
    entry_timeout = 0.0

    def __init__(self, parent: Directory, name: str, files: PartitionFiles, find: Find) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._find = find
        self._dated: tuple[Offset, int] | None = None
        _, dot, suffix = name.partition(".")
        self._suffix = dot + suffix

    def is_current(self) -> bool:
        with suppress(FileError, StorageError):
            self.check_exists()
            return True
        return False

    def check_exists(self) -> None:
        """Raise FileError (ENOENT) if no record is visible. For a remote engine, checks only what is known locally."""
        if not self.context.engine.remote:
            self._offset()
        elif self._files.partition.unknown is None and self._files.is_empty():
            raise FileError(Refusal.NOT_FOUND, "no record is visible")

    def attributes(self) -> Attributes:
        # The size of the target is unknown here; readlink(2) computes it.
        if self.context.engine.remote:
            return Attributes(LINK_MODE, 0, self._files.mtime_ns(), 0, self.node_id)
        offset = self._offset()
        return Attributes(LINK_MODE, len(self._named(offset)), self._mtime_ns(offset), 0, self.node_id)

    def target(self) -> str:
        return self._named(self._offset())

    def _named(self, offset: Offset) -> str:
        return f"{offset}{self._suffix}"

    def _offset(self) -> Offset:
        self._files.partition.find_bounds()
        offset = self._find(self._files.partition, isolation=self._files.context.settings.isolation)
        if offset is None:
            raise FileError(Refusal.NOT_FOUND, "no record is visible")
        return offset

    def _mtime_ns(self, offset: Offset) -> int:
        """Return the record's timestamp, read once. If the record cannot be read, return the partition's time."""
        if self._dated is None or self._dated[0] != offset:
            try:
                found = find_record(
                    self._files.partition, offset, isolation=self._files.context.settings.isolation
                )
            except StorageError:
                found = None
            if found is None:
                return self._files.mtime_ns()
            self._dated = offset, nanoseconds(found.timestamp)
        return self._dated[1]
