"""The settings of a segment, and where it is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from topicfs.storage.disk.filesystem import Clock, FileSystem


class SegmentSettings(NamedTuple):
    """The settings that are fixed for a segment when it is created or loaded."""

    index_interval_bytes: int
    index_bytes: int
    """Preallocated size of each index while the segment is active."""
    preallocated_bytes: int = 0
    """Size of a new log file; 0: it grows."""
    jitter_ms: int = 0
    """Milliseconds that this segment rolls earlier than segment.ms."""


class SegmentDirectory(NamedTuple):
    """The directory of a log's segments, the disk that it is on, and the clock."""

    path: Path
    files: FileSystem
    clock: Clock
