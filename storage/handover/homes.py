"""Which of several data directories holds which partition."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from storage.directories.contents import read_contents
from storage.disk.filesystem import FileSystem
from storage.errors import StorageError
from storage.model import TopicPartition


def find_homes(files: FileSystem, directories: Iterable[Path]) -> dict[TopicPartition, Path]:
    """Give the directory of each live partition, by topic and number.

    Raises StorageError for a partition that two of them have, NotALogDirectoryError, OSError.
    """
    homes: dict[TopicPartition, Path] = {}
    for directory in directories:
        for partition in read_contents(files.list_directory(directory), directory).partitions:
            other = homes.setdefault(partition, directory)
            if other != directory:
                raise StorageError(f"{partition}: in {other} and in {directory}; remove one of them")
    return dict(sorted(homes.items()))
