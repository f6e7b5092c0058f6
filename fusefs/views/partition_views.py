"""The views of one partition: each form's whole rendering as it is now, and ranges of it."""

from __future__ import annotations

import threading

from fusefs.forms import BATCH, Form
from fusefs.views.allowance import RequestTooLargeError
from fusefs.views.measuring import Measure, Source
from fusefs.views.store import ViewStore
from fusefs.views.view import View
from storage.codec.batch import read_header
from storage.codec.headers import BatchHeader
from storage.engine import Partition
from storage.errors import CorruptBatchError, CorruptionError, OffsetOutOfRangeError, SegmentDeletedError
from storage.model import Isolation, Offset

DIRECT_OFFSETS = 4096
"""A range of at most so many offsets is measured by itself: that is no more work than finding its ends in the whole."""


class PartitionViews:
    """Hands out views. Safe from any thread.

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
        self._generation = 0
        self._log_start_offset: Offset | None = None
        self._rewrites = partition.rewrites

    def whole(self, form: Form) -> View:
        """Give the view of everything visible, as `log` shows it: the same one until data is removed at the front.

        Then a new one of the next generation, whose first byte is that of the first record that is left.
        """
        with self._lock:
            start_offset = self._follow_start()
            view = self._wholes.get(form.suffix)
            if view is None or view.start_offset != start_offset:
                measure = self._measure_from(form, start_offset)
                view = View(measure, generation=self._generation, start_offset=start_offset, end_offset=None)
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
            generation = self._generation
        short = end_offset is not None and end_offset - start_offset <= DIRECT_OFFSETS
        if whole is not None and not short and whole.covers(start_offset, end_offset):
            try:
                return View(whole, generation=generation, start_offset=start_offset, end_offset=end_offset)
            except (CorruptionError, SegmentDeletedError, RequestTooLargeError):
                pass  # Its ends cannot be found by the whole; by itself it may still be read in part.
        measure = Measure(
            Source(self.partition, form, self.isolation),
            start_offset,
            limit=end_offset,
            store=self._store if end_offset is None else None,
        )
        return View(
            measure, generation=generation, start_offset=start_offset, end_offset=end_offset, whole=whole
        )

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

    def appended(self) -> None:
        """Told after an append: nothing to do, for a view's size measures what was added when it is asked for.

        So an append costs a view nobody looks at nothing, and many appends are measured in one go.
        """

    def remember(self) -> None:
        """Write down what is known of every segment, and remove what was known of segments that are gone (blocking).

        Sealed segments are written down as measuring passes them; at a close this keeps the active one too.
        """
        with self._lock:
            measures = list(self._measures.values())
        for measure in measures:
            measure.remember()
        self._remove_orphans()

    def forget(self) -> None:
        """Begin again after segments were rewritten (compaction): the next views count positions afresh.

        Readers of views handed out before may read on where they are, but go nowhere else.
        """
        with self._lock:
            self._begin_anew()

    def _begin_anew(self) -> None:
        for measure in self._measures.values():
            measure.retire()
        self._wholes.clear()
        self._measures.clear()
        self._generation += 1
        self._remove_orphans()

    def _follow_start(self) -> Offset:
        rewrites = self.partition.rewrites
        if rewrites != self._rewrites:
            self._rewrites = rewrites
            self._begin_anew()
        log_start_offset = self.partition.log_start_offset
        if log_start_offset != self._log_start_offset:
            self._log_start_offset = log_start_offset
            self._generation += 1
            self._remove_orphans()
        return log_start_offset

    def _remove_orphans(self) -> None:
        """Segments went, or may have gone while nobody looked: what was remembered of them goes too."""
        if self._store is not None:
            self._store.remove_orphans({segment.base_offset for segment in self.partition.segments() or ()})

    def _measure_from(self, form: Form, start_offset: Offset) -> Measure:
        """Keep what is known of the form's rendering if it reaches the log start; else begin there."""
        measure = self._measures.get(form.suffix)
        try:
            if measure is not None and measure.follow_start(start_offset):
                return measure
        except (CorruptionError, SegmentDeletedError, RequestTooLargeError):
            pass  # The new start cannot be placed in what was known.
        source = Source(self.partition, form, self.isolation)
        measure = Measure(source, start_offset, store=self._store)
        self._measures[form.suffix] = measure
        return measure
