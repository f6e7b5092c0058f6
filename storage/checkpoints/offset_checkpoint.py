"""Offset checkpoints: one offset per partition, for a whole data directory.

    recovery-point-offset-checkpoint      first offset not known to be flushed
    log-start-offset-checkpoint           log starts that are above the first segment's base offset
    replication-offset-checkpoint         high watermarks
    cleaner-offset-checkpoint             first dirty offsets of compacted partitions

Content: 0 / number of entries / `topic partition offset` on each line (kafka-storage.md#offset-checkpoints).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from sys import intern

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.checkpoints.table import decode_table, encode_table, field_number
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.model import Offset, TopicPartition


def decode_offsets(data: bytes, *, file: Path) -> dict[TopicPartition, Offset]:
    """Parse the file's bytes; if a partition occurs twice, the later line counts. Raises CorruptionError."""
    offsets = {}
    for topic, number, offset in decode_table(data, width=3, file=file):
        # All partitions of a topic, in all files, share one string for its name.
        partition = TopicPartition(intern(topic), field_number(number, file=file))
        offsets[partition] = Offset(field_number(offset, file=file))
    return offsets


def read_offsets(files: FileSystem, path: Path) -> dict[TopicPartition, Offset]:
    """Read a checkpoint file; return no entries if it is missing. Raises CorruptionError, OSError."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return {}
    return decode_offsets(data, file=path)


def write_offsets(files: FileSystem, path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Replace a checkpoint file atomically. Blocks. Raises OSError."""
    rows = [f"{topic} {number} {offset}" for (topic, number), offset in offsets.items()]
    write_atomically(files, path, encode_table(rows))


Lines = Mapping[str, Offset | None]
"""A partition's offset in each checkpoint file; None if the file has no line for the partition. Change lines only
while no engine serves the partition.
"""

FILES = (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS, names.CLEANER_OFFSETS)


def read_lines(files: FileSystem, directory: Path, partition: TopicPartition) -> dict[str, Offset | None]:
    """Return a partition's line in each checkpoint file. Raises CorruptionError, OSError."""
    return {name: read_offsets(files, directory / name).get(partition) for name in FILES}


def write_lines(files: FileSystem, directory: Path, partition: TopicPartition, lines: Lines) -> None:
    """Set or remove a partition's lines; skip files that do not change. Blocks. Raises CorruptionError, OSError."""
    for name, offset in lines.items():
        present = read_offsets(files, directory / name)
        if present.get(partition) == offset:
            continue
        changed = {one: kept for one, kept in present.items() if one != partition}
        if offset is not None:
            changed[partition] = offset
        write_offsets(files, directory / name, changed)
