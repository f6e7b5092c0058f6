"""A view: the records of a range of offsets as the bytes of one file.

    measure's positions   ······origin··················end······frontier
    view positions              0                       size

Several views share one measure: the whole partition, the whole partition before records were removed at the front,
and ranges of the partition. Each view counts positions from its own first record, so they never shift.
"""

import contextlib
import threading
from typing import NamedTuple

from topicfs.fusefs.allowance import Allowance, RequestTooLargeError
from topicfs.fusefs.forms import BATCH, DECODED_SUFFIXES, Form
from topicfs.fusefs.views.decoded_fetch import DecodedFetch
from topicfs.fusefs.views.measure import MEASURE_INLINE_BYTES, MEASURE_STEP_BYTES, Measure, Source
from topicfs.fusefs.views.sparse_index import Entry
from topicfs.fusefs.views.view_file import ViewStore
from topicfs.storage import errors
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.engine import Partition
from topicfs.storage.model import Fetched, Isolation, Offset
from topicfs.storage.remote import ThreadNeededError


class _Frame(NamedTuple):
    """Where a view lies in a measure."""

    measure: Measure
    origin: int
    """Where the view's first byte is, as a position in `measure`."""
    end: int | None
    """Where the view ends, as a position in `measure`; None: the view ends where the measure ends."""


class View:
    """A rendering of a range of offsets as file bytes. Thread-safe."""

    def __init__(
        self,
        measure: Measure,
        *,
        start_offset: Offset,
        end_offset: Offset | None,
        whole: Measure | None = None,
    ) -> None:
        """Create a view over `measure`; `whole`, the whole partition's measure, takes over once it covers the view."""
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
        """True if segments were rewritten (compaction). Sequential reads may go on, but positions are unknown."""
        return self._frame.measure.retired

    @property
    def open_ended(self) -> bool:
        return self.limit is None

    @property
    def size(self) -> int:
        """Known size of the text; exact if `measured`.

        Measures recent appends immediately if they are small, which takes microseconds after an append, milliseconds
        at most. Never raises an error for records that were removed or damaged.
        """
        measure, origin, end = self._current_frame()
        if end is None:
            end = measure.frontier.position
        return end - origin

    @property
    def measured(self) -> bool:
        """True if `size` is exact."""
        measure, _, end = self._current_frame()
        return end is not None or measure.complete

    def measure(self, *, max_bytes: int | None = None) -> bool:
        """Measure about `max_bytes` of batches, or all (blocking); return whether `size` is now exact.

        Threads that call this method at the same time share the work. Raises SegmentDeletedError if unmeasured
        records were removed; the caller must then create a new view.
        """
        self._take_over()
        measure, _, end = self._frame
        if max_bytes is not None and self.source.form.suffix in DECODED_SUFFIXES:
            # Decoding is slow: do not let other threads wait until everything is decoded.
            max_bytes = min(max_bytes, MEASURE_STEP_BYTES)
        return end is not None or measure.advance(max_bytes=max_bytes)

    def end_offset(self) -> Offset:
        """Return the current exclusive end offset of what a reader may see."""
        visible_end = self.source.visible_end()
        return visible_end if self.limit is None else min(visible_end, self.limit)

    def fetch(self, offset: Offset, max_bytes: int) -> Fetched | DecodedFetch:
        return self._frame.measure.fetch(offset, max_bytes, self.limit)

    def pass_rendered(self, begin: Entry, end: Entry) -> None:
        """Learn the view's size from text that a reader has rendered. Only for partitions without files."""
        measure, origin, known_end = self._frame
        if known_end is None:
            measure.pass_rendered(
                Entry(begin.position + origin, begin.offset), Entry(end.position + origin, end.offset)
            )

    def front(self) -> Entry:
        """Return the first byte that can still be read, and its record: the view's first byte until data is removed.

        If records were removed before they were measured, this is still the view's first byte, because the new
        position is unknown.
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
        """Return the nearest place at or below a position (blocking to measure). Raises SegmentDeletedError."""
        measure, origin, end = self._frame
        if end is not None and self.limit is not None and position + origin >= end:
            return Entry(end - origin, self.limit)
        position, offset = measure.place_at(position + origin)
        if position < origin or offset < self.start_offset:
            return Entry(0, self.start_offset)
        return Entry(position - origin, offset)

    def place_after_damage(self, offset: Offset, error: errors.CorruptionError) -> Entry | None:
        """Return the entry after a damaged batch from which positions are correct; None if all positions are correct.

        If the batch was intact when it was measured, the size of its text is now unknown, and positions are
        uncertain.
        """
        measure, origin, _ = self._frame
        if offset >= measure.frontier.offset or measure.knows_damage(error):
            return None
        position, next_offset = measure.place_after(Offset(offset + 1))
        return Entry(position - origin, next_offset)

    def _current_frame(self) -> _Frame:
        """Measure new records and switch to the whole partition's measure if both are quick; return the frame."""
        measure, _, end = self._frame
        if end is not None:
            return self._frame
        try:  # noqa: SIM105 - this is asked again and again
            measure.catch_up()
        except (errors.SegmentDeletedError, errors.CorruptionError):
            pass  # Reading reports removed or newly damaged records.
        if self._whole is not None and not measure.complete:
            try:
                with Allowance(MEASURE_INLINE_BYTES, inline=True):
                    self._take_over()
            except ThreadNeededError:
                pass  # `measure` switches later.
        return self._frame

    def _take_over(self) -> None:
        """Switch to the measure of the whole partition, if it covers the view and the view's own measure is incomplete.

        To find the view's ends in the whole measure, records before the view may have to be rendered. If these
        records were removed or damaged, the view keeps its own measure.
        """
        whole = self._whole
        if whole is None or self._frame.measure.complete or not whole.covers(self.start_offset, self.limit):
            return
        with contextlib.suppress(errors.SegmentDeletedError, errors.CorruptionError, RequestTooLargeError):
            self._frame = self._frame_in(whole)
        self._whole = None

    def _frame_in(self, measure: Measure) -> _Frame:
        origin = measure.position_of(self.start_offset)
        if self.limit is None or measure.limit is not None:
            return _Frame(measure, origin, None)
        return _Frame(measure, origin, measure.position_of(self.limit))


DIRECT_OFFSETS = 4096
"""A range of at most this many offsets gets its own measure, because finding its ends in the whole measure costs as
much as measuring the range.
"""


class PartitionViews:
    """The views of a partition. Thread-safe. Only `remember` blocks, because views are measured on request."""

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
        """Return the view of all visible records, as `log` shows it: the same view until data is removed at the front.

        After a removal, returns a new view, which begins with the first remaining record.
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
        """Return a view of [start_offset, end_offset), clipped at the log start; without `end_offset`, the view grows.

        Parts that the whole view has measured are not measured again. If the form shows only whole batches, the view
        is narrowed to whole batches.
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
            except (errors.CorruptionError, errors.SegmentDeletedError, RequestTooLargeError):
                pass  # The whole measure cannot find the ends of the range. With its own measure, a part may be readable.
        measure = Measure(
            Source(self.partition, form, self.isolation, self.partition.cuts),
            start_offset,
            limit=end_offset,
            store=self._store_of(form) if end_offset is None else None,
        )
        return View(measure, start_offset=start_offset, end_offset=end_offset, whole=whole)

    def _whole_batches(self, start_offset: Offset, end_offset: Offset | None) -> tuple[Offset, Offset | None]:
        """Return the bounds of the batches wholly inside the range (reads one batch at each end)."""
        first = self._batch_around(max(start_offset, self.partition.log_start_offset))
        start_offset = start_offset if first is None else first.end_offset
        if end_offset is None:
            return start_offset, None
        last = self._batch_around(end_offset)
        return start_offset, max(start_offset, end_offset if last is None else last.base_offset)

    def _batch_around(self, offset: Offset) -> BatchHeader | None:
        """Return the batch that contains `offset` and begins below it; None if no batch does, or it is unknown."""
        try:
            fetched = self.partition.read(offset, max_bytes=1, isolation=self.isolation)
            header = read_header(fetched.data) if fetched.data else None
        except (errors.CorruptionError, errors.CorruptBatchError, errors.OffsetOutOfRangeError):
            return None
        return header if header is not None and header.base_offset < offset else None

    def remember(self) -> None:
        """Save all segments' positions, even of the active one (blocking); remove deleted segments' files."""
        with self._lock:
            measures = list(self._measures.values())
        for measure in measures:
            measure.remember()
        self._remove_stale()

    def _follow_start(self) -> Offset:
        """Return the log's start. If segments were compacted since the last call, first drop all measures."""
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
        """Remove the view files of segments that were, or may have been, deleted."""
        if self._store is not None:
            self._store.remove_stale({segment.base_offset for segment in self.partition.segments() or ()})

    def _measure_from(self, form: Form, start_offset: Offset) -> Measure:
        """Return the form's measure if it can follow the log start; otherwise a new measure from `start_offset` on."""
        measure = self._measures.get(form.suffix)
        if measure is not None and measure.source.form is not form:
            measure = None
        try:
            if measure is not None and measure.follow_start(start_offset):
                return measure
        except (errors.CorruptionError, errors.SegmentDeletedError, RequestTooLargeError):
            pass  # The position of the new start cannot be computed.
        source = Source(self.partition, form, self.isolation, self.partition.cuts)
        measure = Measure(source, start_offset, store=self._store_of(form))
        self._measures[form.suffix] = measure
        return measure

    def _store_of(self, form: Form) -> ViewStore | None:
        """Return where positions are saved; None if the form may render the same records differently later."""
        return None if form.suffix in DECODED_SUFFIXES else self._store
