"""Views compared with the joined rendering of all records, in random histories of a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.doubles.memory_partition import MemoryPartition
from tests.doubles.records import records
from topicfs.fusefs.forms import FORMS, Form
from topicfs.fusefs.views import measure, rendering, sparse_index
from topicfs.fusefs.views import view as view_module
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import PartitionViews, View
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.records import encode
from topicfs.storage.errors import SegmentDeletedError
from topicfs.storage.model import Offset, TopicPartition

pytestmark = pytest.mark.slow


class Line(NamedTuple):
    """The rendering of one record in each form, by suffix."""

    offset: int
    rendered: dict[str, bytes]


@dataclass
class Handle:
    """An open file."""

    view: View
    form: Form
    reader: ViewReader
    known_end: Offset
    """The view's end at the last check that found the view completely measured."""


class ViewsOfAPartition(RuleBasedStateMachine):
    """Appends, rolls, gaps, markers and deletions, with open readers of whole views and ranges."""

    @initialize(base_offset=st.sampled_from([0, 5, 10**12]))
    def begin(self, base_offset: int) -> None:
        self.partition = MemoryPartition(base_offset=base_offset)
        self.views = PartitionViews(self.partition)
        self.lines: list[Line] = []
        self.handles: list[Handle] = []

    @rule(sizes=st.lists(st.sampled_from([0, 1, 10, 60, 500]), min_size=1, max_size=6))
    def append(self, sizes: list[int]) -> None:
        first = self.partition.log_end_offset
        values = [bytes([97 + (first + number) % 26]) * size for number, size in enumerate(sizes)]
        self.partition.append(encode(records(values, timestamp=range(1000, 1000 + len(values)))))
        self._note_last_batch()

    @rule(kept=st.sets(st.integers(0, 9), max_size=4))
    def append_compacted(self, kept: set[int]) -> None:
        first = self.partition.log_end_offset
        values = [
            record._replace(offset=Offset(record.offset + first))
            for record in records([b"v%d" % delta for delta in range(10)], timestamp=range(1000, 1010))
            if record.offset in kept
        ]
        self.partition.add_compacted(values, last_offset=first + 9)
        self._note_last_batch()

    def _note_last_batch(self) -> None:
        segment = self.partition.memory_segments[-1]
        for columns in decode(bytes(segment.data[segment.positions[-1] :])):
            for index, record in enumerate(columns):
                rendered = {
                    form.suffix: form.render(
                        columns, TopicPartition("orders", 0), record.offset, record.offset + 1
                    )
                    for form in FORMS
                }
                assert columns.offsets[index] == record.offset
                self.lines.append(Line(record.offset, rendered))

    @rule()
    def append_marker(self) -> None:
        self.partition.add_marker()

    @rule(count=st.integers(1, 20))
    def leave_a_gap(self, count: int) -> None:
        self.partition.skip_offsets(count)

    @rule()
    def roll(self) -> None:
        if self.partition.memory_segments[-1].data:
            self.partition.roll()

    @rule(share=st.floats(0, 1))
    def move_the_start(self, share: float) -> None:
        start, end = self.partition.log_start_offset, self.partition.log_end_offset
        self.partition.delete_records(Offset(start + int((end - start) * share)))

    @rule(share=st.floats(0, 1))
    def delete_segments(self, share: float) -> None:
        self.partition.delete_oldest_segments(int((len(self.partition.memory_segments) - 1) * share))

    @rule(share=st.floats(0, 1))
    def hide_the_end(self, share: float) -> None:
        """Begin an open transaction at an offset above the visible end."""
        offsets = self.partition.offsets()
        visible_end = offsets.visible_end(self.views.isolation)
        self.partition.last_stable_offset = visible_end + int((offsets.log_end_offset - visible_end) * share)

    @rule()
    def show_the_end(self) -> None:
        self.partition.last_stable_offset = None

    @rule(form=st.sampled_from(FORMS))
    def open_whole(self, form: Form) -> None:
        view = self.views.whole(form)
        assert self.partition.log_start_offset == view.start_offset
        self.handles.append(Handle(view, form, ViewReader(view), view.start_offset))

    @rule(form=st.sampled_from(FORMS), start=st.floats(0, 1), length=st.none() | st.floats(0, 1))
    def open_range(self, form: Form, start: float, length: float | None) -> None:
        offsets = self.partition.offsets()
        visible_end = offsets.visible_end(self.views.isolation)
        first = offsets.log_start_offset + int((visible_end - offsets.log_start_offset) * start)
        last = None if length is None else Offset(first + int((visible_end - first) * length))
        view = self.views.range(form, Offset(first), last)
        self.handles.append(Handle(view, form, ViewReader(view), view.start_offset))

    @rule(which=st.floats(0, 0.999), max_bytes=st.none() | st.integers(1, 1000))
    def measure(self, which: float, max_bytes: int | None) -> None:
        handle = self._pick(which)
        try:
            measured = handle.view.measure(max_bytes=max_bytes)
        except SegmentDeletedError:
            assert self._lost(handle)
        else:
            assert measured or max_bytes is not None
            if measured:
                assert len(self._content(handle)) == handle.view.size
                handle.known_end = self._end(handle)

    @rule(
        which=st.floats(0, 0.999),
        at=st.floats(0, 1.1),
        size=st.sampled_from([1, 2, 30, 100, 1000, 10**6]),
        times=st.integers(1, 4),
    )
    def read(self, which: float, at: float, size: int, times: int) -> None:
        handle = self._pick(which)
        position = int(len(self._content(handle)) * at)
        for _ in range(times):
            got = self._read(handle, position, size)
            position += len(got)

    def _read(self, handle: Handle, position: int, size: int) -> bytes:
        expected = self._content(handle)[position : position + size]
        removed = self._removed(handle)
        try:
            got = handle.reader.read(position, size)
        except SegmentDeletedError:
            assert position < removed or self._lost(handle)
            return b""
        assert expected == got
        if position < removed:
            assert self._lost(handle)
        return got

    @rule()
    def look_at_sizes(self) -> None:
        for handle in self.handles:
            size, length = handle.view.size, len(self._content(handle))
            if handle.view.measured:
                assert length == size
                handle.known_end = self._end(handle)
            else:
                assert size <= length

    def _pick(self, which: float) -> Handle:
        if not self.handles:
            self.open_whole(FORMS[0])
        return self.handles[int(len(self.handles) * which)]

    def _end(self, handle: Handle) -> Offset:
        visible_end = self.partition.offsets().visible_end(self.views.isolation)
        return visible_end if handle.view.limit is None else min(visible_end, handle.view.limit)

    def _content(self, handle: Handle) -> bytes:
        end_offset = self._end(handle)
        return b"".join(
            line.rendered[handle.form.suffix]
            for line in self.lines
            if handle.view.start_offset <= line.offset < end_offset
        )

    def _removed(self, handle: Handle) -> int:
        start_offset, end_offset = self.partition.log_start_offset, handle.view.limit
        return sum(
            len(line.rendered[handle.form.suffix])
            for line in self.lines
            if handle.view.start_offset <= line.offset < start_offset
            and (end_offset is None or line.offset < end_offset)
        )

    def _lost(self, handle: Handle) -> bool:
        """Return whether records of the view may have been deleted before they were measured."""
        start_offset, limit = self.partition.log_start_offset, handle.view.limit
        return handle.known_end < (start_offset if limit is None else min(start_offset, limit))


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small intervals and windows, so that a few records make many of them."""
    monkeypatch.setattr(sparse_index, "ENTRY_INTERVAL", 64)
    monkeypatch.setattr(sparse_index, "MAX_BATCH_INTERVAL", 400)
    monkeypatch.setattr(measure, "MEASURE_STEP_BYTES", 300)
    monkeypatch.setattr(measure, "INLINE_OFFSETS", 12)
    monkeypatch.setattr(view_module, "DIRECT_OFFSETS", 5)
    monkeypatch.setattr(rendering, "TEXT_WINDOW_BYTES", 256)
    monkeypatch.setattr(rendering, "FIRST_FETCH_BYTES", 100)


TestViewsOfAPartition = ViewsOfAPartition.TestCase
TestViewsOfAPartition.settings = settings(stateful_step_count=50)


def test_a_range_is_measured_even_if_records_before_it_were_deleted() -> None:
    """A range whose records all exist is measured, even if the records just before the range were deleted.

    Hypothesis found this case with seed 1026.
    """
    state = ViewsOfAPartition()
    state.begin(base_offset=0)
    state.append_compacted(kept=set())
    state.open_whole(form=FORMS[0])
    state.open_range(form=FORMS[0], start=0.5, length=None)
    state.measure(which=0.0, max_bytes=None)
    state.move_the_start(share=0.5)
    state.measure(which=0.5, max_bytes=1)
