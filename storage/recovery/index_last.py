"""Rebuilding a segment below the recovery point, where nobody looks a second time: its `.index` appears last.

A missing `.index` is what tells a start that a segment must be rebuilt. So it goes before any of the segment's files
is touched, the new one is made under a temporary name that every start removes, and it gets its own name when all of
the segment is on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.disk.filesystem import FileSystem
from storage.disk.names import SegmentFileKind, SegmentFileState, segment_file
from storage.segment.segment import Segment


@contextmanager
def index_last(segment: Segment, directory: Path, files: FileSystem) -> Iterator[None]:
    """Let the segment be rebuilt inside (blocking, OSError); on a read-only disk that happens in memory anyway."""
    if files.read_only:
        yield
        return
    name = segment_file(segment.base_offset, SegmentFileKind.OFFSET_INDEX)
    aside = segment_file(segment.base_offset, SegmentFileKind.OFFSET_INDEX, SegmentFileState.CLEANED)
    if files.exists(directory / name):
        files.unlink(directory / name)
    segment.use_offset_index(files.open(directory / aside, create=True))
    try:
        yield
    except Exception:
        # What follows, splitting the segment, makes files of that name.
        files.unlink(directory / aside)
        raise
    segment.sync()
    files.rename(directory / aside, directory / name)
    segment.offset_index.slots.moved(directory / name)
    files.sync_directory(directory)
