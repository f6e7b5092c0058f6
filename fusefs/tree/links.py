"""`earliest` and `latest`: links to the names of the first and the last visible record."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeAlias

from fusefs.errors import FileError, file_error
from fusefs.tree.nodes import Directory, Link
from fusefs.tree.partition_files import PartitionFiles
from storage.engine import Partition
from storage.errors import StorageError
from storage.model import Isolation, Offset

Find: TypeAlias = Callable[[Partition, Isolation], Offset | None]


class RecordLink(Link):
    """Points to a record's name beside it, with the link's own suffix."""

    __slots__ = ("_files", "_find", "_suffix")
    entry_timeout = 0.0

    def __init__(self, parent: Directory, name: str, files: PartitionFiles, find: Find) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._find = find
        stem, dot, suffix = name.partition(".")
        del stem
        self._suffix = dot + suffix

    def is_current(self) -> bool:
        try:
            self.target()
        except FileError:
            return False
        return True

    def target(self) -> str:
        try:
            offset = self._find(self._files.partition, self._files.context.settings.isolation)
        except StorageError as error:
            raise file_error(error) from error
        if offset is None:
            raise FileError(errno.ENOENT)
        return f"{offset}{self._suffix}"
