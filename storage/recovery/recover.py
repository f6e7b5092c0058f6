"""Recovering a segment: every batch is checked, the indexes are made anew, the rest behind the first bad one goes."""

from __future__ import annotations

import logging
from operator import lt
from typing import NamedTuple

from storage.checkpoints.leader_epochs import LeaderEpochs
from storage.codec.headers import Batches
from storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from storage.log.producers import LogProducers
from storage.log.replay import replay_window
from storage.log.scan import Window, windows
from storage.log.segment import Segment
from storage.model import Offset
from storage.recovery.split import SegmentOverflowError

WINDOW_BYTES = 1 << 20
"""What is read and checked at a time."""

_LOGGER = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """What was found in a segment."""

    end_offset: Offset
    """One past the last good batch's last offset; the base offset without one."""
    cut_bytes: int
    """What stood behind the last good batch."""
    cause: str
    """Why the first bad batch is bad; empty where all are good."""


def recover_segment(
    segment: Segment, epochs: LeaderEpochs, producers: LogProducers, *, may_split: bool = False
) -> Recovered:
    """Rebuild a segment's indexes, leader epochs and producers from its log; cut the log behind the last good batch.

    `producers` stand at the segment's base offset, and then at its end.

    Good means: whole, of a known format, its checksum right, its offsets such as the segment may hold. What the
    records inside look like is not asked.

    With `may_split` a batch too far above the base offset is no damage: SegmentOverflowError says that the segment
    wants splitting, and nothing is lost.
    """
    file_bytes = segment.size
    segment.begin_rebuild()
    recovered = take_batches(
        segment, segment.base_offset, epochs, producers, file_bytes=file_bytes, may_split=may_split
    )
    if recovered.cut_bytes:
        _LOGGER.warning(
            "%s: position %d: %s; cut %d bytes",
            segment.log.path,
            segment.size,
            recovered.cause,
            recovered.cut_bytes,
        )
    return recovered


def take_batches(  # noqa: PLR0913 (a segment, what goes with it, and how far to go)
    segment: Segment,
    end_offset: Offset,
    epochs: LeaderEpochs,
    producers: LogProducers,
    *,
    file_bytes: int,
    may_split: bool = False,
) -> Recovered:
    """Make the good batches between the segment's present size and `file_bytes` part of it, which ends at `end_offset`."""
    cause = ""
    for window in windows(segment.log, segment.size, file_bytes, window_bytes=WINDOW_BYTES, check_crc=True):
        good = _count_in_range(window.batches, segment.base_offset, end_offset)
        if good:
            _take(segment, window, good, epochs, producers)
            end_offset = window.batches[good - 1].end_offset
        if good < len(window.batches):
            if may_split and _overflows(window.batches, good, segment.base_offset):
                raise SegmentOverflowError(segment)
            cause = f"offset {window.batches[good].last_offset} does not belong into the segment"
            break
        cause = window.problem.cause if window.problem else ""
    segment.end_rebuild()
    producers.state.end_offset = end_offset
    return Recovered(end_offset, file_bytes - segment.size, cause)


def _count_in_range(batches: Batches, base_offset: Offset, end_offset: Offset) -> int:
    """How many batches lead up to the first whose last offset the segment cannot hold behind `end_offset`.

    The base offset is not under the checksum: so it is looked at here.
    """
    last_offsets = batches.column("last_offset").tolist()
    if not last_offsets:
        return 0
    limit = base_offset + MAX_RELATIVE_OFFSET
    if last_offsets[0] >= end_offset and last_offsets[-1] <= limit and _ascend(last_offsets):
        return len(last_offsets)
    good = 0
    lowest: int = end_offset
    while good < len(last_offsets) and lowest <= last_offsets[good] <= limit:
        lowest = last_offsets[good] + 1
        good += 1
    return good


def _overflows(batches: Batches, index: int, base_offset: Offset) -> bool:
    """Whether a batch lies too far above the base offset for what follows to be a segment; a flipped bit is not followed."""
    offsets = batches.column("last_offset")[index : index + 2].tolist()
    return offsets[0] - base_offset > MAX_RELATIVE_OFFSET and _ascend(offsets)


def _ascend(offsets: list[int]) -> bool:
    return all(map(lt, offsets, offsets[1:]))


def _take(segment: Segment, window: Window, good: int, epochs: LeaderEpochs, producers: LogProducers) -> None:
    """Make the first `good` batches of a window part of the segment."""
    batches = window.batches
    positions = [window.position + position for position in batches.column("position")[:good].tolist()]
    last_offsets = batches.column("last_offset")[:good].tolist()
    segment.index_window(positions, last_offsets, batches.column("max_timestamp")[:good].tolist())
    segment.size = window.position + batches[good - 1].end_position
    _note_epochs(batches, good, epochs)
    for span in replay_window(producers, window, good):
        segment.add_aborted(span)


def _note_epochs(batches: Batches, good: int, epochs: LeaderEpochs) -> None:
    """Assign each epoch newer than the latest at the batch that begins it."""
    column = batches.column("leader_epoch")[:good].tolist()
    latest = epochs.latest.epoch if epochs.latest else -1
    while (newest := max(column)) > latest:
        first = next(index for index, epoch in enumerate(column) if epoch > latest)
        latest = column[first]
        epochs.assign(latest, batches[first].base_offset)
        if latest == newest:
            return
