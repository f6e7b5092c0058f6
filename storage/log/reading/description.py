"""A log as its users see it: segments, files and sizes as values."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import SegmentFileKind, parse_segment_file
from topicfs.storage.log.state import LogState
from topicfs.storage.model import NO_TIMESTAMP, SegmentInfo, Timestamp
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.segment import Segment

_INDEX_SUFFIXES = tuple(kind.value for kind in SegmentFileKind if kind.value.endswith("index"))


def describe_segments(state: LogState) -> tuple[SegmentInfo, ...]:
    """Return the segments, oldest first, the active one last."""
    return tuple(describe_segment(state, index) for index in range(len(state.chain.segments)))


def describe_segment(state: LogState, index: int) -> SegmentInfo:
    chain, segment = state.chain, state.chain.segments[index]
    return SegmentInfo(
        base_offset=segment.base_offset,
        end_offset=chain.end_offset(index, state.end_offset),
        size_bytes=state.end.bytes_of(segment),
        largest_timestamp=segment.largest_timestamp,
        active=segment is chain.active,
        files=segment.file_names(),
    )


def index_bytes(chain: Chain, directory: Path, files: FileSystem) -> int:
    """Return the bytes of all index files, as `ls` shows them: those of the active segment have their full size."""
    return sum(
        files.size(path)
        for segment in chain.segments
        for path in _index_files(directory, segment.file_names())
    )


@lru_cache(maxsize=128)
def _index_files(directory: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the paths of a segment's index files; kept, for to make a path takes longer than to ask the disk."""
    return tuple(directory / name for name in names if name.endswith(_INDEX_SUFFIXES))


def first_timestamp(chain: Chain) -> Timestamp:
    """Return the timestamp of the first batch; -1 where there is none."""
    return next((segment.first_timestamp for segment in chain.segments if segment.size), NO_TIMESTAMP)


def largest_timestamp(chain: Chain) -> Timestamp:
    """Return the largest timestamp of all records; -1 where none has one."""
    return max((segment.largest.timestamp for segment in chain.segments), default=NO_TIMESTAMP)


def segment_of(name: str, chain: Chain) -> Segment | None:
    """Return the segment one of whose files is called `name`."""
    parsed = parse_segment_file(name)
    if parsed is None:
        return None
    segment = chain.segments[chain.floor(parsed.base_offset)]
    return segment if name in segment.file_names() else None
