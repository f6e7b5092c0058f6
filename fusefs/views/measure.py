"""The measure of a rendering, which knows where records stand in it: built incrementally, from any thread, once.

A rendering is measured from its first record on. The frontier of its sparse index moves over a run of batches
at a time, so that a caller waits for one such step at most; growth costs only what was added. What is remembered of a
segment in a store is taken over in place of measuring it.

A damaged batch renders to nothing: positions behind it are as if it were not there, and they stay so. It stands in
the index, for a reader may not pass over its place without a word.
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

STEP_BYTES = 2**19
"""Bytes of batches measured in one piece."""
FIRST_STEP_BYTES = 2**15
"""Bytes that are measured first when a size is asked for: mostly a few records were added, or the range is short."""
INLINE_BYTES = 4 * 2**20
"""Bytes of batches, or of their records, that may be measured at once when a size is asked for: some milliseconds' worth."""
INLINE_OFFSETS = 2**16
"""Further behind than this, asking for a size measures nothing."""
LATEST_BYTES = 1024
"""In memory; of a few lines that were measured last the records are kept, in every log whose size was asked for."""

_FIRST = Position(0)


class Source(NamedTuple):
    """The records that are rendered, and their form."""

    partition: Partition
    form: Form
    isolation: Isolation
    cuts: tuple[Offset, ...]
    """The partition's cuts as the reader knows them: it reads on behind a later one only if it has not come so far."""

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
        """Read batches as the form renders them: at least one, where there is one. Raises SegmentDeletedError."""
        fetched = self.fetch(offset, max_bytes, limit)
        return fetched if isinstance(fetched, DecodedFetch) else self.decoded(offset, fetched)

    def fetch(self, offset: Offset, max_bytes: int, limit: Offset | None = None) -> Fetched | DecodedFetch:
        """Read batches as they are. See `decoded_fetch.fetch`.

        Of those below `limit` it returns those in front of the first lost record. Raises SegmentDeletedError, too, if
        there are none.
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
        """Return the batches in front of the first lost record; None if there are none."""
        cut = min(self.partition.cuts[len(self.cuts) :])
        batches = scan(fetched.data) if isinstance(fetched, Fetched) else ()
        kept = [one for one in batches if one.end_offset <= cut]
        if not kept or isinstance(fetched, DecodedFetch):
            return None
        return fetched._replace(data=fetched.data[: kept[-1].end_position], next_offset=kept[-1].end_offset)

    def decoded(self, offset: Offset, fetched: Fetched) -> DecodedFetch:
        """Return the batches fetched from an offset on, decoded for the form."""
        return decoded(
            self.partition, offset, fetched, isolation=self.isolation, decode=decoder_of(self.form)
        )

    def render(self, columns: Columns, start_offset: int, end_offset: int) -> bytes:
        """Return the text of the records with start_offset <= offset < end_offset."""
        place = TopicPartition(self.partition.topic, self.partition.number)
        return self.form.render(columns, place, start_offset, end_offset)

    def measure(self, columns: Columns, start_offset: int, end_offset: int) -> array[int]:
        """Return the number of bytes that `render` makes of each batch."""
        place = TopicPartition(self.partition.topic, self.partition.number)
        return self.form.measure(columns, place, start_offset, end_offset)

    @property
    def remembered_as(self) -> str:
        """The name of this rendering in a view file: other records show to readers of uncommitted ones."""
        shows_all = self.isolation is Isolation.READ_UNCOMMITTED
        return f"{self.form.suffix}+uncommitted" if shows_all else self.form.suffix


class _SegmentProgress:
    """The progress of the frontier in its segment."""

    def __init__(self, base_offset: Offset, end: Entry) -> None:
        self.base_offset = base_offset
        self.start_offset = end.offset
        """Offset at which measuring it began: above the base where the log start is inside."""
        self.end = end
        """The place behind the last batch passed."""
        self.size_bytes = 0
        """Bytes of the log up to the end of the last batch passed."""
        self.last_position = _FIRST
        """Position of the last batch passed."""
        self.worth_remembering = self.damaged = False
        """`worth_remembering`: something was measured, and nothing of it is damaged."""


class Measure:
    """The known positions of one rendering. Safe from any thread.

    `_advancing` is held by who moves the frontier, a step at a time; `_lock` by who touches the index, for
    microseconds: so that finding a known place never waits for the disk.
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
        """Exclusive end of a rendering that ends before the log does."""
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
        """The records measured last, if they are few, and their first offset: a reader of new records reads them next."""

    @property
    def frontier(self) -> Entry:
        """All below is known."""
        return self._index.frontier

    @property
    def start(self) -> Entry:
        """The first entry that can still be read, as far as the log's start was followed."""
        with self._lock:
            return self._index.start

    def end_offset(self) -> Offset:
        """Exclusive end of the rendering as of now."""
        end_offset = self.source.visible_end()
        return end_offset if self.limit is None else min(end_offset, self.limit)

    @property
    def complete(self) -> bool:
        frontier = self._index.frontier.offset
        # What ends before the log does is asked for again and again once it is known.
        return (self.limit is not None and frontier >= self.limit) or frontier >= self.end_offset()

    def covers(self, start_offset: Offset, end_offset: Offset | None) -> bool:
        """Return whether both ends of a range are known; for one without an end, its start and all there is now."""
        frontier = self.frontier.offset
        known_end = self.complete if end_offset is None else end_offset <= frontier
        return known_end and self.start.offset <= start_offset <= frontier

    def knows_damage(self, error: CorruptionError) -> bool:
        """Return whether a batch was found damaged when it was measured, so that positions behind it count without it."""
        return (error.file, error.position) in self._damaged

    def catch_up(self) -> None:
        """Measure what was added since, if that is little and nobody is at it: for those who must not wait.

        Raises SegmentDeletedError where the records at the frontier are gone.
        """
        frontier = self._index.frontier.offset
        if self.limit is not None and frontier >= self.limit:
            return
        end_offset = self.end_offset()
        behind = end_offset - frontier
        if behind <= 0 or behind > INLINE_OFFSETS or not self._advancing.acquire(blocking=False):
            return
        try:
            with Allowance(INLINE_BYTES, inline=True):
                budget, wanted = INLINE_BYTES, FIRST_STEP_BYTES
                while budget > 0 and self._index.frontier.offset < end_offset:
                    budget -= self._step(wanted, end_offset)
                    wanted = min(2 * wanted, STEP_BYTES)
        except ThreadNeededError:
            pass  # It is measured when somebody waits for it.
        finally:
            self._advancing.release()

    def advance(self, *, max_bytes: int | None = None, position: int | None = None) -> bool:
        """Measure on, until all is known, or about `max_bytes` of batches or records were, or a position is (blocking).

        True when all is known. Raises SegmentDeletedError as `catch_up`, and what the request's allowance has it.
        """
        remaining = STEP_BYTES if max_bytes is None else max_bytes
        while remaining > 0 and (position is None or self.frontier.position <= position):
            take_turn(self._advancing)
            try:
                end_offset = self.end_offset()
                if self._index.frontier.offset >= end_offset:
                    break
                taken = self._step(min(remaining, STEP_BYTES), end_offset)
            finally:
                self._advancing.release()
            if max_bytes is not None:
                remaining -= taken
        self._remember_passed()
        return self.complete

    def _step(self, max_bytes: int, end_offset: Offset) -> int:
        """Move the frontier one step on, below `end_offset`; the bytes that took, of batches or of their records, at least 1."""
        offset = self._index.frontier.offset
        # Where a segment is expected of which all may be remembered, a look at its first batch will do.
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
        """Do what the source's `fetch` does, but without the disk for what was measured last."""
        latest = self._latest
        if latest is not None and latest[0] == offset and not self.retired:
            return latest[1]
        return self.source.fetch(offset, max_bytes, limit)

    def pass_rendered(self, begin: Entry, end: Entry) -> None:
        """Move the frontier over what a reader rendered, if it began there: where no segments are, nothing else is kept of them."""
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
        """Keep in mind by which batch the log could be known again; none that is visible in part only."""
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
        """Take over what is remembered of the segment that begins at the frontier."""
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
        """Write down what is known of segments not written down yet, the active one included (blocking)."""
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
                return  # Its first records were removed meanwhile, and their entries with them.
            known = self._index.excerpt(segment.start_offset, segment.end)
        with contextlib.suppress(SegmentDeletedError, OSError, ViewFileError):
            log = self.source.partition.open_segment_file(_log_name(segment.base_offset))
            if self.retired:
                return  # The file may be another one than the one that was measured.
            mark = mark_log(log, segment.size_bytes, segment.last_position)
            store.save(segment.base_offset, self.source.remembered_as, Section(mark, known), log)

    @property
    def retired(self) -> bool:
        """True if segments were rewritten since it began: the places known are no longer where they were."""
        return self.source.partition.rewrites != self._rewrites

    def place_at(self, position: int) -> Entry:
        """The nearest known place at or below a position; measures up to there where that is needed (blocking).

        Raises SegmentDeletedError for a position whose record was removed.
        """
        if position >= self._index.frontier.position:
            self.advance(position=position)
        with self._lock:
            if self.retired or position < self._index.start.position:
                raise SegmentDeletedError(f"{self._name()}: what stood at {position} was removed")
            frontier = self._index.frontier
            return frontier if position >= frontier.position else self._index.at(position)

    def place_after(self, offset: Offset) -> Entry:
        """The first known place at or above an offset."""
        with self._lock:
            return self._index.after(offset)

    def position_of(self, offset: Offset) -> int:
        """Return the view position of the record at `offset`; at most the distance between two entries is rendered.

        The offset lies between the start and the frontier. Raises CorruptionError, SegmentDeletedError.
        """
        with self._lock:
            entry, frontier = self._index.before(offset), self._index.frontier
        if offset >= frontier.offset:
            return frontier.position
        return entry.position + self._rendered_between(entry.offset, offset)

    def follow_start(self, log_start_offset: Offset) -> bool:
        """Forget what was removed at the front. False where nothing is known then.

        The frontier itself is gone, or a remote engine would have to be asked for the records at the new start.

        The records below are gone, so the new start's position is counted back from the next known place.
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
        """Bytes that the records of [start_offset, end_offset) render to."""
        offset, total = start_offset, 0
        while offset < end_offset:
            fetched = self.source.read(offset, STEP_BYTES // 4)
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

    def _name(self) -> str:
        partition, form, *_ = self.source
        return f"{partition.topic}-{partition.number} log{form.suffix}"


def _log_name(base_offset: Offset) -> str:
    return segment_file(base_offset, SegmentFileKind.LOG)
