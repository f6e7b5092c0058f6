"""Reading a view through windows: one reader a file handle.

    view position     │······ earlier window ······│······ window ······│→ cursor: next record to render
                                                        ▲ reads mostly go on here

Reads that go on where the last one ended render each record once and look nothing up. Two windows are kept, for the
kernel asks for readahead in parallel and its requests may overtake each other. Any other position is looked up in
the view index and rendered from the entry below it. Only rendered bytes are kept, never a segment.

The place of a damaged batch holds no bytes. A read that crosses it fails, and so does one that begins there because
the one before ended there; whoever asks again, or comes from elsewhere, reads on behind it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from fusefs.views.sparse_index import Entry
from fusefs.views.stretches import Damage, Piece
from storage.codec.columns import Columns
from storage.errors import CorruptionError, SegmentDeletedError
from storage.model import Offset

if TYPE_CHECKING:
    from fusefs.views.view import View

WINDOW_BYTES = 2**19
"""About how much rendering a window holds, at most; a single record may be larger."""
FIRST_FETCH_BYTES = 2**17
"""Bytes of batches fetched by who begins at the front; each next fetch takes twice as much, up to a window's size."""
PAGE_BYTES = 2**12
"""What is fetched beside the bytes up to the end of a read, or of a short range: batches have headers."""
OVERTAKEN_BYTES = 2**17
"""A read that begins so far behind the last one has overtaken another: the kernel's readahead asks for as much."""
_NOWHERE = -1


class _Window(NamedTuple):
    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class ViewReader:
    """A place in a view. Safe from any thread; reads of one reader take turns."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._earlier = self._window = _Window(0, b"")
        self._front = Entry(0, view.start_offset)
        self._pieces: deque[Piece] = deque()
        self._rendered = 0  # records of the first piece
        self._from_offset = self._next_offset = view.start_offset
        self._end_offset = view.start_offset
        # Of a short range no more is fetched than it may need.
        bounded = not view.growing and view.measured
        self._most_fetched = min(view.size + PAGE_BYTES, WINDOW_BYTES) if bounded else WINDOW_BYTES
        self._fetch_bytes = min(FIRST_FETCH_BYTES, self._most_fetched)
        self._record_bytes = 256.0  # as rendered lately, on average
        self._read_until = 0
        self._jumped = False  # the read going on left the way of those before
        self._stop = 0  # of the read going on

    def read(self, view_position: int, size: int, *, short_at_damage: bool = False) -> bytes:
        """Up to `size` bytes from a view position; fewer only at the end, b"" at the end or beyond (blocking).

        Raises SegmentDeletedError for bytes that were removed at the front, CorruptionError where a damaged batch
        lies between the bytes asked for; with `short_at_damage` the bytes before it are given first.
        """
        return bytes(self.read_buffer(view_position, size, short_at_damage=short_at_damage))

    def read_buffer(
        self, view_position: int, size: int, *, short_at_damage: bool = False
    ) -> bytes | memoryview:
        """`read`, but without a copy where a window holds all the bytes; the buffer never changes."""
        with self._lock:
            self._front = self._view.front()
            if view_position < self._front.position:
                raise SegmentDeletedError(f"what stood at {view_position} was removed")
            self._stop = view_position + size
            self._fetch_bytes = max(self._fetch_bytes, min(size, self._most_fetched))
            self._jumped = False
            parts: list[bytes | memoryview] = []
            at, stop = view_position, self._stop
            try:
                while at < stop and self._reach(at, view_position):
                    part = self._take(at, stop)
                    parts.append(part)
                    at += len(part)
            except CorruptionError:
                if not parts or not short_at_damage:
                    raise
            self._check_jump(view_position)
            self._read_until = at
            if not parts:
                self._earlier = self._window = _Window(self._window.end, b"")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check_jump(self, view_position: int) -> None:
        """Raise SegmentDeletedError if segments were rewritten while a place known from before was gone to."""
        if self._jumped and self._view.outdated:
            self._earlier = self._window = _Window(_NOWHERE, b"")
            raise SegmentDeletedError(f"what stood at {view_position} was rewritten")

    def _take(self, at: int, stop: int) -> bytes | memoryview:
        """Give what the windows hold from `at` on; `_reach` saw to it that this is something."""
        window = self._window if at >= self._window.start else self._earlier
        if at == window.start and stop >= window.end:
            return window.data
        return memoryview(window.data)[at - window.start : stop - window.start]

    def _reach(self, at: int, first: int) -> bool:
        """Render until a window holds the byte at `at`, for a read that began at `first`; False at the end."""
        if self._earlier.start <= at < self._earlier.end or self._window.start <= at < self._window.end:
            return True
        if at == self._front.position != self._window.end:
            self._go_to(self._front)
        elif at != self._window.end:
            self._jumped = True
            if not self._is_near(at):
                self._go_to(self._view.place_at(at))
        while self._window.end <= at:
            if not self._render_more() and not self._pass_damage(first):
                return False
        return True

    def _is_near(self, at: int) -> bool:
        """Whether a position is best reached by rendering on: what readahead left out is little, and still there."""
        end = self._window.end
        return self._front.position < end < at <= end + OVERTAKEN_BYTES and not self._view.outdated

    def _go_to(self, place: Entry) -> None:
        self._earlier = self._window = _Window(place.position, b"")
        self._pieces.clear()
        self._rendered = 0
        self._next_offset = place.offset
        self._fetch_bytes = min(self._stop - place.position + PAGE_BYTES, self._most_fetched)

    def _render_more(self) -> bool:
        """Render the next window; False at the end of the view, or before a damaged batch."""
        while self._pieces or self._fetch():
            piece = self._pieces[0]
            if isinstance(piece, Damage):
                return False
            data = self._render(piece)
            if data:
                self._earlier, self._window = self._window, _Window(self._window.end, data)
                return True
        return False

    def _fetch(self) -> bool:
        """Fetch the next stretch; False at the end of the view."""
        end_offset = self._view.end_offset()
        if self._window.end == self._front.position:
            # What was removed below may have rendered to nothing: then no byte of it is missing.
            self._next_offset = max(self._next_offset, self._front.offset)
        if self._next_offset >= end_offset:
            return False
        stretch = self._view.source.read(self._next_offset, self._fetch_bytes)
        self._from_offset, self._end_offset = self._next_offset, end_offset
        if stretch.pieces:
            self._next_offset = min(stretch.next_offset, end_offset)
            self._pieces.extend(stretch.below(end_offset))
            self._fetch_bytes = min(2 * self._fetch_bytes, self._most_fetched)
        return bool(stretch.pieces)

    def _render(self, columns: Columns) -> bytes:
        """Render the rest of the first piece, or a window's worth of it."""
        first, last = self._rendered, len(columns)
        record_bytes = max(self._record_bytes, len(columns.data) / max(last, 1))
        step = max(int(WINDOW_BYTES / record_bytes), 1)
        start_offset, end_offset = self._from_offset, self._end_offset
        if first:
            start_offset = max(start_offset, Offset(columns.offsets[first]))
        if last - first > 2 * step:
            last = first + step
            end_offset = min(end_offset, Offset(columns.offsets[last]))
            self._rendered = last
        else:
            self._pieces.popleft()
            self._rendered = 0
        partition, form, _ = self._view.source
        data = form.render(
            columns,
            topic=partition.topic,
            partition=partition.number,
            start_offset=start_offset,
            end_offset=end_offset,
        )
        self._record_bytes = max(len(data) / max(last - first, 1), 1.0)
        return data

    def _pass_damage(self, first: int) -> bool:
        """Step over a damaged batch, unless the read that began at `first` needs it; False where there is none.

        Raises CorruptionError if it does, and lets the same read pass when it comes again from that place.
        """
        damage = self._pieces[0] if self._pieces else None
        if not isinstance(damage, Damage):
            return False
        place = self._window.end
        certain = self._view.place_after_damage(damage.offset, damage.error)
        reads_on = first == place == self._read_until
        if first < place or reads_on or (certain is not None and first < certain.position):
            self._read_until = _NOWHERE
            raise damage.error
        if certain is None:
            self._pieces.popleft()
        else:
            self._go_to(certain)
        return True
