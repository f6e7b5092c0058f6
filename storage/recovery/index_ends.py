"""The end of a segment by its batches, and whether index files may be those of its log by their ends (kafka-storage.md#load-checks).

Unused slots of an active segment's index look like entries. A process that ended inside a roll left some below the
recovery point, where no recovery looks; they would say that the newest record is of 1970.
"""

from __future__ import annotations

from pathlib import Path

from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import SegmentFileKind, segment_file
from topicfs.storage.indexes import offset_index, time_index
from topicfs.storage.indexes.time_index import TimeEntry
from topicfs.storage.model import NO_TIMESTAMP, Offset
from topicfs.storage.segment.scan import SCAN_WINDOW_BYTES, windows
from topicfs.storage.segment.segment import Segment

_SLOTS = (
    (SegmentFileKind.OFFSET_INDEX, offset_index.SLOT),
    (SegmentFileKind.TIME_INDEX, time_index.SLOT),
)


def read_end(segment: Segment) -> tuple[Offset, int]:
    """Return a segment's end offset and position by its batch headers, from the last index entry on."""
    start = segment.offset_index.lookup(segment.offset_index.last_offset).position
    end_offset, position = segment.base_offset, 0
    for window in windows(segment.log, start, segment.size, window_bytes=SCAN_WINDOW_BYTES):
        if len(window.batches):
            end_offset = window.batches[-1].end_offset
        position = window.position + window.batches.stop
    return end_offset, position


def indexes_fit(segment: Segment, directory: Path, files: FileSystem) -> bool:
    """Return whether both index files of an inactive segment exist and end as those of its log may."""
    try:
        offsets, times = (
            files.read_ends(directory, segment_file(segment.base_offset, kind), slot.size)
            for kind, slot in _SLOTS
        )
    except FileNotFoundError:
        return False
    return offset_index.may_end(offsets, segment.size) and time_index.may_end(
        times, lambda: _first_entry(segment), has_later=lambda: _has_later(segment)
    )


def _first_entry(segment: Segment) -> TimeEntry:
    """Return the first batch's largest timestamp and last offset, the latter relative to the base offset."""
    first = segment.read_first_batch()
    if first is None:
        return TimeEntry(NO_TIMESTAMP, Offset(0))
    return TimeEntry(first.max_timestamp, Offset(first.last_offset - segment.base_offset))


def _has_later(segment: Segment) -> bool:
    """Return whether a batch has a later timestamp than the first one, for which the headers are read up to there."""
    first = _first_entry(segment).timestamp
    return any(
        len(window.batches) and window.batches.largest("max_timestamp", len(window.batches)) > first
        for window in windows(segment.log, 0, segment.size, window_bytes=SCAN_WINDOW_BYTES)
    )
