"""Chunks: pieces of text in which the end of each record is known.

    text      k0 TAB v0 LF k1 TAB v1 LF k2 TAB v2 LF
    ends                   ▲            ▲            ▲
    offsets   17           18           21           22      the offset to read after each end

A read may return any number of bytes; the ends show which records were returned in full. The ends are computed on
demand, because a program that reads whole chunks needs only the last end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from topicfs.fusefs.forms import BATCH, VALUES
from topicfs.fusefs.views.decoded_fetch import Damage, DecodedFetch, Piece
from topicfs.fusefs.views.measure import Source
from topicfs.fusefs.views.rendering import Text
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.columns import Columns, decode
from topicfs.storage.codec.value_copy import begin_text, copy_values
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset

GROUP_FETCH_BYTES = 256 * 1024
"""Size of a fetch. A fetch returns at least one batch, however large."""

LAST_OFFSET = Offset(2**63 - 1)

GROUP_CHUNK_BYTES = 256 * 1024
"""Approximate bytes of records in the text of a chunk. A chunk of a single record may be larger."""


class RecordEnd(NamedTuple):
    """The end of a record in a text."""

    position: int
    """Position in the text."""
    offset: Offset
    """Offset of the next record to read."""


class LineEnds:
    """The ends of records that are one line each. Counting resumes at the last end, so each line is counted once."""

    def __init__(self, text: bytes | bytearray, start_offset: Offset, offsets: Sequence[int]) -> None:
        self._text = text
        self._start_offset = start_offset
        self._offsets = offsets
        self._position = self._count = 0
        """The last end found, and the number of records before it."""

    def at_or_before(self, position: int) -> RecordEnd:
        end = self._text.rfind(b"\n", 0, position) + 1
        if end >= self._position:
            self._count += self._text.count(b"\n", self._position, end)
        else:
            self._count = self._text.count(b"\n", 0, end)
        self._position = end
        offset = self._offsets[self._count - 1] + 1 if self._count else self._start_offset
        return RecordEnd(end, Offset(offset))

    def at_or_after(self, position: int) -> int:
        if position == 0:
            return 0
        end = self._text.find(b"\n", position - 1)
        return len(self._text) if end < 0 else end + 1


class ListedEnds:
    """The ends of records in any form, as lists of positions and offsets."""

    def __init__(self, start_offset: Offset, positions: list[int], offsets: list[int]) -> None:
        self._positions = positions
        self._offsets = [start_offset, *offsets]

    def at_or_before(self, position: int) -> RecordEnd:
        count = bisect_right(self._positions, position)
        return RecordEnd(self._positions[count - 1] if count else 0, Offset(self._offsets[count]))

    def at_or_after(self, position: int) -> int:
        if position == 0:
            return 0
        return self._positions[min(bisect_left(self._positions, position), len(self._positions) - 1)]


RecordEnds: TypeAlias = LineEnds | ListedEnds
"""The ends of the records in a text."""


class Chunk(NamedTuple):
    """The text of adjacent records. If `error` is set, the text is empty, and `error` is the damage at this place."""

    text: Text
    start_offset: Offset
    end_offset: Offset
    """Offset of the next record to read after the chunk."""
    ends: Callable[[], RecordEnds] | None = None
    """Returns the ends of records in the text; None: a record ends only at the end of the text."""
    error: CorruptionError | None = None
    records: int = 0
    """Number of records, if the chunk was requested with a limit on records."""

    def at_or_before(self, position: int) -> RecordEnd:
        """Return the last end of a record at or before a position."""
        if position >= len(self.text):
            return RecordEnd(len(self.text), self.end_offset)
        return RecordEnd(0, self.start_offset) if self.ends is None else self.ends().at_or_before(position)

    def at_or_after(self, position: int) -> int:
        """Return the position of the first end of a record at or after a position."""
        return len(self.text) if self.ends is None else self.ends().at_or_after(position)


class ChunkReader:
    """Reads one partition from an offset on, chunk by chunk. Not thread-safe."""

    def __init__(self, source: Source, offset: Offset) -> None:
        self.source = source
        self.next_offset = offset
        """Offset of the next record to return."""
        self._pieces: deque[Piece] = deque()
        self._behind = offset
        """Offset of the next record to fetch, after all pieces that were fetched."""

    def go_to(self, offset: Offset) -> None:
        """Continue from another offset."""
        self._pieces.clear()
        self.next_offset = self._behind = offset

    def next(self, end_offset: Offset, most: int | None = None) -> Chunk | None:
        """Return the next records below an offset. None: there are none, though `next_offset` may have advanced.

        If each record is a line in this form, returns at most `most` records. Raises SegmentDeletedError, also after
        an unclean election lost records. After a ThreadNeededError the call can be repeated.
        """
        self.source.check(LAST_OFFSET)
        while self.next_offset < end_offset:
            if not self._pieces:
                before = self.next_offset
                chunk = self._fetch(end_offset, most)
                # The batches show no records, or no batch was left.
                if chunk is None and not self._pieces:
                    self.next_offset = max(self.next_offset, min(self._behind, end_offset))
                    if self.next_offset == before:
                        return None
            else:
                chunk = self._render(self._pieces[0], end_offset, most)
            if chunk is not None:
                return chunk
        return None

    def _fetch(self, end_offset: Offset, most: int | None) -> Chunk | None:
        """Read the next batches. Return their values if they can be copied in bulk; otherwise keep them as pieces."""
        source, offset = self.source, self.next_offset
        fetched = source.fetch(offset, GROUP_FETCH_BYTES)
        if isinstance(fetched, DecodedFetch):
            self._keep(fetched, end_offset)
            return None
        if source.form is VALUES and most is None and not fetched.aborted and fetched.data:
            text = begin_text(b"", len(fetched.data))
            end = copy_values(fetched.data, text, 0, start_offset=offset, end_offset=end_offset)
            if end >= 0:
                self.next_offset = self._behind = min(fetched.next_offset, end_offset)
                del text[end:]
                whole = memoryview(text).toreadonly()
                ends = cache(partial(_ends_of_values, fetched.data, text, offset, self.next_offset))
                return Chunk(whole, offset, self.next_offset, ends) if end else None
        self._keep(source.decoded(offset, fetched), end_offset)
        return None

    def _keep(self, fetched: DecodedFetch, end_offset: Offset) -> None:
        self._pieces.extend(fetched.below(end_offset))
        self._behind = min(fetched.next_offset, end_offset)

    def _render(self, piece: Piece, end_offset: Offset, most: int | None) -> Chunk | None:
        if isinstance(piece, Damage):
            self._pieces.popleft()
            offset = max(piece.offset, self.next_offset)
            self.next_offset = self._start_of_next(end_offset)
            return Chunk(b"", offset, self.next_offset, error=piece.error)
        if self.source.form is BATCH:
            return self._render_batches(piece, end_offset)
        return self._render_lines(piece, end_offset, most)

    def _start_of_next(self, end_offset: Offset) -> Offset:
        """Return the first offset of the next piece, after a piece was removed."""
        if not self._pieces:
            return min(self._behind, end_offset)
        piece = self._pieces[0]
        offset = piece.offset if isinstance(piece, Damage) else piece.batches[0].base_offset
        return Offset(min(max(offset, self.next_offset), end_offset))

    def _render_batches(self, piece: Columns, end_offset: Offset) -> Chunk | None:
        """Render whole batches. The first batch is included even if some of its records are already done."""
        start_offset = self.next_offset
        self._pieces.popleft()
        first = min(piece.batches[0].base_offset, start_offset)
        text = self.source.render(piece, first, end_offset)
        sizes = self.source.measure(piece, first, end_offset)
        self.next_offset = self._start_of_next(end_offset)
        if not text:
            return None
        ends = ListedEnds(start_offset, list(accumulate(sizes)), [b.end_offset for b in piece.batches])
        return Chunk(text, start_offset, self.next_offset, lambda: ends)

    def _render_lines(self, piece: Columns, end_offset: Offset, most: int | None) -> Chunk | None:
        """Render the remaining records of a piece, or at most a chunk of them."""
        start_offset, offsets = self.next_offset, piece.offsets
        first, last = piece.find(start_offset), piece.find(end_offset)
        if first < last:
            last = min(last, piece.within(first, GROUP_CHUNK_BYTES), last if most is None else first + most)
        text = b""
        if first < last:  # Render first, because this call may have to be repeated in a thread.
            text = self.source.render(piece, offsets[first], offsets[last - 1] + 1)
        if last < len(piece) and offsets[last] < end_offset:
            self.next_offset = Offset(offsets[last])
        else:
            self._pieces.popleft()
            self.next_offset = self._start_of_next(end_offset)
        if first == last:
            return None
        shown = offsets[first:last]
        ends: RecordEnds = LineEnds(text, start_offset, shown)
        if text.count(b"\n") != last - first:  # Values may contain LFs.
            ends = _ends_by_length(start_offset, piece.value_lengths[first:last], shown)
        return Chunk(text, start_offset, self.next_offset, lambda: ends, records=last - first)


def _ends_by_length(start_offset: Offset, lengths: Iterable[int], offsets: Iterable[int]) -> ListedEnds:
    """Return the ends of values of these lengths (-1: null), each followed by LF."""
    positions = list(accumulate(max(length, 0) + 1 for length in lengths))
    return ListedEnds(start_offset, positions, [offset + 1 for offset in offsets])


def _ends_of_values(
    data: memoryview, text: bytearray, start_offset: Offset, end_offset: Offset
) -> RecordEnds:
    """Return the ends of the values in [start_offset, end_offset).

    `text` has the values of whole batches, copied from `data`. In most cases the batches need not be decoded.
    """
    if text.count(b"\n") == end_offset - start_offset and _has_each_offset(data, start_offset, end_offset):
        return LineEnds(text, start_offset, range(start_offset, end_offset))
    lengths: list[int] = []
    offsets: list[int] = []
    for columns in decode(data):
        first, last = columns.find(start_offset), columns.find(end_offset)
        lengths += columns.value_lengths[first:last]
        offsets += columns.offsets[first:last]
    return _ends_by_length(start_offset, lengths, offsets)


def _has_each_offset(data: memoryview, start_offset: Offset, end_offset: Offset) -> bool:
    """Return whether the batches have a visible record for each offset in the range."""
    behind = start_offset
    for batch in scan(data):
        dense = batch.record_count == batch.end_offset - batch.base_offset and not batch.is_control
        if not dense or batch.base_offset > behind:
            return False
        behind = batch.end_offset
    return behind >= end_offset
