"""The time at which an unopened partition must be opened for its duties, as its files say.

Too early does no harm: once it is open the duties decide for themselves. What its last owner left half done (files to
be removed) is done by the opening.
"""

from __future__ import annotations

from pathlib import Path

from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import SegmentFileKind, SegmentFileState, parse_segment_file, segment_file
from topicfs.storage.indexes.time_index import SLOT
from topicfs.storage.model import Offset, Timestamp

NOW = Timestamp(0)


def due_at(
    directory: Path, *, files: FileSystem, config: TopicConfig, log_start_offset: Offset
) -> Timestamp | None:
    """Return the time at which it must be opened; None: not for its duties. OSError where the directory cannot be read."""
    present = [parse_segment_file(entry.name) for entry in files.list_directory(directory)]
    if any(file is not None and file.state is not SegmentFileState.LIVE for file in present):
        return NOW
    bases = sorted(file.base_offset for file in present if file and file.kind is SegmentFileKind.LOG)
    if not bases:
        return NOW
    if len(bases) > 1 and (config.compacts or bases[1] <= log_start_offset):
        return NOW
    return _retained_until(directory, bases, files, config) if config.deletes else None


def _retained_until(
    directory: Path, bases: list[Offset], files: FileSystem, config: TopicConfig
) -> Timestamp | None:
    """Return the earliest time at which retention may delete its first segment."""
    if config.retention_bytes >= 0:
        sizes = (files.size(directory / segment_file(base, SegmentFileKind.LOG)) for base in bases)
        if sum(sizes) > config.retention_bytes:
            return NOW
    if config.retention_ms < 0:
        return None
    if len(bases) == 1 and not files.size(directory / segment_file(bases[0], SegmentFileKind.LOG)):
        return None
    ends = files.read_ends(directory, segment_file(bases[0], SegmentFileKind.TIME_INDEX), SLOT.size)
    if len(ends.last) < SLOT.size:
        return NOW
    # No record of a segment is older than what its index ends with.
    return Timestamp(SLOT.unpack(ends.last)[0] + config.retention_ms)
