"""The recovery of a segment: cut before the first bad batch, indexes rebuilt (kafka-storage.md#segment-recovery)."""

from __future__ import annotations

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
    """One past the last good batch's last offset; the base offset without one."""
    cut_bytes: int
    """Bytes that were behind the last good batch."""
    cause: str
    """The fault of the first bad batch; empty where all are good."""
    overlaps: bool
    """True if one of the good ones begins before the one in front of it ends: its base offset is none."""


def recover_segment(
    segment: Segment,
    epochs: LeaderEpochs,
    producers: LogProducers,
    *,
    may_split: bool = False,
    before_cut: Callable[[Recovered], None] | None = None,
) -> Recovered:
    """Rebuild a segment's indexes, leader epochs and producers from its log; cut the log behind the last good batch.

    Good means: whole, of a known format, its checksum right, its offsets possible here. `producers` are those at the
    base offset. `before_cut` may raise. With `may_split` a batch too far above the base offset raises
    SegmentOverflowError.
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
    """Make the good batches between the segment's present size and `file_bytes` part of it, which ends at `end_offset`."""
    cause, overlaps = "", False
    for window in windows(segment.log, segment.size, file_bytes, check_crc=True):
        # The base offset is not under the checksum: so it is looked at here.
        good = window.batches.count_ascending(end_offset, segment.base_offset + MAX_RELATIVE_OFFSET)
        if good:
            overlaps = overlaps or window.batches.overlap(end_offset, good)
            _take(segment, window, good, epochs, producers)
            end_offset = window.batches[good - 1].end_offset
        if good < len(window.batches):
            too_far = _overflows(window.batches, good, segment.base_offset)
            if may_split and too_far:
                raise SegmentOverflowError(segment)
            why = "is over 2^31-1 above the base offset" if too_far else "does not belong into the segment"
            cause = f"offset {window.batches[good].last_offset} {why}"
            break
        cause = window.problem.cause if window.problem else ""
    producers.state.end_offset = end_offset
    return Recovered(end_offset, file_bytes - segment.size, cause, overlaps)


def _overflows(batches: Batches, index: int, base_offset: Offset) -> bool:
    """Return whether a batch lies too far above the base offset for what follows to be a segment; a flipped bit is not followed."""
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
    """Assign each epoch newer than the latest at the batch that begins it."""
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
    """Drop epochs that start at or behind a log's end. CorruptionError if the last batch has the latest one `on_disk`."""
    latest = on_disk
    if latest is not None and latest.start_offset > end_offset:
        segment = chain.segments[chain.floor(end_offset - 1)]
        batch = segment.find_batch(end_offset - 1, segment.size)
        if batch is not None and epochs.epoch_for_offset(batch.base_offset) != batch.leader_epoch >= 0:
            cause = f"epoch {latest.epoch} starts at {latest.start_offset}, behind the log's end {end_offset}"
            path = segment.log.path.with_name(LEADER_EPOCHS)
            raise CorruptionError(path, 0, f"{cause}; restore the file or remove it")
    epochs.truncate_from_end(end_offset)


@contextmanager
def index_last(segment: Segment, directory: Path, files: FileSystem) -> Iterator[None]:
    """Rebuild a segment below the recovery point in the block; its `.index` appears when all is on disk (OSError).

    A start rebuilds segments without `.index`. On a read-only disk all is in memory.
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
        # What follows, splitting the segment, makes files of that name.
        files.unlink(directory / aside)
        raise
    segment.sync()
    files.rename(directory / aside, directory / name)
    segment.offset_index.slots.moved(directory / name)
    files.sync_directory(directory)


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
    """Return whether both index files of an inactive segment exist and end as those of its log may.

    A process that ended inside a roll left unused slots below the recovery point, where no recovery looks. They look like
    entries, and say that the segment's newest record is of 1970 (kafka-storage.md#load-checks).
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
