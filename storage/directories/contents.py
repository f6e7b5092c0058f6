"""The contents of data directories, recognized by names alone (kafka-storage.md#names)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import DirectoryEntry, FileSystem
from topicfs.storage.errors import NotALogDirectoryError, StorageError
from topicfs.storage.model import TopicPartition


class Contents(NamedTuple):
    partitions: frozenset[TopicPartition]
    """The live partitions; `storage.disk.names` builds the names of their directories."""
    marked: Mapping[names.DirectoryMark, tuple[str, ...]]
    """The names of deleted, stray and future directories."""

    def topics(self) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(self.partitions):
            topics.setdefault(topic, []).append(number)
        return topics


def read_contents(entries: Iterable[DirectoryEntry], directory: Path) -> Contents:
    """Sort the subdirectories by kind.

    Raises NotALogDirectoryError if a subdirectory is not Kafka's, or if there are only files that are not Kafka's.
    """
    partitions = set()
    marked: dict[names.DirectoryMark, tuple[str, ...]] = {}
    beside = set()
    for entry in entries:
        if entry.name == names.PARTITION_METADATA:
            raise NotALogDirectoryError(
                f"{directory}: is a partition's directory; use the data directory above it"
            )
        if not entry.is_directory or entry.name in names.SKIPPED_DIRECTORIES:
            beside.add(entry.name)
            continue
        parsed = names.parse_partition_directory(entry.name)
        if parsed is None:
            check_not_mounted(directory)
            raise NotALogDirectoryError(
                f"{directory / entry.name}: not a Kafka directory; "
                f"use a separate data directory, such as {directory / 'data'}"
            )
        if parsed.mark is names.DirectoryMark.LIVE:
            partitions.add(parsed.partition)
        else:
            marked[parsed.mark] = (*marked.get(parsed.mark, ()), entry.name)
    foreign = min(beside - {names.LOCK}, default=None)
    if foreign and not (partitions or marked or any(map(_is_ours, beside))):
        raise NotALogDirectoryError(
            f"{directory}: is not a data directory: it holds {foreign} and none of Kafka's files; "
            f"name a data directory, or an empty or new one for new topics"
        )
    return Contents(frozenset(partitions), marked)


def behind_mount(path: Path) -> str | None:
    """Return what the mount of topicfs at `path` shows: `DIR,DIR` or a cluster's address; None if there is no mount."""
    status = path / "@status"
    if not path.is_mount() or not status.is_file():
        return None
    lines = (line.partition(" ") for line in status.read_text(encoding="utf-8").splitlines())
    shown = (value.partition(" offline: ")[0] for name, _, value in lines if name in {"directory", "cluster"})
    return ",".join(shown)


def check_not_mounted(path: Path) -> None:
    """Raise NotALogDirectoryError if the path is in a mount of topicfs, which shows topics but stores none."""
    for directory in (path, *path.parents):
        there = behind_mount(directory)
        if there is not None:
            raise NotALogDirectoryError(
                f"{path}: is inside a topicfs mount; use what the mount shows: {there}"
            )


def _is_ours(name: str) -> bool:
    marks = names.DATA_DIRECTORY_FILES | names.SKIPPED_DIRECTORIES
    return name.removesuffix(".tmp") in marks or name.startswith(names.WRITE_PREFIX)


def find_partitions(files: FileSystem, directories: Iterable[Path]) -> dict[TopicPartition, Path]:
    """Return each live partition's directory.

    Raises OSError, NotALogDirectoryError, and StorageError if a partition is in two directories.
    """
    found: dict[TopicPartition, Path] = {}
    for directory in directories:
        for partition in read_contents(files.list_directory(directory), directory).partitions:
            other = found.setdefault(partition, directory)
            if other != directory:
                raise StorageError(f"{partition}: in {other} and in {directory}; remove one of them")
    return dict(sorted(found.items()))
