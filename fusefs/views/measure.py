"""The measure of a rendering: knows at which positions records begin. Threads build it together, step by step.

Measuring starts at the first record. Each step moves the frontier of the sparse index over a run of batches, so that
no caller waits for more than one step. In a growing log, only added records are measured. Segments whose positions
are in a store (view files) are not measured again.

A damaged batch renders to nothing: the positions after it are computed as if it were empty, and never change. The
index has an entry for each damaged batch, because a reader must report it.
"""

from __future__ import annotations

import contextlib
import threading
from array import array
from copy import copy
from pathlib import Path
from typing import NamedTuple

from topicfs.fusefs.allowance import Allowance, take_turn
from topicfs.fusefs.forms import Form, decoder_of
from topicfs.fusefs.views.decoded_fetch import Damage, DecodedFetch, decoded, fetch
from topicfs.fusefs.views.sparse_index import Entry, SparseIndex
from topicfs.fusefs.views.view_file import Section, ViewFileError, ViewStore, mark_log
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.disk.names import SegmentFileKind, segment_file
from topicfs.storage.engine import Partition
from topicfs.storage.errors import CorruptionError, SegmentDeletedError
from topicfs.storage.model import Fetched, Isolation, Offset, Position, TopicPartition
from topicfs.storage.remote import ThreadNeededError

MEASURE_STEP_BYTES = 2**19
"""Bytes of batches that are measured in one piece."""
FIRST_STEP_BYTES = 2**15
"""Bytes measured first when the size is requested. In most cases only a few records were added, or the range is
short.
"""
MEASURE_INLINE_BYTES = 4 * 2**20
"""Limit on the bytes of batches or decoded records measured inline when the size is requested: some milliseconds."""
INLINE_OFFSETS = 2**16
"""With more new offsets than this, asking for the size measures nothing inline."""
LATEST_BYTES = 1024
"""The decoded records that were measured last are kept if they take at most this much memory.

Each log whose size was requested keeps such records.
"""

_FIRST = Position(0)


class Source(NamedTuple):
    """The records that are rendered, and their form."""

    partition: Partition
    form: Form
    isolation: Isolation
    cuts: tuple[Offset, ...]
    """The partition's cuts that the reader knows. A later cut below the offset being read raises an error."""

    def check(self, offset: Offset) -> None:
        """Raise SegmentDeletedError if records below `offset` were lost in an unclean election."""
        cuts = self.partition.cuts
        if cuts is not self.cuts and (cut := min(cuts[len(self.cuts) :])) < offset:
            raise SegmentDeletedError(
                f"{self.partition.topic}-{self.partition.number}: an unclean election lost the records from {cut} on"
            )

    def visible_end(self) -> Offset:
        return self.partition.visible_end(self.isolation)

    def read(self, offset: Offset, max_bytes: int, limit: Offset | None = None) -> DecodedFetch:
        """Read and decode batches for the form: at least one batch, if there is any. Raises SegmentDeletedError."""
        fetched = self.fetch(offset, max_bytes, limit)
        return fetched if isinstance(fetched, DecodedFetch) else self.decoded(offset, fetched)

    def fetch(self, offset: Offset, max_bytes: int, limit: Offset | None = None) -> Fetched | DecodedFetch:
        """Read batches undecoded. See `decoded_fetch.fetch`.

        Returns the batches below `limit` before the first lost record. Raises SegmentDeletedError if there are none.
        """
        fetched = fetch(self.partition, offset, max_bytes=max_bytes, isolation=self.isolation)
        try:
            self.check(fetched.next_offset if limit is None else min(fetched.next_offset, limit))
        except SegmentDeletedError:
            if (kept := self._kept_of(fetched)) is None:
                raise
            return kept
        return fetched

    def _kept_of(self, fetched: Fetched | DecodedFetch) -> Fetched | None:
        """Return the batches before the first lost record; None if there are none."""
        cut = min(self.partition.cuts[len(self.cuts) :])
        batches = scan(fetched.data) if isinstance(fetched, Fetched) else ()
        kept = [one for one in batches if one.end_offset <= cut]
        if not kept or isinstance(fetched, DecodedFetch):
            return None
        return fetched._replace(data=fetched.data[: kept[-1].end_position], next_offset=kept[-1].end_offset)

    def decoded(self, offset: Offset, fetched: Fetched) -> DecodedFetch:
        """Return batches that were fetched from `offset`, decoded for the form."""
        return decoded(
            self.partition, offset, fetched, isolation=self.isolation, decode=decoder_of(self.form)
        )

    def render(self, columns: Columns, start_offset: int, end_offset: int) -> bytes:
        """Return the text of the records with start_offset <= offset < end_offset."""
        place = TopicPartition(self.partition.topic, self.partition.number)
        return self.form.render(columns, place, start_offset, end_offset)

    def measure(self, columns: Columns, start_offset: int, end_offset: int) -> array[int]:
        """Return the number of bytes that each batch renders to."""
        place = TopicPartition(self.partition.topic, self.partition.number)
        return self.form.measure(columns, place, start_offset, end_offset)

    @property
    def remembered_as(self) -> str:
        """The name of this rendering in a view file; has a suffix if uncommitted records are also shown."""
        shows_all = self.isolation is Isolation.READ_UNCOMMITTED
        return f"{self.form.suffix}+uncommitted" if shows_all else self.form.suffix


class _SegmentProgress:
    """How far the frontier has advanced in its segment."""

    def __init__(self, base_offset: Offset, end: Entry) -> None:
        self.base_offset = base_offset
        self.start_offset = end.offset
        """Offset at which measuring of the segment began; not the base offset if the log starts inside it."""
        self.end = end
        """The place after the last measured batch."""
        self.size_bytes = 0
        """Size of the log up to the end of the last measured batch."""
        self.last_position = _FIRST
        """Position of the last measured batch."""
        self.worth_remembering = self.damaged = False
        """`worth_remembering`: records were measured, and none of them is damaged. `damaged`: a batch is damaged."""


class Measure:
    """The known positions of one rendering. Thread-safe.

    A thread holds `_advancing` while it moves the frontier one step, and `_lock` only for the microseconds in which
    it uses the index. So looking up a known place never waits for the disk.
    """

    def __init__(
        self,
        source: Source,
        start_offset: Offset,
        *,
        limit: Offset | None = None,
        store: ViewStore | None = None,
    ) -> None:
        self.source = source
        self.limit = limit
        """Exclusive end offset, if the rendering ends before the log ends; otherwise None."""
        self._index = SparseIndex(start_offset)
        self._store = store
        self._lock = threading.Lock()
        self._advancing = threading.Lock()
        self._segment: _SegmentProgress | None = None
        self._passed: list[_SegmentProgress] = []
        self._expects_segment = store is not None
        self._damaged: set[tuple[Path, int]] = set()
        self._rewrites = source.partition.rewrites
        self._latest: tuple[Offset, DecodedFetch] | None = None
        """Offset and result of the last fetch measured, kept if small: readers of new records read the same batches
        next.
        """

    @property
    def frontier(self) -> Entry:
        """The end of the known positions."""
        return self._index.frontier

    @property
    def start(self) -> Entry:
        """The first entry that can still be read, according to the last known log start."""
        with self._lock:
            return self._index.start

    def end_offset(self) -> Offset:
        """Return the current exclusive end offset of the rendering."""
        end_offset = self.source.visible_end()
        return end_offset if self.limit is None else min(end_offset, self.limit)

    @property
    def complete(self) -> bool:
        frontier = self._index.frontier.offset
        # For a finished range, do not compute `end_offset()`, because this property is read often.
        return (self.limit is not None and frontier >= self.limit) or frontier >= self.end_offset()

    def covers(self, start_offset: Offset, end_offset: Offset | None) -> bool:
        """Return whether both ends of a range are known. If the range is open, the current end must be known."""
        frontier = self.frontier.offset
        known_end = self.complete if end_offset is None else end_offset <= frontier
        return known_end and self.start.offset <= start_offset <= frontier

    def knows_damage(self, error: CorruptionError) -> bool:
        """Return whether the damage was found while measuring; if so, the positions after it are correct."""
        return (error.file, error.position) in self._damaged

    def catch_up(self) -> None:
        """Measure a few new records, unless another thread is measuring. Never waits. Raises SegmentDeletedError."""
        frontier = self._index.frontier.offset
        if self.limit is not None and frontier >= self.limit:
            return
        end_offset = self.end_offset()
        behind = end_offset - frontier
        if behind <= 0 or behind > INLINE_OFFSETS or not self._advancing.acquire(blocking=False):
            return
        try:
            with Allowance(MEASURE_INLINE_BYTES, inline=True):
                budget, wanted = MEASURE_INLINE_BYTES, FIRST_STEP_BYTES
                while budget > 0 and self._index.frontier.offset < end_offset:
                    budget -= self._step(wanted, end_offset)
                    wanted = min(2 * wanted, MEASURE_STEP_BYTES)
        except ThreadNeededError:
            pass  # A caller that may wait measures these records later.
        finally:
            self._advancing.release()

    def advance(self, *, max_bytes: int | None = None, position: int | None = None) -> bool:
        """Measure (blocking) all records, or about `max_bytes` of batches or records, or up to `position`.

        Return True if all positions are known. Raises SegmentDeletedError, and the errors of the request's allowance.
        """
        remaining = MEASURE_STEP_BYTES if max_bytes is None else max_bytes
        while remaining > 0 and (position is None or self.frontier.position <= position):
            take_turn(self._advancing)
            try:
                end_offset = self.end_offset()
                if self._index.frontier.offset >= end_offset:
                    break
                taken = self._step(min(remaining, MEASURE_STEP_BYTES), end_offset)
            finally:
                self._advancing.release()
            if max_bytes is not None:
                remaining -= taken
        self._remember_passed()
        return self.complete

    def _step(self, max_bytes: int, end_offset: Offset) -> int:
        """Move the frontier one step, up to `end_offset`; return the measured bytes of batches or records (≥ 1)."""
        offset = self._index.frontier.offset
        # If the positions of this segment were probably saved, read only the first batch. It suffices to
        # recognize the segment.
        wanted = 1 if self._expects_segment else max_bytes
        fetched = self.source.read(offset, wanted, self.limit)
        sound = len(fetched.pieces) == 1 and isinstance(fetched.pieces[0], Columns)
        self._latest = (offset, fetched) if sound and fetched.decoded_bytes <= LATEST_BYTES else None
        if not fetched.pieces:
            with self._lock:
                self._index.skip(end_offset)
            return 1
        if self._segment is None or self._segment.base_offset != fetched.segment_base_offset:
            self._begin_segment(fetched.segment_base_offset)
            if self._recall():
                return 1
        self._expects_segment = False
        for piece in fetched.below(end_offset):
            if isinstance(piece, Damage):
                self._pass_damage(piece)
            else:
                self._pass_columns(piece, fetched, end_offset)
        with self._lock:
            self._index.skip(min(fetched.next_offset, end_offset))
        return max(fetched.size_bytes, fetched.decoded_bytes, 1)

    def fetch(self, offset: Offset, max_bytes: int, limit: Offset | None = None) -> Fetched | DecodedFetch:
        """Do the same as `Source.fetch`, but return the batches measured last from memory."""
        latest = self._latest
        if latest is not None and latest[0] == offset and not self.retired:
            return latest[1]
        return self.source.fetch(offset, max_bytes, limit)

    def pass_rendered(self, begin: Entry, end: Entry) -> None:
        """Advance the frontier from `begin` to `end` after a reader rendered the text between them.

        Does nothing for partitions with files.
        """
        if self.source.partition.directory is not None or not self._advancing.acquire(blocking=False):
            return
        try:
            with self._lock:
                if self._index.frontier == begin:
                    self._index.pass_rendered(end)
        finally:
            self._advancing.release()

    def _pass_columns(self, columns: Columns, fetched: DecodedFetch, end_offset: Offset) -> None:
        sizes = self.source.measure(columns, self._index.frontier.offset, end_offset)
        batches = columns.batches
        last = batches[-1]
        with self._lock:
            self._index.extend(
                sizes,
                batches.column("position"),
                batches.column("base_offset"),
                end_position=last.end_position,
                next_offset=min(last.end_offset, end_offset),
                decoded_bytes=columns.size_bytes,
            )
        if self._store is not None:
            self._pass_batch(last, fetched, end_offset)

    def _pass_batch(self, last: BatchHeader, fetched: DecodedFetch, end_offset: Offset) -> None:
        """Save the mark by which the log can be recognized later, unless only a part of the batch `last` is visible."""
        segment = self._segment
        if segment is not None and last.end_offset <= end_offset:
            segment.end = self._index.frontier
            segment.last_position = Position(fetched.position + last.position)
            segment.size_bytes = segment.last_position + last.size_bytes
            segment.worth_remembering = not segment.damaged

    def _pass_damage(self, damage: Damage) -> None:
        self._damaged.add((damage.error.file, damage.error.position))
        if self._segment is not None:
            self._segment.damaged, self._segment.worth_remembering = True, False

    def _begin_segment(self, base_offset: Offset) -> None:
        with self._lock:
            self._index.begin_segment(base_offset)
        if self._segment is not None and self._segment.worth_remembering:
            self._passed.append(self._segment)
        frontier = self._index.frontier
        self._segment = _SegmentProgress(base_offset, frontier)

    def _recall(self) -> bool:
        """Load the saved positions of the segment at the frontier; return whether there are any."""
        segment = self._segment
        if self._store is None or segment is None:
            return False
        try:
            log = self.source.partition.open_segment_file(_log_name(segment.base_offset))
            known = self._store.load(segment.base_offset, self.source.remembered_as, log)
        except (SegmentDeletedError, OSError):
            return False
        if known is None or known.offsets[0] != segment.start_offset or known.end_offset > self.end_offset():
            return False
        with self._lock:
            self._index.append(known)
        segment.end = self._index.frontier
        self._expects_segment = True
        return True

    def remember(self) -> None:
        """Save the known positions of segments, including the active one, that were not saved yet (blocking)."""
        with self._advancing:
            if self._segment is not None and self._segment.worth_remembering:
                self._passed.append(copy(self._segment))
                self._segment.worth_remembering = False
        self._remember_passed()

    def _remember_passed(self) -> None:
        while self._store is not None and self._passed:
            self._remember_segment(self._passed.pop(), self._store)

    def _remember_segment(self, segment: _SegmentProgress, store: ViewStore) -> None:
        with self._lock:
            if segment.start_offset < self._index.start.offset:
                return  # The first records of the segment were removed since, and so were their entries.
            known = self._index.excerpt(segment.start_offset, segment.end)
        with contextlib.suppress(SegmentDeletedError, OSError, ViewFileError):
            log = self.source.partition.open_segment_file(_log_name(segment.base_offset))
            if self.retired:
                return  # The file may have been replaced since it was measured.
            mark = mark_log(log, segment.size_bytes, segment.last_position)
            store.save(segment.base_offset, self.source.remembered_as, Section(mark, known), log)

    @property
    def retired(self) -> bool:
        """True if segments were rewritten since measuring began, so that the known positions no longer apply."""
        return self.source.partition.rewrites != self._rewrites

    def place_at(self, position: int) -> Entry:
        """Return the nearest place at or below `position` (blocking if it must measure). Raises SegmentDeletedError."""
        if position >= self._index.frontier.position:
            self.advance(position=position)
        with self._lock:
            if self.retired or position < self._index.start.position:
                partition, form, *_ = self.source
                name = f"{partition.topic}-{partition.number} log{form.suffix}"
                raise SegmentDeletedError(f"{name}: the records at position {position} were removed")
            frontier = self._index.frontier
            return frontier if position >= frontier.position else self._index.at(position)

    def place_after(self, offset: Offset) -> Entry:
        """Return the first known place at or above an offset."""
        with self._lock:
            return self._index.after(offset)

    def position_of(self, offset: Offset) -> int:
        """Return the view position of the record at `offset`; renders at most the records between two index entries.

        The offset must lie between the start and the frontier. Raises CorruptionError, SegmentDeletedError.
        """
        with self._lock:
            entry, frontier = self._index.before(offset), self._index.frontier
        if offset >= frontier.offset:
            return frontier.position
        return entry.position + self._rendered_between(entry.offset, offset)

    def follow_start(self, log_start_offset: Offset) -> bool:
        """Remove index entries below the log start. Return False if the position of the new start cannot be computed.

        The removed records cannot be rendered. So the position of the new start is computed backward from the next
        known place. This is impossible if the frontier was removed too, or if a remote engine must be asked for
        records.
        """
        with self._lock:
            start, after, frontier = (
                self._index.start,
                self._index.after(log_start_offset),
                self._index.frontier,
            )
        if log_start_offset <= start.offset:
            return True
        at_hand = self.source.partition.available_end(log_start_offset)
        if log_start_offset > frontier.offset or at_hand < after.offset:
            return False
        position = after.position - self._rendered_between(log_start_offset, after.offset)
        with self._lock:
            self._index.trim(Entry(position, log_start_offset))
        return True

    def _rendered_between(self, start_offset: Offset, end_offset: Offset) -> int:
        """Return how many bytes the records of [start_offset, end_offset) render to."""
        offset, total = start_offset, 0
        while offset < end_offset:
            fetched = self.source.read(offset, MEASURE_STEP_BYTES // 4)
            for piece in fetched.below(end_offset):
                if isinstance(piece, Damage):
                    if not self.knows_damage(piece.error):
                        raise piece.error
                    continue
                total += sum(self.source.measure(piece, start_offset, end_offset))
            if not fetched.pieces:
                break
            offset = fetched.next_offset
        return total


def _log_name(base_offset: Offset) -> str:
    return segment_file(base_offset, SegmentFileKind.LOG)
