"""Signs that files of a log were lost or changed: offsets that no segment has, and leader epochs that no batch has.

Only the ends of segments and the first offsets of epochs are checked. If these do not fit, whole segments are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.checkpoints.leader_epochs import (
    Entries,
    EpochEntry,
    assign,
    epoch_for_offset,
    truncate_from_end,
    truncate_from_start,
)
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset
from topicfs.storage.segment.scan import SCAN_WINDOW_BYTES, windows
from topicfs.storage.segment.segment import Segment


class TornSegment(NamedTuple):
    """A closed segment whose batches do not end where the next segment begins."""

    path: Path
    base_offset: Offset
    end_offset: Offset
    """One more than the last offset of its valid, ascending batches."""
    next_offset: Offset

    @property
    def cause(self) -> str:
        if self.end_offset == self.next_offset:
            return "invalid bytes follow its last batch"
        return f"offsets {self.end_offset} to {self.next_offset - 1} are missing"


def is_compacted(log: Log) -> bool:
    """Return whether compaction removes offsets from a log, or has removed offsets before."""
    return log.config.compacts or log.parts.first_dirty_offset is not None


def torn_segments(log: Log) -> tuple[TornSegment, ...]:
    """Return the segments that lack offsets, or have bytes after their batches. Raises CorruptionError, OSError.

    A compacted log has no torn segments. Offsets that are missing before the first segment count as a torn segment.
    """
    if is_compacted(log):
        return ()
    state, found, start = log.parts.state, [], true_start(log)
    if start < state.start_offset:
        found.append(TornSegment(state.chain.segments[0].log.path, start, start, state.start_offset))
    for segment, following in pairwise(state.chain.segments):
        stop = following.base_offset
        if stop > state.start_offset and not _ends_at(segment, stop):
            end, position = _end_before(segment, stop)
            if (end, position) != (stop, segment.size):
                found.append(TornSegment(segment.log.path, segment.base_offset, end, stop))
    return tuple(found)


def true_start(log: Log) -> Offset:
    """Return the log start, or the earlier start that leader epochs show if the first segments were lost."""
    earliest, start = log.epochs.earliest, log.parts.state.start_offset
    return start if earliest is None else min(earliest.start_offset, start)


def _ends_at(segment: Segment, stop: Offset) -> bool:
    """Return whether the batch that the index finds before `stop` ends at `stop`, and at the end of the file."""
    try:
        last = segment.find_batch(stop - 1, segment.size)
    except CorruptionError:  # The index is cut short.
        return False
    return last is not None and (last.end_offset, last.end_position) == (stop, segment.size)


def _end_before(segment: Segment, stop: Offset) -> tuple[Offset, int]:
    """Return the end of the leading batches whose offsets ascend below `stop`: an offset and a position."""
    end, position = segment.base_offset, 0
    for window in windows(segment.log, 0, segment.size, window_bytes=SCAN_WINDOW_BYTES):
        good = window.batches.count_ascending(end, stop - 1)
        if good:
            end = window.batches[good - 1].end_offset
            position = window.position + window.batches[good - 1].end_position
        if good < len(window.batches):
            break
    return end, position


def true_epochs(log: Log) -> Entries | None:
    """Return the epochs of a log's batches; None if the log's epochs are the same. Raises CorruptionError, OSError."""
    return None if _fit_at_bounds(log) else _carried(log)


def replace_epochs(log: Log, entries: Entries) -> None:
    """Replace a log's leader epochs, in memory and in its file. Raises OSError."""
    parts = log.parts
    with parts.lock:
        parts.epochs.replace(entries)
        parts.noted_epoch = parts.latest_epoch()
        parts.leader_epoch = max(parts.noted_epoch, 0)
    parts.epochs.flush()


def keep_lost_start(log: Log, other: Log) -> None:
    """Copy epochs that show lost first segments from `other` to `log` if their log starts are equal. Raises OSError."""
    parts, known = log.parts, other.epochs.entries
    with parts.lock:
        start = true_start(log)
        if log.log_start_offset != other.log_start_offset or true_start(other) >= start:
            return
        parts.epochs.replace(reduce(assign, parts.epochs.entries, truncate_from_end(known, start)))
        parts.noted_epoch = parts.latest_epoch()
    parts.epochs.flush()


def _fit_at_bounds(log: Log) -> bool:
    """Return whether the first and last batches, and the batches around each epoch's start, match `log.epochs`."""
    state, entries = log.parts.state, log.epochs.entries
    bounds = [state.start_offset, state.end_offset, *(entry.start_offset for entry in entries)]
    for offset in {one + step for one in bounds for step in (-1, 0)}:
        if state.start_offset <= offset < state.end_offset:
            segment = state.chain.segments[state.chain.floor(Offset(offset))]
            batch = segment.find_batch(offset, state.end.bytes_of(segment))
            if batch is not None and batch.leader_epoch >= 0:
                written = Offset(max(batch.base_offset, state.start_offset))
                if epoch_for_offset(entries, written) != batch.leader_epoch:
                    return False
    return True


def _carried(log: Log) -> Entries | None:
    state, known = log.parts.state, log.epochs.entries
    runs: list[list[int]] = []  # Each item: epoch, first offset, number of batches.
    count = wrong = 0
    for batch in _batches(log):
        epoch, base = batch.leader_epoch, Offset(max(batch.base_offset, state.start_offset))
        if epoch >= 0 and batch.end_offset > state.start_offset:
            count, wrong = count + 1, wrong + (epoch_for_offset(known, base) != epoch)
            if not runs or runs[-1][0] != epoch:
                runs.append([epoch, base, 0])
            runs[-1][2] += 1
    if wrong == 0 or (wrong == 1 and count > 1):
        return None
    found: Entries = ()
    for number, (epoch, first, batches) in enumerate(runs):
        falls = any(later[0] < epoch for later in runs[number + 1 : number + 2])
        if batches == 1 and (falls or (found and found[-1].epoch > epoch)):
            continue
        found = assign(found, EpochEntry(epoch, Offset(first if found else runs[0][1])))
    for entry in known:
        if entry.start_offset >= state.end_offset and (not found or entry.epoch > found[-1].epoch):
            found = assign(found, entry)  # No record was written in this epoch yet.
    return truncate_from_start(found, state.start_offset)


def _batches(log: Log) -> Iterator[BatchHeader]:
    state = log.parts.state
    for segment in state.chain.segments:
        end = state.end.bytes_of(segment)
        for window in windows(segment.log, 0, end, window_bytes=SCAN_WINDOW_BYTES):
            yield from window.batches
