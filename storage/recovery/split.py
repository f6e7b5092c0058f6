"""Splits a segment whose offsets are further apart than its indexes can store (kafka-storage.md#segment-splitting).

Compactions by old brokers made such segments. Batches are copied into new segments, which are named `.cleaned` until
all are flushed, and then `.swap`. Loading puts `.swap` files in place. A crash leaves the old segment or the new ones.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.codec.binary.fields import CURRENT_MAGIC
from topicfs.storage.codec.headers import Batches, BatchHeader
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import SegmentFileState
from topicfs.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from topicfs.storage.model import Offset, Position
from topicfs.storage.segment.roll import SegmentDirectory, SegmentSettings
from topicfs.storage.segment.scan import FILE_WINDOW_BYTES, Window, windows
from topicfs.storage.segment.segment import Segment
from topicfs.storage.segment.sparse import PlacedBatch


class SegmentOverflowError(Exception):
    """A valid batch has an offset that the indexes cannot store. The caller splits the segment and loads again."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment.log.path}: offsets more than {MAX_RELATIVE_OFFSET} above the base offset")
        self.segment = segment


class _BatchRange(NamedTuple):
    """Adjacent batches of a window that go into the same new segment."""

    base_offset: Offset
    first: int
    end: int


def split_segment(segment: Segment, directory: SegmentDirectory, settings: SegmentSettings) -> list[Offset]:
    """Write the parts of a segment, complete and named `.swap`, beside it; return their base offsets.

    The first part may be empty; the last part has the torn end, if there is one. Raises OSError, which leaves
    `.cleaned` files that the next load removes.
    """
    modified_time = segment.modified_time
    parts: list[Segment] = []

    def part_at(base_offset: Offset) -> Segment:
        if not parts or parts[-1].base_offset != base_offset:
            unallocated = settings._replace(preallocated_bytes=0)
            parts.append(Segment.create(directory, base_offset, unallocated, SegmentFileState.CLEANED))
        return parts[-1]

    part_at(segment.base_offset)
    end_offset = segment.base_offset
    size = segment.log.size()
    copied = 0
    for window in windows(segment.log, 0, size):
        # Batches after those whose offsets ascend are damaged.
        ascending = window.batches.count_ascending(end_offset, 2**63 - 1)
        for batch_range in _batch_ranges(window.batches, ascending, parts[-1].base_offset, end_offset):
            _copy(window, batch_range, part_at(batch_range.base_offset))
        if ascending:
            end_offset = window.batches[ascending - 1].end_offset
            copied = window.position + window.batches[ascending - 1].end_position
        if ascending < len(window.batches):
            break
    _copy_rest(segment, copied, size, parts[-1])
    for part in parts:
        part.deactivate()
        part.set_modified_time(modified_time)
        part.sync()
        part.close()
    _rename(parts, directory.path, directory.files)
    return [part.base_offset for part in parts]


def _batch_ranges(
    batches: Batches, count: int, base_offset: Offset, end_offset: Offset
) -> Iterator[_BatchRange]:
    """Yield ranges of the first `count` batches, one range for each new segment.

    The first range may extend the segment at `base_offset`.
    """
    first = 0
    for index in range(count):
        batch = batches[index]
        if batch.last_offset - base_offset > MAX_RELATIVE_OFFSET:
            if index > first:
                yield _BatchRange(base_offset, first, index)
            first, base_offset = index, _base_for(batch, end_offset)
        end_offset = batch.end_offset
    if first < count:
        yield _BatchRange(base_offset, first, count)


def _base_for(batch: BatchHeader, end_offset: Offset) -> Offset:
    """Return the base offset of a segment that begins with `batch`; old compressed batches store only a last offset."""
    if batch.magic == CURRENT_MAGIC:
        return batch.base_offset
    return Offset(max(end_offset, batch.last_offset - MAX_RELATIVE_OFFSET))


def _copy(window: Window, batch_range: _BatchRange, part: Segment) -> None:
    chosen = [window.batches[index] for index in range(batch_range.first, batch_range.end)]
    data = bytearray(window.data[chosen[0].position : chosen[-1].end_position])
    part.append(
        data, [PlacedBatch(batch.size_bytes, batch.last_offset, batch.max_timestamp) for batch in chosen]
    )


def _copy_rest(segment: Segment, start: int, end: int, part: Segment) -> None:
    for position in range(start, end, FILE_WINDOW_BYTES):
        rest = segment.log.pread(min(FILE_WINDOW_BYTES, end - position), Position(position))
        part.log.pwrite(rest, Position(part.size))
        part.size += len(rest)


def _rename(parts: list[Segment], directory: Path, files: FileSystem) -> None:
    """Rename `.cleaned` to `.swap`, highest base offset first: as long as a `.cleaned` is left, no `.swap` counts."""
    files.sync_directory(directory)
    for part in reversed(parts):
        for name in part.file_names():
            final = name.removesuffix(SegmentFileState.CLEANED.value) + SegmentFileState.SWAP.value
            files.rename(directory / name, directory / final)
    files.sync_directory(directory)
