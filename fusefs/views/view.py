"""A view: the records of a range of offsets as the bytes of one file.

    measure's positions   ······origin··················end······frontier
    view positions              0                       size

Several views share one measure: the whole partition as it is now, the same as it was before data was removed at the
front, and ranges of it. Each counts its positions from its own first record, and they never shift.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from fusefs.views.allowance import Allowance, RequestTooLargeError, ThreadNeededError
from fusefs.views.measuring import INLINE_BYTES, Measure, Source
from fusefs.views.reader import ViewReader
from fusefs.views.sparse_index import Entry
from storage.errors import CorruptionError, SegmentDeletedError
from storage.model import Offset


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
        generation: int,
        start_offset: Offset,
        end_offset: Offset | None,
        whole: Measure | None = None,
    ) -> None:
        """Lay a view over a measure that covers it, or that begins with it.

        `whole` is the measure of the whole partition, which takes over once it covers the view.
        """
        self.generation = generation
        """Changes when data was removed at the front; views of a later one count positions afresh."""
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
        """Whether segments were rewritten (compaction): who is just reading reads on, nobody goes elsewhere."""
        return self._frame.measure.retired

    @property
    def growing(self) -> bool:
        return self.limit is None

    @property
    def size(self) -> int:
        """Rendered bytes as far as known; exact when `measured`.

        What was added lately is measured on the spot if it is little: microseconds after an append, milliseconds
        at most. Never raises for records that are gone or damaged.
        """
        measure, origin, end = self._settle()
        if end is None:
            end = measure.frontier.position
        return end - origin

    @property
    def measured(self) -> bool:
        """Whether `size` is exact as of now."""
        measure, _, end = self._settle()
        return end is not None or measure.complete

    def measure(self, *, max_bytes: int | None = None) -> bool:
        """Measure on, about `max_bytes` of batches if given (blocking); True when `size` is exact.

        Several threads may call it at once: they share the work. Raises SegmentDeletedError when records that were
        not measured yet were removed: a new view can be measured then.
        """
        self._take_over()
        measure, _, end = self._frame
        return end is not None or measure.advance(max_bytes=max_bytes)

    def reader(self) -> ViewReader:
        """Make a reader, one a file handle: it keeps its place and a bounded window of rendered bytes."""
        return ViewReader(self)

    def end_offset(self) -> Offset:
        """Exclusive end of what a reader may be shown now."""
        visible_end = self.source.visible_end()
        return visible_end if self.limit is None else min(visible_end, self.limit)

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
        """Where positions are certain again behind a damaged batch; None where they are not in doubt.

        They are in doubt when the batch was whole as it was measured: how many bytes it had is not known now.
        """
        measure, origin, _ = self._frame
        if offset >= measure.frontier.offset or measure.knows_damage(error):
            return None
        position, next_offset = measure.place_after(Offset(offset + 1))
        return Entry(position - origin, next_offset)

    def _settle(self) -> _Frame:
        """Bring the view up to date as far as that takes no time, and see which measure is the better one."""
        measure, _, end = self._frame
        if end is not None:
            return self._frame
        try:  # noqa: SIM105 - this is asked again and again
            measure.catch_up()
        except (SegmentDeletedError, CorruptionError):
            pass  # What is gone, or damaged since it was measured, is reported to those who read it.
        if self._whole is not None:
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
