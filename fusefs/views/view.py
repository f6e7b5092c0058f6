"""A view: the records of a range of offsets as the bytes of one file.

    measure's positions   ······origin··················end······frontier
    view positions              0                       size

Several views share one measure: the whole partition as it is now, the same as it was before data was removed at the
front, and ranges of it. Each counts its positions from its own first record, and they never shift.
"""

from __future__ import annotations

import contextlib
import threading
from typing import NamedTuple

from topicfs.fusefs.allowance import Allowance, RequestTooLargeError
from topicfs.fusefs.forms import BATCH, DECODED_SUFFIXES, Form
from topicfs.fusefs.views.decoded_fetch import DecodedFetch
from topicfs.fusefs.views.measure import INLINE_BYTES, STEP_BYTES, Measure, Source
from topicfs.fusefs.views.sparse_index import Entry
from topicfs.fusefs.views.view_file import ViewStore
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.engine import Partition
from topicfs.storage.errors import (
    CorruptBatchError,
    CorruptionError,
    OffsetOutOfRangeError,
    SegmentDeletedError,
)
from topicfs.storage.model import Fetched, Isolation, Offset
from topicfs.storage.remote import ThreadNeededError


class _Frame(NamedTuple):
    """The place of a view in a measure."""

    measure: Measure
    origin: int
    """Position in the measure of the view's first byte."""
    end: int | None
    """Position in the measure behind its last byte; None: the measure ends where the view does."""


class View:
    """A rendering of a range of offsets as file bytes. Safe from any thread."""

    def __init__(
        self,
        measure: Measure,
        *,
        start_offset: Offset,
        end_offset: Offset | None,
        whole: Measure | None = None,
    ) -> None:
        """Lay a view over a measure that covers it, or that begins with it.

        `whole` is the measure of the whole partition, which takes over once it covers the view.
        """
        self.start_offset = start_offset
        self.limit = end_offset
        """Exclusive end; None: the view grows with the log."""
        self._whole = whole
        self._frame = self._frame_in(measure)

    @property
    def source(self) -> Source:
        return self._frame.measure.source

    @property
    def outdated(self) -> bool:
        """True if segments were rewritten (compaction): who is just reading reads on, nobody goes elsewhere."""
        return self._frame.measure.retired

    @property
    def open_ended(self) -> bool:
        return self.limit is None

    @property
    def size(self) -> int:
        """Rendered bytes as far as known; exact when `measured`.

        What was added lately is measured on the spot if it is little: microseconds after an append, milliseconds
        at most. Never raises for records that are gone or damaged.
        """
        measure, origin, end = self._current_frame()
        if end is None:
            end = measure.frontier.position
        return end - origin

    @property
    def measured(self) -> bool:
        """True if `size` is exact as of now."""
        measure, _, end = self._current_frame()
        return end is not None or measure.complete

    def measure(self, *, max_bytes: int | None = None) -> bool:
        """Measure on, about `max_bytes` of batches if given (blocking); True when `size` is exact.

        Several threads may call it at once: they share the work. Raises SegmentDeletedError when records that were
        not measured yet were removed: a new view can be measured then.
        """
        self._take_over()
        measure, _, end = self._frame
        if max_bytes is not None and self.source.form.suffix in DECODED_SUFFIXES:
            # Decoding takes long, and who waits may not wait for all of it.
            max_bytes = min(max_bytes, STEP_BYTES)
        return end is not None or measure.advance(max_bytes=max_bytes)

    def end_offset(self) -> Offset:
        """Exclusive end of what a reader may be shown now."""
        visible_end = self.source.visible_end()
        return visible_end if self.limit is None else min(visible_end, self.limit)

    def fetch(self, offset: Offset, max_bytes: int) -> Fetched | DecodedFetch:
        return self._frame.measure.fetch(offset, max_bytes, self.limit)

    def pass_rendered(self, begin: Entry, end: Entry) -> None:
        """Take note of what a reader rendered, from one place to another: where that is all there is to know a size by."""
        measure, origin, known_end = self._frame
        if known_end is None:
            measure.pass_rendered(
                Entry(begin.position + origin, begin.offset), Entry(end.position + origin, end.offset)
            )

    def front(self) -> Entry:
        """The first byte that can still be read, and its record: the view's first, until data is removed.

        It stays the view's first when records were removed before they were measured: nobody knows better then.
        """
        measure, origin, end = self._frame
        first = Entry(0, self.start_offset)
        log_start_offset = self.source.partition.log_start_offset
        if log_start_offset <= self.start_offset:
            return first
        if self.limit is not None and log_start_offset >= self.limit:
            known = end is not None or measure.complete
            return Entry(self.size, self.limit) if known else first
        if not measure.follow_start(log_start_offset):
            return first
        start = measure.start
        return Entry(start.position - origin, start.offset)

    def place_at(self, position: int) -> Entry:
        """The nearest known place at or below a view position (blocking where the view is not measured).

        Raises SegmentDeletedError for removed bytes.
        """
        measure, origin, end = self._frame
        if end is not None and self.limit is not None and position + origin >= end:
            return Entry(end - origin, self.limit)
        position, offset = measure.place_at(position + origin)
        if position < origin or offset < self.start_offset:
            return Entry(0, self.start_offset)
        return Entry(position - origin, offset)

    def place_after_damage(self, offset: Offset, error: CorruptionError) -> Entry | None:
        """Return the entry from which positions are certain again behind a damaged batch; None if they are not in doubt.

        They are in doubt when the batch was whole as it was measured: how many bytes it had is not known now.
        """
        measure, origin, _ = self._frame
        if offset >= measure.frontier.offset or measure.knows_damage(error):
            return None
        position, next_offset = measure.place_after(Offset(offset + 1))
        return Entry(position - origin, next_offset)

    def _current_frame(self) -> _Frame:
        """Bring the view up to date as far as that takes no time, and see which measure is the better one."""
        measure, _, end = self._frame
        if end is not None:
            return self._frame
        try:  # noqa: SIM105 - this is asked again and again
            measure.catch_up()
        except (SegmentDeletedError, CorruptionError):
            pass  # What is gone, or damaged since it was measured, is reported to those who read it.
        if self._whole is not None and not measure.complete:
            try:
                with Allowance(INLINE_BYTES, inline=True):
                    self._take_over()
            except ThreadNeededError:
                pass  # `measure` does it.
        return self._frame

    def _take_over(self) -> None:
        """Lay the view over the measure of the whole partition, once that covers it and this one's is not complete.

        Finding the view's ends there may need records in front of the view, which may be gone or damaged by now;
        then the view keeps its own measure.
        """
        whole = self._whole
        if whole is None or self._frame.measure.complete or not whole.covers(self.start_offset, self.limit):
            return
        with contextlib.suppress(SegmentDeletedError, CorruptionError, RequestTooLargeError):
            self._frame = self._frame_in(whole)
        self._whole = None

    def _frame_in(self, measure: Measure) -> _Frame:
        origin = measure.position_of(self.start_offset)
        if self.limit is None or measure.limit is not None:
            return _Frame(measure, origin, None)
        return _Frame(measure, origin, measure.position_of(self.limit))


DIRECT_OFFSETS = 4096
"""A range of at most so many offsets is measured by itself: that is no more work than finding its ends in the whole."""


class PartitionViews:
    """The views of a partition. Safe from any thread.

    Nothing here waits, but for `remember`: views measure when they are asked to.
    """

    def __init__(
        self,
        partition: Partition,
        *,
        store: ViewStore | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> None:
        self.partition = partition
        self.isolation = isolation
        self._store = store
        self._lock = threading.Lock()
        self._wholes: dict[str, View] = {}
        self._measures: dict[str, Measure] = {}
        self._log_start_offset: Offset | None = None
        self._rewrites = partition.rewrites

    def whole(self, form: Form) -> View:
        """Give the view of everything visible, as `log` shows it: the same one until data is removed at the front.

        Then a new one, whose first byte is that of the first record that is left.
        """
        with self._lock:
            start_offset = self._follow_start()
            view = self._wholes.get(form.suffix)
            if view is None or view.start_offset != start_offset or view.source.form is not form:
                measure = self._measure_from(form, start_offset)
                view = View(measure, start_offset=start_offset, end_offset=None)
                self._wholes[form.suffix] = view
            return view

    def range(self, form: Form, start_offset: Offset, end_offset: Offset | None) -> View:
        """Give a view of [start_offset, end_offset), clipped at the log start; without an end it grows.

        Of what the whole view knows already nothing is measured again. Where a form shows whole batches alone, the view
        begins and ends between two of them.
        """
        if form is BATCH:
            start_offset, end_offset = self._whole_batches(start_offset, end_offset)
        with self._lock:
            start_offset = max(start_offset, self._follow_start())
            end_offset = None if end_offset is None else max(start_offset, end_offset)
            whole = self._measures.get(form.suffix)
            if whole is not None and whole.source.form is not form:
                whole = None
        short = end_offset is not None and end_offset - start_offset <= DIRECT_OFFSETS
        if whole is not None and not short and whole.covers(start_offset, end_offset):
            try:
                return View(whole, start_offset=start_offset, end_offset=end_offset)
            except (CorruptionError, SegmentDeletedError, RequestTooLargeError):
                pass  # Its ends cannot be found by the whole; by itself it may still be read in part.
        measure = Measure(
            Source(self.partition, form, self.isolation, self.partition.cuts),
            start_offset,
            limit=end_offset,
            store=self._store_of(form) if end_offset is None else None,
        )
        return View(measure, start_offset=start_offset, end_offset=end_offset, whole=whole)

    def _whole_batches(self, start_offset: Offset, end_offset: Offset | None) -> tuple[Offset, Offset | None]:
        """Give the bounds of the batches wholly inside (one batch is read at either end)."""
        first = self._batch_around(max(start_offset, self.partition.log_start_offset))
        start_offset = start_offset if first is None else first.end_offset
        if end_offset is None:
            return start_offset, None
        last = self._batch_around(end_offset)
        return start_offset, max(start_offset, end_offset if last is None else last.base_offset)

    def _batch_around(self, offset: Offset) -> BatchHeader | None:
        """Find the batch that an offset divides; None where it does not, or where that cannot be told."""
        try:
            fetched = self.partition.read(offset, max_bytes=1, isolation=self.isolation)
            header = read_header(fetched.data) if fetched.data else None
        except (CorruptionError, CorruptBatchError, OffsetOutOfRangeError):
            return None
        return header if header is not None and header.base_offset < offset else None

    def remember(self) -> None:
        """Write down what is known of every segment, and remove what was known of segments that are gone (blocking).

        Sealed segments are written down as measuring passes them; at a close this keeps the active one too.
        """
        with self._lock:
            measures = list(self._measures.values())
        for measure in measures:
            measure.remember()
        self._remove_stale()

    def _follow_start(self) -> Offset:
        """Return the log's start. After a compaction the views begin again, and count positions afresh."""
        rewrites = self.partition.rewrites
        if rewrites != self._rewrites:
            self._rewrites = rewrites
            self._wholes.clear()
            self._measures.clear()
            self._remove_stale()
        log_start_offset = self.partition.log_start_offset
        if log_start_offset != self._log_start_offset:
            self._log_start_offset = log_start_offset
            self._remove_stale()
        return log_start_offset

    def _remove_stale(self) -> None:
        """Segments went, or may have gone while nobody looked: what was remembered of them goes too."""
        if self._store is not None:
            self._store.remove_stale({segment.base_offset for segment in self.partition.segments() or ()})

    def _measure_from(self, form: Form, start_offset: Offset) -> Measure:
        """Keep what is known of the form's rendering if it reaches the log start; else begin there."""
        measure = self._measures.get(form.suffix)
        if measure is not None and measure.source.form is not form:
            measure = None
        try:
            if measure is not None and measure.follow_start(start_offset):
                return measure
        except (CorruptionError, SegmentDeletedError, RequestTooLargeError):
            pass  # The new start cannot be placed in what was known.
        source = Source(self.partition, form, self.isolation, self.partition.cuts)
        measure = Measure(source, start_offset, store=self._store_of(form))
        self._measures[form.suffix] = measure
        return measure

    def _store_of(self, form: Form) -> ViewStore | None:
        """Return where positions are remembered; None for a form that may show the same records otherwise another time."""
        return None if form.suffix in DECODED_SUFFIXES else self._store
