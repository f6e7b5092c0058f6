"""The reader of a view, through windows: one a file handle.

    view position     │······ earlier window ······│······ window ······│→ cursor: next record to render
                                                        ▲ reads mostly go on here

Reads that go on where the last one ended render each record once and look nothing up. Two windows are kept, for the
kernel asks for readahead in parallel and its requests may overtake each other. Any other position is looked up in
the view index and rendered from the entry below it. Only rendered bytes are kept, never a segment.

The place of a damaged batch holds no bytes. A read that crosses it fails, and so does one that begins there because
the one before ended there; a caller that asks again, or comes from elsewhere, reads on behind it.
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
"""A read that begins so far behind the last one has overtaken another: the kernel's readahead asks for as much."""
_NOWHERE = -1


class _Window(NamedTuple):
    start: int
    end: int
    data: Text = b""


class ViewReader:
    """A place in a view with a bounded window of rendered bytes, one a file handle. Safe from any thread; reads of one reader take turns."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._earlier = self._window = _Window(0, 0)
        self._front = Entry(0, view.start_offset)
        self._rendering = Rendering(view, view.size if not view.open_ended and view.measured else None)
        self._read_until = 0
        self._jumped = False  # the read going on left the way of those before
        self._stop = self._size = 0  # of the read going on

    def read(self, view_position: int, size: int, *, short_at_damage: bool = False) -> Text:
        """Return up to `size` bytes from a view position; fewer only at the end, b"" at the end or beyond (blocking).

        Where a window holds all of them, no byte is copied; the buffer never changes.

        Raises SegmentDeletedError for bytes that were removed or lost, CorruptionError where a damaged batch lies between
        the bytes asked for; with `short_at_damage` the bytes before those are given first. Raises RequestTooLargeError
        if too many records have to be decoded for them, likewise.
        """
        take_turn(self._lock)
        try:
            return self._read(view_position, size, short_at_damage=short_at_damage)
        finally:
            self._lock.release()

    def _read(self, view_position: int, size: int, *, short_at_damage: bool) -> Text:
        self._front = self._view.front()
        if view_position < self._front.position:
            raise SegmentDeletedError(f"what stood at {view_position} was removed")
        self._stop, self._size = view_position + size, size
        self._rendering.expect(size)
        self._jumped = False
        parts: list[Text] = []
        at, stop = view_position, self._stop
        try:
            while at < stop and self._reach(at, view_position):
                if self._window.start <= view_position:  # It holds what was gathered too.
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
            self._earlier = self._window = _Window(self._window.end, self._window.end)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check_jump(self, view_position: int) -> None:
        """Raise SegmentDeletedError if segments were rewritten while a place known from before was gone to."""
        if self._jumped and self._view.outdated:
            self._earlier = self._window = _Window(_NOWHERE, _NOWHERE)
            raise SegmentDeletedError(f"what stood at {view_position} was rewritten")

    def _take(self, at: int, stop: int) -> Text:
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
            if not self._render_more(first):
                return False
        return True

    def _is_near(self, at: int) -> bool:
        """Return whether a position is best reached by rendering on: what readahead left out is little, and still there."""
        end = self._window.end
        return self._front.position < end < at <= end + OVERTAKEN_BYTES and not self._view.outdated

    def _go_to(self, place: Entry) -> None:
        self._earlier = self._window = _Window(place.position, place.position)
        self._rendering.go_to(place.offset, self._stop - place.position)

    def _render_more(self, first: int) -> bool:
        """Render the next window for a read that began at `first`; False at the end of the view.

        It begins where that read did, if what was asked for reaches across: one window holds the whole answer then.
        """
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
            self._earlier, self._window = window, _Window(start, start + len(found), found)
            self._view.pass_rendered(
                Entry(window.end, next_offset), Entry(self._window.end, self._rendering.next_offset)
            )
        return found is not None

    def _pass_damage(self, damage: Damage, first: int) -> None:
        """Step over a damaged batch, unless the read that began at `first` needs it.

        Raises CorruptionError if it does, and lets the same read pass when it comes again from that place.
        """
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
