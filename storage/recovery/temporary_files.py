"""Sorts temporary files of interrupted deletions and compactions by their names (kafka-storage.md#interrupted-work).

As long as a `.cleaned` file exists, the old segments count. If there are only `.swap` files, these replace them.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from topicfs.storage.disk.names import (
    SegmentFileKind,
    SegmentFileName,
    SegmentFileState,
    parse_segment_file,
    segment_file,
)
from topicfs.storage.model import Offset

_INDEX_KINDS = frozenset(
    {SegmentFileKind.OFFSET_INDEX, SegmentFileKind.TIME_INDEX, SegmentFileKind.TRANSACTION_INDEX}
)

_DELETED = SegmentFileState.DELETED.value


class TemporaryFiles(NamedTuple):
    remove: tuple[str, ...]
    """Files that are no longer part of the log, or are not part of it yet."""
    swaps: tuple[SegmentFileName, ...]
    """Files of complete new segments that are not in place yet."""


def sort_temporary_files(names: Iterable[str]) -> TemporaryFiles:
    """Sort the directory's temporary files into files to remove and files to put in place."""
    files = parse_names(names)
    cleaned = [file for file in files if file.state is SegmentFileState.CLEANED]
    unfinished_from = min((file.base_offset for file in cleaned), default=None)
    swaps = [file for file in files if file.state is SegmentFileState.SWAP]
    aborted = [file for file in swaps if unfinished_from is not None and file.base_offset >= unfinished_from]
    deleted = [name for name in names if name.endswith(_DELETED)]
    return TemporaryFiles(
        remove=(*deleted, *(segment_file(*file) for file in (*aborted, *cleaned))),
        swaps=tuple(file for file in swaps if file not in aborted),
    )


def replaced(names: Iterable[str], start_offset: Offset, end_offset: Offset) -> list[str]:
    """Return the log's live files of every kind whose base offset is in the range that new segments cover."""
    return [
        segment_file(*file)
        for file in parse_names(names)
        if file.state is SegmentFileState.LIVE and start_offset <= file.base_offset < end_offset
    ]


def indexes_without_log(names: Sequence[str]) -> list[str]:
    """Return the index files of segments whose `.log` is missing."""
    live = [file for file in parse_names(names) if file.state is SegmentFileState.LIVE]
    with_log = {file.base_offset for file in live if file.kind is SegmentFileKind.LOG}
    return [
        segment_file(*file) for file in live if file.base_offset not in with_log and file.kind in _INDEX_KINDS
    ]


def base_offsets(names: Iterable[str], kind: SegmentFileKind = SegmentFileKind.LOG) -> list[Offset]:
    """Return the ascending offsets in the names of live files of one kind, by default those of `.log` files."""
    return sorted(
        file.base_offset
        for file in parse_names(names)
        if file.kind is kind and file.state is SegmentFileState.LIVE
    )


def parse_names(names: Iterable[str]) -> list[SegmentFileName]:
    return [file for name in names if (file := parse_segment_file(name)) is not None]
