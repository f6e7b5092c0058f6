"""The rendering of a view from a position on, a window at a time: fetch batches, render them, fetch the next.

Plain values go straight from the batches into the window, fetch after fetch until it is full. Whatever is otherwise is decoded
into pieces first, and each piece, or a part of it, makes a window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fusefs.allowance import RequestTooLargeError, current
from fusefs.forms import VALUES
from fusefs.views.decoded_fetch import Damage, DecodedFetch, Piece, fetch
from fusefs.views.measure import Source
from fusefs.views.sparse_index import Entry
from storage.codec.batch import scan
from storage.codec.binary.fields import LAST_OFFSET, ROW_SIZE, SIZE_BYTES
from storage.codec.columns import Columns
from storage.codec.compression.bounds import MAX_CONTENT_BYTES
from storage.codec.headers import Batches
from storage.codec.value_copy import begin_text, copy_inflated, copy_values
from storage.errors import SegmentDeletedError
from storage.model import Fetched, Offset
from storage.remote import ThreadNeededError

WINDOW_BYTES = 2**19
"""About how much rendering a window holds, unless a read asks for more; a single record may be larger."""
LARGEST_READ_BYTES = 2**20
"""For which a window is made that holds all of it: the kernel asks for no more at once."""
FIRST_FETCH_BYTES = 2**17
"""Bytes of batches fetched by who begins at the front; each next fetch takes twice as much, up to a window's size."""
PAGE_BYTES = 2**12
"""Bytes fetched in addition to those up to the end of a read, or of a short range: batches have headers."""
LARGEST_FETCH_BYTES = 2**20
"""Most bytes of batches, whatever is asked for: a read(2) of more than a MiB is slower than two."""

Text: TypeAlias = bytes | memoryview
"""A window's bytes, which never change."""


class Rendered(Protocol):
    """The view that is rendered."""

    @property
    def source(self) -> Source: ...

    @property
    def start_offset(self) -> Offset: ...

    def end_offset(self) -> Offset:
        """Exclusive end of what may be shown now."""
        ...

    def fetch(self, offset: Offset, max_bytes: int) -> Fetched | DecodedFetch:
        """Read the batches from an offset on, some of them perhaps decoded. See `decoded_fetch.fetch`."""
        ...


@dataclass(slots=True)
class _Begun:
    """Batches that were fetched together and are copied one by one."""

    fetched: Fetched
    batches: Batches
    offset: Offset
    """Offset at which reading them goes on."""
    number: int = 0
    """Index of the batch that holds it."""


class Rendering:
    """The rendering of a view from a position on. Used by one caller at a time."""

    def __init__(self, view: Rendered, size: int | None) -> None:
        """Begin at the front of a view; `size` is that of one that does not grow, where it is known."""
        self._view = view
        self._straight = view.source.form is VALUES
        self._plain = self._straight  # nothing was compressed or aborted so far
        self._pieces: deque[Piece] = deque()
        self._begun: _Begun | None = None  # of compressed batches
        self._inflates = True  # values of compressed batches could be copied lately
        self._rendered = 0  # records of the first piece
        self._from_offset = self._next_offset = self._end_offset = view.start_offset
        # Of a short range no more is fetched than it may need.
        self._most_fetched = WINDOW_BYTES if size is None else min(size + PAGE_BYTES, WINDOW_BYTES)
        self._fetch_bytes = min(FIRST_FETCH_BYTES, self._most_fetched)
        self._record_bytes = 256.0  # as rendered lately, on average
        self._batch_share = 1.0  # bytes of batches for one of text, as copied lately

    def expect(self, size: int) -> None:
        """Fetch as much at once as a read of `size` bytes asks for, within the bounds."""
        self._fetch_bytes = max(self._fetch_bytes, min(size, self._most_fetched))

    def go_to(self, offset: Offset, size: int) -> None:
        """Go on from another offset, of which `size` bytes will be wanted."""
        self._pieces.clear()
        self._begun, self._inflates = None, True
        self._rendered = 0
        self._next_offset = offset
        self._fetch_bytes = min(size + PAGE_BYTES, self._most_fetched)

    @property
    def next_offset(self) -> Offset:
        """Offset of the first record that is not rendered yet, or of damage that was not passed."""
        if not self._pieces:
            return self._next_offset
        piece = self._pieces[0]
        if isinstance(piece, Damage):
            offset = piece.offset
        elif self._rendered:
            offset = Offset(piece.offsets[self._rendered])
        else:
            offset = piece.batches[0].base_offset
        return max(offset, self._from_offset)

    def carries_on(self, size: int) -> bool:
        """Return whether a window for a read of `size` bytes costs no more when it begins with bytes rendered before."""
        return self._straight and size <= LARGEST_READ_BYTES

    def pass_damage(self) -> None:
        """Go on behind the damaged batch that `next` gave."""
        self._pieces.popleft()

    def next(self, begun: Text, *, least: int, step: int, front: Entry | None) -> Text | Damage | None:
        """Render the next window, which begins with what is `begun`; None at the end of the view.

        It has about `least` bytes, and as many times `step` more as there is room for: so that reads of that size end where
        it does. A damaged batch is given as often as it is asked for. With `front` the bytes to come are the view's first, as it is
        now. Raises SegmentDeletedError.
        """
        if self._straight and not self._pieces:
            text = self._copied(begun, least, step, front)
            if text is not None:
                return text
        while self._pieces or self._fetch(front):
            piece = self._pieces[0]
            if isinstance(piece, Damage):
                return piece
            data = self._render(piece)
            if data:
                return b"".join((begun, data)) if begun else data
        return None

    def next_fetch(self, end_offset: Offset) -> Text | Damage | None:
        """Render what one fetch gives, below the end of the view as it is now: the way of those who follow what is appended.

        None where that is nothing, and at the end. Raises SegmentDeletedError.
        """
        if self._plain and not self._pieces:
            offset = self._next_offset
            if offset >= end_offset:
                return None
            partition, _, isolation = self._view.source
            fetched = fetch(partition, offset, max_bytes=self._most_fetched, isolation=isolation)
            if isinstance(fetched, Fetched) and not fetched.aborted:
                text = begin_text(b"", len(fetched.data))
                end = copy_values(fetched.data, text, 0, start_offset=offset, end_offset=end_offset)
                if end >= 0:
                    self._next_offset = min(fetched.next_offset, end_offset)
                    return bytes(text[:end]) if end <= PAGE_BYTES else memoryview(text)[:end].toreadonly()
            self._plain = False  # As what comes next, mostly.
        return self.next(b"", least=1, step=1, front=None)

    def _copied(self, begun: Text, least: int, step: int, front: Entry | None) -> Text | None:
        """Copy values to a window, up to what cannot be copied, which lies in `_pieces` then; None for no value at all."""
        size = least = min(least, LARGEST_READ_BYTES)
        most, margin = self._fetch_bytes, 0
        reads_through = most == WINDOW_BYTES
        if reads_through:
            size += max(WINDOW_BYTES - least, 0) // step * step
            margin = WINDOW_BYTES // 16
        # An eighth more: copying asks for the room that the shortest numbers beside the values would leave for them.
        text, used, end = begin_text(begun, size + size // 8 + margin), -1, len(begun)
        while used < end < size and not self._pieces:
            used = end
            if reads_through:
                most = min(int((size - used) * self._batch_share) + margin, LARGEST_FETCH_BYTES)
            try:
                end = self._copy_more(text, used, size, most, front)
            except (SegmentDeletedError, ThreadNeededError, RequestTooLargeError):
                if used == len(begun):
                    raise  # Otherwise who reads on is told.
        self._fetch_bytes = min(2 * self._fetch_bytes, self._most_fetched)
        if end == len(begun):
            return None
        if 2 * end < len(text):
            del text[end:]
        return memoryview(text)[:end].toreadonly()

    def _copy_more(self, text: bytearray, used: int, size: int, most: int, front: Entry | None) -> int:
        """Copy the values of the next fetch, and say where they end in `text`; what cannot be copied goes to `_pieces`."""
        end_offset = self._end_ahead(front)
        if end_offset is None:
            return used
        source, offset, begun = self._view.source, self._next_offset, self._begun
        if begun is not None and begun.offset == offset:
            end = self._copy_inflated(begun, text, used, size, end_offset)
            if end >= 0:
                return end
        self._begun = None
        fetched = self._view.fetch(offset, most)
        if isinstance(fetched, DecodedFetch):
            self._keep(fetched, end_offset)
            return used
        if not fetched.aborted and len(fetched.data) <= 2 * WINDOW_BYTES:
            end = copy_values(fetched.data, text, used, start_offset=offset, end_offset=end_offset)
            if end >= 0:
                self._next_offset = min(fetched.next_offset, end_offset)
                self._batch_share = len(fetched.data) / max(end - used, 1)
                return end
            if self._inflates:
                begun = _Begun(fetched, scan(fetched.data, check_crc=True), offset)
                end = self._copy_inflated(begun, text, used, size, end_offset)
                if end >= 0:
                    return end
                self._inflates = (
                    False  # Other batches here are mostly of the same kind: none is inflated twice.
                )
        self._keep(source.decoded(offset, fetched), end_offset)
        return used

    def _copy_inflated(self, begun: _Begun, text: bytearray, used: int, size: int, end_offset: Offset) -> int:
        """Copy the values of batches that are inflated one by one, up to `size`; -1 where the next one cannot be copied."""
        batches, data, request = begun.batches, begun.fetched.data, current()
        limit = MAX_CONTENT_BYTES if request is None else request.begin(len(data))
        first, end, passed_bytes = begun.number, used, 0
        while begun.number < len(batches) and end < size:
            row = batches.rows[begun.number * ROW_SIZE : (begun.number + 1) * ROW_SIZE]
            copied, inflated_bytes = copy_inflated(
                data,
                row,
                text,
                end,
                start_offset=self._next_offset,
                end_offset=end_offset,
                max_content_bytes=limit,
            )
            if copied < 0:
                break
            end = copied
            passed_bytes += row[SIZE_BYTES]
            begun.number += 1
            begun.offset = Offset(row[LAST_OFFSET] + 1)
            if request is not None:
                request.remaining -= inflated_bytes
                if request.is_late or request.remaining <= 0:
                    break
        if begun.number == first:
            return -1
        if begun.number == len(batches) and batches.problem is None:
            begun.offset = begun.fetched.next_offset
        self._next_offset = min(begun.offset, end_offset)
        self._begun = begun if begun.number < len(batches) else None
        if end > used:
            self._batch_share = passed_bytes / (end - used)
        return end

    def _end_ahead(self, front: Entry | None) -> Offset | None:
        """The end of the view as of now; None where it has been reached."""
        end_offset = self._view.end_offset()
        if front is not None:
            # What was removed below may have rendered to nothing: then no byte of it is missing.
            self._next_offset = max(self._next_offset, front.offset)
        return end_offset if self._next_offset < end_offset else None

    def _fetch(self, front: Entry | None) -> bool:
        """Fetch the next pieces; False at the end of the view."""
        end_offset = self._end_ahead(front)
        if end_offset is None:
            return False
        fetched = self._view.fetch(self._next_offset, self._fetch_bytes)
        if not isinstance(fetched, DecodedFetch):
            fetched = self._view.source.decoded(self._next_offset, fetched)
        self._keep(fetched, end_offset)
        return bool(fetched.pieces)

    def _keep(self, fetched: DecodedFetch, end_offset: Offset) -> None:
        """Note what was read from the next offset on, to be rendered piece by piece."""
        self._from_offset, self._end_offset = self._next_offset, end_offset
        if fetched.pieces:
            self._next_offset = min(fetched.next_offset, end_offset)
            self._pieces.extend(fetched.below(end_offset))
            self._fetch_bytes = min(2 * self._fetch_bytes, self._most_fetched)

    def _render(self, columns: Columns) -> bytes:
        """Render the rest of the first piece, or a window's worth of it."""
        first, last = self._rendered, len(columns)
        record_bytes = max(self._record_bytes, len(columns.data) / max(last, 1))
        step = max(int(WINDOW_BYTES / record_bytes), 1)
        start_offset, end_offset = self._from_offset, self._end_offset
        if first:
            start_offset = max(start_offset, Offset(columns.offsets[first]))
        if last - first > 2 * step or len(columns.data) > 2 * WINDOW_BYTES:
            last = min(first + step, columns.within(first, WINDOW_BYTES))
        if last < len(columns):
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
