"""A log as its users see it: segments, files and sizes as values."""

from __future__ import annotations

from pathlib import Path

from storage.disk.filesystem import FileSystem
from storage.disk.names import SegmentFileKind, parse_segment_file
from storage.log.read import Bound
from storage.model import NO_TIMESTAMP, SegmentInfo, Timestamp
from storage.segment.chain import Chain
from storage.segment.segment import Segment

_INDEX_SUFFIXES = tuple(kind.value for kind in SegmentFileKind if kind.value.endswith("index"))


def describe_segments(chain: Chain, end: Bound) -> tuple[SegmentInfo, ...]:
    """Oldest first, the active one last."""
    return tuple(describe_segment(chain, index, end) for index in range(len(chain.segments)))


def describe_segment(chain: Chain, index: int, end: Bound) -> SegmentInfo:
    segment = chain.segments[index]
    return SegmentInfo(
        base_offset=segment.base_offset,
        end_offset=chain.end_offset(index, end.offset),
        size_bytes=segment_bytes(segment, end),
        largest_timestamp=segment.largest_timestamp,
        active=segment is chain.active,
        files=segment.file_names(),
    )


def segment_bytes(segment: Segment, end: Bound) -> int:
    """Bytes of whole batches that readers may see."""
    return end.position if segment is end.segment else segment.size


def log_bytes(chain: Chain, end: Bound) -> int:
    return sum(segment_bytes(segment, end) for segment in chain.segments)


def index_bytes(chain: Chain, directory: Path, files: FileSystem) -> int:
    """Of all index files, as `ls` shows them: those of the active segment have their full size."""
    names = (name for segment in chain.segments for name in segment.file_names())
    return sum(files.size(directory / name) for name in names if name.endswith(_INDEX_SUFFIXES))


def first_timestamp(chain: Chain) -> Timestamp:
    """Of the first batch; -1 where there is none."""
    return next((segment.first_timestamp for segment in chain.segments if segment.size), NO_TIMESTAMP)


def largest_timestamp(chain: Chain) -> Timestamp:
    """Of all records; -1 where none has one."""
    return max((segment.largest.timestamp for segment in chain.segments), default=NO_TIMESTAMP)


def segment_of(name: str, chain: Chain) -> Segment | None:
    """The segment one of whose files is called `name`."""
    parsed = parse_segment_file(name)
    if parsed is None:
        return None
    segment = chain.segments[chain.floor(parsed.base_offset)]
    return segment if name in segment.file_names() else None
