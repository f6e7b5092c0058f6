"""A partition's lines in a data directory's offset checkpoints, changed from outside while nobody serves it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from storage.checkpoints.offset_checkpoint import read_offsets, write_offsets
from storage.disk import names
from storage.disk.filesystem import FileSystem
from storage.model import Offset, TopicPartition

Lines = Mapping[str, Offset | None]
"""By checkpoint file; None: no line."""

FILES = (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS, names.CLEANER_OFFSETS)


def read_lines(files: FileSystem, directory: Path, partition: TopicPartition) -> dict[str, Offset | None]:
    """Give a partition's line of each file (CorruptionError, OSError)."""
    return {name: read_offsets(files, directory / name).get(partition) for name in FILES}


def write_lines(files: FileSystem, directory: Path, partition: TopicPartition, lines: Lines) -> None:
    """Set or remove a partition's lines; files without change are left alone (CorruptionError, OSError; blocking)."""
    for name, offset in lines.items():
        present = read_offsets(files, directory / name)
        if present.get(partition) == offset:
            continue
        changed = {one: kept for one, kept in present.items() if one != partition}
        if offset is not None:
            changed[partition] = offset
        write_offsets(files, directory / name, changed)
