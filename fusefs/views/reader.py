"""The reader of a view, one for each file handle: renders the view in windows.

    view position     │······ earlier window ······│······ window ······│→ cursor: next record to render
                                                        ▲ reads mostly go on here

Sequential reads render each record once and look nothing up. Two windows are kept, because the kernel sends readahead
requests in parallel and they may arrive out of order. For any other position, the view index is searched, and the
text is rendered from the nearest entry below the position. Only rendered bytes are kept, never a segment.

A damaged batch has no bytes in the view. A read across the damage fails. If a read ended at the damage, the next
read, which begins there, fails too. A repeated read, or a read that comes from another position, continues after the
damage.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from topicfs.fusefs.allowance import RequestTooLargeError, take_turn
from topicfs.fusefs.views.decoded_fetch import Damage
from topicfs.fusefs.views.rendering import Rendering, Text
from topicfs.fusefs.views.sparse_index import Entry
from topicfs.fusefs.views.view import View
from topicfs.storage.errors import CorruptionError, SegmentDeletedError

OVERTAKEN_BYTES = 2**17
"""A read that begins at most this far after the last window is assumed to have overtaken a readahead request."""
_NOWHERE = -1


class _TextWindow(NamedTuple):
    start: int
    end: int
    data: Text = b""


class ViewReader:
    """Reads a view for one file handle, rendering the view in windows. Thread-safe; reads take turns."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._earlier = self._window = _TextWindow(0, 0)
        self._front = Entry(0, view.start_offset)
        self._rendering = Rendering(view, view.size if not view.open_ended and view.measured else None)
        self._read_until = 0
        self._jumped = False  # True if the current read is not sequential
        self._stop = self._size = 0  # end position and size of the current read

    def read(self, view_position: int, size: int, *, short_at_damage: bool = False) -> Text:
        """Return up to `size` bytes from a view position (blocking); fewer only at the end, b"" at or after the end.

        If a single window contains all bytes, they are not copied. The returned buffer never changes.

        Raises SegmentDeletedError for bytes that were removed or lost, CorruptionError for a damaged batch in the
        requested range, and RequestTooLargeError if too many records must be decoded. With `short_at_damage`, the
        bytes before the problem are returned first.
        """
        take_turn(self._lock)
        try:
            return self._read(view_position, size, short_at_damage=short_at_damage)
        finally:
            self._lock.release()

    def _read(self, view_position: int, size: int, *, short_at_damage: bool) -> Text:
        self._front = self._view.front()
        if view_position < self._front.position:
            raise SegmentDeletedError(f"the records at position {view_position} were removed")
        self._stop, self._size = view_position + size, size
        self._rendering.expect(size)
        self._jumped = False
        parts: list[Text] = []
        at, stop = view_position, self._stop
        try:
            while at < stop and self._reach(at, view_position):
                if self._window.start <= view_position:  # The window also contains the collected parts.
                    parts.clear()
                    at = view_position
                part = self._take(at, stop)
                parts.append(part)
                at += len(part)
        except (CorruptionError, RequestTooLargeError, SegmentDeletedError):
            if not parts or not short_at_damage:
                raise
        self._check_jump(view_position)
        self._read_until = at
        if not parts:
            self._earlier = self._window = _TextWindow(self._window.end, self._window.end)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check_jump(self, view_position: int) -> None:
        """Raise SegmentDeletedError if a non-sequential read used the index and segments were rewritten meanwhile."""
        if self._jumped and self._view.outdated:
            self._earlier = self._window = _TextWindow(_NOWHERE, _NOWHERE)
            raise SegmentDeletedError(f"the records at position {view_position} were rewritten")

    def _take(self, at: int, stop: int) -> Text:
        """Return what the windows hold from `at` on, at least one byte; call after `_reach`."""
        window = self._window if at >= self._window.start else self._earlier
        if at == window.start and stop >= window.end:
            return window.data
        return memoryview(window.data)[at - window.start : stop - window.start]

    def _reach(self, at: int, first: int) -> bool:
        """Render until a window has the byte at `at`, for a read that starts at `first`; return False at the end."""
        if self._earlier.start <= at < self._earlier.end or self._window.start <= at < self._window.end:
            return True
        if at == self._front.position != self._window.end:
            self._go_to(self._front)
        elif at != self._window.end:
            self._jumped = True
            if not self._is_near(at):
                self._go_to(self._view.place_at(at))
        while self._window.end <= at:
            if not self._render_more(first):
                return False
        return True

    def _is_near(self, at: int) -> bool:
        """Return whether the best way to `at` is to continue rendering from the last window.

        If this read has overtaken a readahead request, only the small gap of that request lies in between.
        """
        end = self._window.end
        return self._front.position < end < at <= end + OVERTAKEN_BYTES and not self._view.outdated

    def _go_to(self, place: Entry) -> None:
        self._earlier = self._window = _TextWindow(place.position, place.position)
        self._rendering.go_to(place.offset, self._stop - place.position)

    def _render_more(self, first: int) -> bool:
        """Render the next window, if possible from the byte `first` on; return False at the end of the view."""
        window, next_offset = self._window, self._rendering.next_offset
        begun: Text = b""
        if self._rendering.carries_on(self._size) and window.start <= first < window.end:
            begun = memoryview(window.data)[first - window.start :]
        start = window.end - len(begun)
        found = self._rendering.next(
            begun,
            least=self._stop - start,
            step=self._size,
            front=self._front if window.end == self._front.position else None,
        )
        if isinstance(found, Damage):
            self._pass_damage(found, first)
        elif found is not None:
            self._earlier, self._window = window, _TextWindow(start, start + len(found), found)
            self._view.pass_rendered(
                Entry(window.end, next_offset), Entry(self._window.end, self._rendering.next_offset)
            )
        return found is not None

    def _pass_damage(self, damage: Damage, first: int) -> None:
        """Skip a damaged batch. If the read at `first` needs it, raises CorruptionError once; a retry succeeds."""
        place = self._window.end
        certain = self._view.place_after_damage(damage.offset, damage.error)
        reads_on = first == place == self._read_until
        if first < place or reads_on or (certain is not None and first < certain.position):
            self._read_until = _NOWHERE
            raise damage.error
        if certain is None:
            self._rendering.pass_damage()
        else:
            self._go_to(certain)
