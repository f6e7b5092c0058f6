"""Recovers a segment: cuts it before the first bad batch and rebuilds indexes (kafka-storage.md#segment-recovery)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.checkpoints.leader_epochs import EpochEntry, LeaderEpochs
from topicfs.storage.codec.headers import Batches
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import LEADER_EPOCHS, SegmentFileKind, SegmentFileState, segment_file
from topicfs.storage.errors import CorruptionError
from topicfs.storage.indexes import offset_index, time_index
from topicfs.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from topicfs.storage.indexes.time_index import TimeEntry
from topicfs.storage.log.producers import LogProducers, replay_window
from topicfs.storage.model import NO_TIMESTAMP, Offset
from topicfs.storage.recovery.split import SegmentOverflowError
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.scan import SCAN_WINDOW_BYTES, Window, windows
from topicfs.storage.segment.segment import Segment


class Recovered(NamedTuple):
    end_offset: Offset
    """The offset after the last valid batch; the base offset if there is no valid batch."""
    cut_bytes: int
    """Number of bytes after the last valid batch."""
    cause: str
    """The fault of the first invalid batch; empty if all batches are valid."""
    overlaps: bool
    """True if a valid batch begins before its predecessor ends: its base offset is wrong."""


def recover_segment(
    segment: Segment,
    epochs: LeaderEpochs,
    producers: LogProducers,
    *,
    may_split: bool = False,
    before_cut: Callable[[Recovered], None] | None = None,
) -> Recovered:
    """Rebuild a segment's indexes, leader epochs and producers; cut its log after the last valid batch.

    A batch is valid if it is whole, of a known format, with a right checksum and possible offsets. `producers` has
    the state at the base offset. `before_cut` may raise an exception. With `may_split`, a batch too far above the
    base offset raises SegmentOverflowError.
    """
    file_bytes = segment.size
    segment.begin_rebuild()
    recovered = take_batches(
        segment, segment.base_offset, epochs, producers, file_bytes=file_bytes, may_split=may_split
    )
    if before_cut is not None:
        before_cut(recovered)
    segment.end_rebuild()
    return recovered


def take_batches(
    segment: Segment,
    end_offset: Offset,
    epochs: LeaderEpochs,
    producers: LogProducers,
    *,
    file_bytes: int,
    may_split: bool = False,
) -> Recovered:
    """Add the valid batches that the file has after the segment's present size, up to `file_bytes`.

    `end_offset` is the end of the segment before this call.
    """
    cause, overlaps = "", False
    for window in windows(segment.log, segment.size, file_bytes, check_crc=True):
        # The checksum does not cover the base offset, so the base offset is checked here.
        good = window.batches.count_ascending(end_offset, segment.base_offset + MAX_RELATIVE_OFFSET)
        if good:
            overlaps = overlaps or window.batches.overlap(end_offset, good)
            _take(segment, window, good, epochs, producers)
            end_offset = window.batches[good - 1].end_offset
        if good < len(window.batches):
            too_far = _overflows(window.batches, good, segment.base_offset)
            if may_split and too_far:
                raise SegmentOverflowError(segment)
            why = "is over 2^31-1 above the base offset" if too_far else "does not fit in the segment"
            cause = f"offset {window.batches[good].last_offset} {why}"
            break
        cause = window.problem.cause if window.problem else ""
    producers.state.end_offset = end_offset
    return Recovered(end_offset, file_bytes - segment.size, cause, overlaps)


def _overflows(batches: Batches, index: int, base_offset: Offset) -> bool:
    """Return whether a batch is too far above the segment's base offset.

    Return False if the offset is also above that of the next batch, because then a flipped bit is the cause.
    """
    offsets = batches.column("last_offset")[index : index + 2].tolist()
    return offsets[0] - base_offset > MAX_RELATIVE_OFFSET and (len(offsets) == 1 or offsets[0] < offsets[1])


def _take(segment: Segment, window: Window, good: int, epochs: LeaderEpochs, producers: LogProducers) -> None:
    batches = window.batches
    segment.index_window(batches, good, window.position)
    segment.size = window.position + batches[good - 1].end_position
    _note_epochs(batches, good, epochs)
    for span in replay_window(producers, window, good):
        segment.add_aborted(span)


def _note_epochs(batches: Batches, good: int, epochs: LeaderEpochs) -> None:
    """Note each epoch that is newer than the latest known epoch; it begins at its first batch."""
    latest = epochs.latest.epoch if epochs.latest else -1
    newest = batches.largest("leader_epoch", good)
    if newest <= latest:
        return
    for index, epoch in enumerate(batches.column("leader_epoch")[:good]):
        if epoch > latest:
            latest = epoch
            epochs.assign(latest, batches[index].base_offset)
            if latest == newest:
                return


def end_epochs(epochs: LeaderEpochs, on_disk: EpochEntry | None, chain: Chain, end_offset: Offset) -> None:
    """Drop epochs that start at or after the log end. Raises CorruptionError if the last batch has another epoch."""
    latest = on_disk
    if latest is not None and latest.start_offset > end_offset:
        segment = chain.segments[chain.floor(end_offset - 1)]
        batch = segment.find_batch(end_offset - 1, segment.size)
        if batch is not None and epochs.epoch_for_offset(batch.base_offset) != batch.leader_epoch >= 0:
            cause = f"epoch {latest.epoch} starts at {latest.start_offset}, beyond the log's end {end_offset}"
            path = segment.log.path.with_name(LEADER_EPOCHS)
            raise CorruptionError(path, 0, f"{cause}; restore the file or remove it")
    epochs.truncate_from_end(end_offset)


@contextmanager
def index_last(segment: Segment, directory: Path, files: FileSystem) -> Iterator[None]:
    """Put the `.index` in place after the block, which rebuilds a segment below the recovery point. Raises OSError.

    `.index` gets its name last, when all is on disk, because a start rebuilds segments without `.index`. On a
    read-only disk all files are in memory.
    """
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
        # The split that follows makes files with the same names.
        files.unlink(directory / aside)
        raise
    segment.sync()
    files.rename(directory / aside, directory / name)
    segment.offset_index.slots.moved(directory / name)
    files.sync_directory(directory)


_SLOTS = ((SegmentFileKind.OFFSET_INDEX, offset_index.SLOT), (SegmentFileKind.TIME_INDEX, time_index.SLOT))


def read_end(segment: Segment) -> tuple[Offset, int]:
    """Return a segment's end offset and end position, read from its batch headers from the last index entry on."""
    start = segment.offset_index.lookup(segment.offset_index.last_offset).position
    end_offset, position = segment.base_offset, 0
    for window in windows(segment.log, start, segment.size, window_bytes=SCAN_WINDOW_BYTES):
        if len(window.batches):
            end_offset = window.batches[-1].end_offset
        position = window.position + window.batches.stop
    return end_offset, position


def indexes_fit(segment: Segment, directory: Path, files: FileSystem) -> bool:
    """Return whether both index files of an inactive segment exist and have ends that fit its log.

    A process that ended during a roll may have left unused slots below the recovery point, which recovery does not
    check. If they were read as entries, the segment's newest record would be from 1970 (kafka-storage.md#load-checks).
    """
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
    """Return the first batch's largest timestamp, and its last offset relative to the base offset."""
    first = segment.read_first_batch()
    if first is None:
        return TimeEntry(NO_TIMESTAMP, Offset(0))
    return TimeEntry(first.max_timestamp, Offset(first.last_offset - segment.base_offset))


def _has_later(segment: Segment) -> bool:
    """Return whether a batch has a later timestamp than the first batch; read headers until such a batch is found."""
    first = _first_entry(segment).timestamp
    return any(
        len(window.batches) and window.batches.largest("max_timestamp", len(window.batches)) > first
        for window in windows(segment.log, 0, segment.size, window_bytes=SCAN_WINDOW_BYTES)
    )
