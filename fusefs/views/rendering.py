"""The rendering of a view from a position on, window by window: fetch batches, render them, fetch the next batches.

Plain values are copied from the batches into the window, fetch after fetch, until the window is full. All other
batches are first decoded into pieces; each piece, or a part of a piece, makes a window.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, TypeAlias

from topicfs.fusefs.allowance import RequestTooLargeError, current
from topicfs.fusefs.forms import VALUES
from topicfs.fusefs.views.decoded_fetch import Damage, DecodedFetch, Piece
from topicfs.fusefs.views.measure import Source
from topicfs.fusefs.views.read_ahead import LARGEST_FETCH_BYTES, TEXT_BYTES, Begun, Prefetcher, ReadGoal
from topicfs.fusefs.views.sparse_index import Entry
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.value_copy import begin_text, copy_values
from topicfs.storage.errors import SegmentDeletedError, StorageError
from topicfs.storage.model import Fetched, Offset
from topicfs.storage.remote import ThreadNeededError

TEXT_WINDOW_BYTES = TEXT_BYTES
"""Approximate size of a window, unless a read asks for more; a single record may be larger."""
LARGEST_READ_BYTES = 2**20
"""Largest read that one window serves, because the kernel requests no more at a time."""
FIRST_FETCH_BYTES = 2**17
"""Size of the first fetch from the front. Each further fetch is twice as large, up to the size of a window."""
PAGE_BYTES = 2**12
"""Extra bytes fetched at the end of a read or of a short range, because batches have headers."""

Text: TypeAlias = bytes | memoryview
"""A window's bytes, which never change."""


class Rendered(Protocol):
    """The view that is rendered."""

    @property
    def source(self) -> Source: ...

    @property
    def start_offset(self) -> Offset: ...

    def end_offset(self) -> Offset:
        """Return the current exclusive end offset of what may be shown."""

    def fetch(self, offset: Offset, max_bytes: int) -> Fetched | DecodedFetch:
        """Read the batches from an offset on, possibly already decoded. See `decoded_fetch.fetch`."""


class Rendering:
    """The rendering of a view from a position on. Not thread-safe."""

    def __init__(self, view: Rendered, size: int | None) -> None:
        """Begin at the front of a view; `size` is the view's size if it is known and the view does not grow."""
        self._view = view
        self._straight = view.source.form is VALUES
        self._plain = self._straight  # True until a compressed or aborted batch is found
        self._pieces: deque[Piece] = deque()
        self._begun: Begun | None = None  # compressed batches that are partly copied
        self._prefetcher = Prefetcher(self._fetch_chunk)  # Fetches and inflates compressed batches ahead.
        self._inflates = True  # True if values of compressed batches can probably be copied
        self._rendered = 0  # number of the first piece's records that are rendered
        self._from_offset = self._next_offset = self._end_offset = view.start_offset
        # For a short range, fetch no more than it may need.
        self._most_fetched = TEXT_WINDOW_BYTES if size is None else min(size + PAGE_BYTES, TEXT_WINDOW_BYTES)
        self._fetch_bytes = min(FIRST_FETCH_BYTES, self._most_fetched)
        self._record_bytes = 256.0  # recent average
        self._batch_share = 1.0  # recent bytes of batches per byte of text
        self._batch_bytes = 0.0  # recent average of compressed batches; 0 if none was copied

    def expect(self, size: int) -> None:
        """Choose the size of the next fetch for a read of `size` bytes, within the limits."""
        self._fetch_bytes = max(self._fetch_bytes, min(size, self._most_fetched))

    def go_to(self, offset: Offset, size: int) -> None:
        """Continue from another offset, where `size` bytes will be read."""
        self._pieces.clear()
        self._prefetcher.clear()
        self._begun, self._inflates = None, True
        self._rendered = 0
        self._next_offset = offset
        self._fetch_bytes = min(size + PAGE_BYTES, self._most_fetched)

    @property
    def next_offset(self) -> Offset:
        """Offset of the first record that is not rendered yet, or of damage that was not skipped."""
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
        """Return whether the window for a read of `size` bytes can begin with rendered text, at no extra cost."""
        return self._straight and size <= LARGEST_READ_BYTES

    def pass_damage(self) -> None:
        """Skip the damaged batch that `next` returned."""
        self._pieces.popleft()

    def next(self, begun: Text, *, least: int, step: int, front: Entry | None) -> Text | Damage | None:
        """Render the next window, which begins with `begun`; return None at the end of the view.

        The window has at least about `least` bytes, plus as many multiples of `step` as fit, so that the window ends
        where a read of that size ends. A damaged batch is returned again until it is skipped. Pass `front` if the
        view's first byte comes next. Raises SegmentDeletedError.
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
        """Render one fetch below `end_offset`, for followers; None if it shows nothing. Raises SegmentDeletedError."""
        if self._plain and not self._pieces:
            offset = self._next_offset
            if offset >= end_offset:
                return None
            fetched = self._view.source.fetch(offset, self._most_fetched)
            if isinstance(fetched, Fetched) and not fetched.aborted:
                text = begin_text(b"", len(fetched.data))
                end = copy_values(fetched.data, text, 0, start_offset=offset, end_offset=end_offset)
                if end >= 0:
                    self._next_offset = min(fetched.next_offset, end_offset)
                    return bytes(text[:end]) if end <= PAGE_BYTES else memoryview(text)[:end].toreadonly()
            self._plain = False  # The next batches are probably of the same kind.
        return self.next(b"", least=1, step=1, front=None)

    def _copied(self, begun: Text, least: int, step: int, front: Entry | None) -> Text | None:
        """Copy values to a window until a batch cannot be copied; return None if no value was copied.

        The batch that cannot be copied goes to `_pieces`.
        """
        if (prefetched := self._take_prefetched(begun, step, front)) is not None:
            return prefetched
        size = least = min(least, LARGEST_READ_BYTES)
        most, margin = self._fetch_bytes, 0
        reads_through = most == TEXT_WINDOW_BYTES
        if reads_through:
            size += max(TEXT_WINDOW_BYTES - least, 0) // step * step
            margin = TEXT_WINDOW_BYTES // 16
        # Copying needs 1/8 more space: in a batch, each record also takes a few bytes for its other fields.
        text, used, end = begin_text(begun, size + size // 8 + margin), -1, len(begun)
        while used < end < size and not self._pieces:
            used = end
            if reads_through:
                most = min(int((size - used) * self._batch_share) + margin, LARGEST_FETCH_BYTES)
            try:
                end = self._copy_more(text, used, size, most, front)
            except (SegmentDeletedError, ThreadNeededError, RequestTooLargeError):
                if used == len(begun):
                    raise  # If values were copied, the next read raises the error.
        self._fetch_bytes = min(2 * self._fetch_bytes, self._most_fetched)
        if end == len(begun):
            return None
        if reads_through and self._batch_bytes and not self._pieces:
            self._prefetch(self._next_offset, self._begun, end, step)
        if 2 * end < len(text):
            del text[end:]
        return memoryview(text)[:end].toreadonly()

    def _copy_more(self, text: bytearray, used: int, size: int, most: int, front: Entry | None) -> int:
        """Copy the values of the next fetch; return where they end in `text`. Uncopied batches go to `_pieces`."""
        end_offset = self._end_ahead(front)
        if end_offset is None:
            return used
        source, offset, begun = self._view.source, self._next_offset, self._begun
        if begun is not None and begun.offset == offset:
            end = self._copy_begun(begun, text, used, size, end_offset)
            if end >= 0:
                return end
        self._begun = None
        fetched = self._view.fetch(offset, most)
        if isinstance(fetched, DecodedFetch):
            self._keep(fetched, end_offset)
            return used
        if not fetched.aborted and len(fetched.data) <= 2 * TEXT_WINDOW_BYTES:
            end = copy_values(fetched.data, text, used, start_offset=offset, end_offset=end_offset)
            if end >= 0:
                self._next_offset = min(fetched.next_offset, end_offset)
                self._batch_share, self._batch_bytes = len(fetched.data) / max(end - used, 1), 0.0
                return end
            if self._inflates:
                begun = Begun(fetched, scan(fetched.data, check_crc=True), offset)
                end = self._copy_begun(begun, text, used, size, end_offset)
                if end >= 0:
                    return end
                # The next batches are probably of the same kind. Do not inflate them twice.
                self._inflates = False
        self._keep(source.decoded(offset, fetched), end_offset)
        return used

    def _copy_begun(self, begun: Begun, text: bytearray, used: int, size: int, end_offset: Offset) -> int:
        """Inflate batches one by one and copy their values, up to `size`; -1 if the next batch cannot be copied."""
        end, passed_bytes = begun.copy(text, used, size, self._next_offset, end_offset)
        if not passed_bytes:
            return -1
        self._go_on(begun, passed_bytes, end - used, end_offset)
        return end

    def _go_on(self, begun: Begun, passed_bytes: int, text_bytes: int, end_offset: Offset) -> None:
        """Continue after the batches that were copied, which made `text_bytes` of text."""
        self._next_offset = min(begun.offset, end_offset)
        self._begun = begun if begun.number < len(begun.batches) else None
        self._batch_bytes = len(begun.fetched.data) / len(begun.batches)
        if text_bytes:
            self._batch_share = passed_bytes / text_bytes

    def _take_prefetched(self, begun: Text, step: int, front: Entry | None) -> Text | None:
        """Return the next window if it was inflated ahead: `begun`, followed by the text of a chunk."""
        if not self._prefetcher or self._begun is not None or self._end_ahead(front) is None:
            return None
        request = current()
        if request is not None:
            request.begin(0)
        chunk = self._prefetcher.take(self._next_offset)
        if chunk is None:
            return None
        self._prefetch(chunk.next_offset, None, len(begun) + chunk.text_bytes, step)
        found = chunk.result()
        if found is None or not found.passed_bytes:
            return None
        if request is not None:
            request.remaining -= found.inflated_bytes
        self._go_on(found.begun, found.passed_bytes, found.end - found.start, chunk.end_offset)
        return found.behind(begun) if found.end > found.start else None

    def _prefetch(self, offset: Offset, begun: Begun | None, spilled: int, step: int) -> None:
        """Let threads inflate the next batches; see `Prefetcher.fill`."""
        aim = ReadGoal(step, self._batch_share, self._batch_bytes)
        if self._prefetcher.fill(offset, self._view.end_offset(), begun, spilled, aim):
            self._begun = None

    def _fetch_chunk(self, offset: Offset, max_bytes: int) -> Fetched | None:
        """Fetch batches for a thread; None if the reader must fetch them itself, so that the reader gets any error."""
        if self._view.source.partition.available_end(offset) <= offset:
            return None
        try:
            fetched = self._view.fetch(offset, max_bytes)
        except (StorageError, ThreadNeededError, OSError):
            return None
        if not isinstance(fetched, Fetched) or fetched.aborted or len(fetched.data) > 2 * TEXT_WINDOW_BYTES:
            return None
        return fetched if fetched.data else None

    def _end_ahead(self, front: Entry | None) -> Offset | None:
        """Return the current end of the view; None if the rendering has reached it."""
        self._view.source.check(self._next_offset)
        end_offset = self._view.end_offset()
        if front is not None:
            # Skip the removed records before `front`. If these records rendered to nothing, no byte is
            # missing.
            self._next_offset = max(self._next_offset, front.offset)
        return end_offset if self._next_offset < end_offset else None

    def _fetch(self, front: Entry | None) -> bool:
        end_offset = self._end_ahead(front)
        if end_offset is None:
            return False
        fetched = self._view.fetch(self._next_offset, self._fetch_bytes)
        if not isinstance(fetched, DecodedFetch):
            fetched = self._view.source.decoded(self._next_offset, fetched)
        self._keep(fetched, end_offset)
        return bool(fetched.pieces)

    def _keep(self, fetched: DecodedFetch, end_offset: Offset) -> None:
        """Take over the pieces of a fetch, to be rendered one by one."""
        self._from_offset, self._end_offset = self._next_offset, end_offset
        if fetched.pieces:
            self._next_offset = min(fetched.next_offset, end_offset)
            self._pieces.extend(fetched.below(end_offset))
            self._fetch_bytes = min(2 * self._fetch_bytes, self._most_fetched)

    def _render(self, columns: Columns) -> bytes:
        """Render all remaining records of the first piece, or one window of them."""
        first, last = self._rendered, len(columns)
        record_bytes = max(self._record_bytes, len(columns.data) / max(last, 1))
        step = max(int(TEXT_WINDOW_BYTES / record_bytes), 1)
        start_offset, end_offset = self._from_offset, self._end_offset
        if first:
            start_offset = max(start_offset, Offset(columns.offsets[first]))
        if last - first > 2 * step or len(columns.data) > 2 * TEXT_WINDOW_BYTES:
            last = min(first + step, columns.within(first, TEXT_WINDOW_BYTES))
        if last < len(columns):
            end_offset = min(end_offset, Offset(columns.offsets[last]))
        data = self._view.source.render(columns, start_offset, end_offset)
        if last < len(
            columns
        ):  # Change the state only after rendering: in a thread, this call may be repeated.
            self._rendered = last
        else:
            self._pieces.popleft()
            self._rendered = 0
        self._record_bytes = max(len(data) / max(last - first, 1), 1.0)
        return data
