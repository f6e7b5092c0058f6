"""Several partitions as one stream of lines, merged by time.

    partition 0   …  8  9 │14 15                     the smallest timestamp of all partitions' next records comes first,
    partition 1   … 10 │12  7                        if equal, the smallest partition number:  8 9 10 12 7 14 15

The records of a partition stay in offset order, whatever their timestamps. A stream is read from the front. Recently
read text is kept for reading again; an earlier position is reached by merging again from the front.
`MergedReader.extend` adds a round: records that were appended later are merged with each other and follow the records
of all earlier rounds, so that no position changes.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from topicfs.fusefs.allowance import RequestTooLargeError
from topicfs.fusefs.forms import VALUES, Form
from topicfs.fusefs.views.decoded_fetch import Damage, Piece, segment_path
from topicfs.fusefs.views.measure import Source
from topicfs.storage.codec.columns import Columns
from topicfs.storage.engine import Partition
from topicfs.storage.errors import CorruptionError, OversizeError, SegmentDeletedError
from topicfs.storage.model import Isolation, Offset

MERGE_MEMORY_BYTES = 64 * 1024 * 1024
"""Memory limit for all partitions' decoded batches and lines. Above it, the least recently used are dropped."""

LARGEST_MERGE_FETCH_BYTES = 256 * 1024
SMALLEST_MERGE_FETCH_BYTES = 1024
"""Smallest fetch from a partition, even with many partitions. (A fetch returns at least one batch.)"""

LINES_AT_ONCE = 1024
"""Largest number of lines of a partition that are rendered in one step."""

TOGETHER_BYTES = 16 * 1024 * 1024
"""Limit on the text of records that have the same offset."""

LINE_OVERHEAD_BYTES = 64
"""Approximate memory that a line takes besides its text. MERGE_MEMORY_BYTES has room for one line of each partition."""

MERGE_STEP_BYTES = 4 * 1024 * 1024
"""Bytes of text merged in one step."""

ROUNDS_AT_ONCE = 20
"""Number of steps after which merging returns to the caller, so that the caller can pause."""

PLACED_AT_ONCE = 500
"""Number of partitions whose next record is loaded before a pause."""

REREAD_BYTES = 1024 * 1024
"""Size of the text kept for reading again: programs seek back if they read too much."""

KEPT_ROUNDS = 1000
"""A stream with more rounds than this cannot be read again from its front."""


class MergedRange(NamedTuple):
    """The range of one partition that a stream reads."""

    partition: Partition
    start_offset: Offset
    end_offset: Offset
    """Exclusive end offset."""


class _MergeInput:
    """The records of a partition that are still to be merged: its next lines and, if kept, the batches after them.

    A line's sorting key is the newest timestamp among the lines loaded so far, then the partition's rank. A record
    older than its predecessor follows its predecessor directly, because no other partition's next record is older.
    """

    def __init__(self, share: MergedRange, source: Source, rank: int, ranks: int) -> None:
        self.damage: CorruptionError | None = None
        """The error that takes the place of the next line."""
        self.batch_bytes = 0
        """Upper bound on the memory of the batches that are not rendered yet."""
        self.text_bytes = 0
        """Upper bound on the size of the loaded lines."""
        self._share = share
        self._rank = rank
        self._ranks = ranks
        self._source = source
        self._fetch_bytes = max(
            SMALLEST_MERGE_FETCH_BYTES, min(LARGEST_MERGE_FETCH_BYTES, MERGE_MEMORY_BYTES // (4 * ranks))
        )
        self._next_offset = share.start_offset
        """Offset of the record after the lines already taken."""
        self._fetched_until = share.start_offset
        self._segment_base_offset, self._position = share.start_offset, 0
        """Segment and position of the last fetch."""
        self._pieces: deque[Piece] = deque()
        self._keys: list[int] = []
        self._lines: list[bytes] = []
        self._offsets: list[int] = []

    @property
    def first_key(self) -> int:
        """The sorting key of the next line, or of the error in its place."""
        # Damage has no timestamp, so it sorts first.
        return self._keys[0] if self._keys else self._rank - self._ranks

    @property
    def last_key(self) -> int:
        return self._keys[-1]

    @property
    def line_bytes(self) -> int:
        """Approximate memory that the loaded lines take."""
        return self.text_bytes + LINE_OVERHEAD_BYTES * len(self._lines)

    def load(self) -> bool:
        """Load the next lines, or the damage that takes their place (blocking); return False at the end."""
        while not self._lines and self.damage is None:
            if self._next_offset >= self._share.end_offset:
                self.drop()
                return False
            if not self._pieces:
                self._fetch()
            else:
                self._render(self._pieces[0])
        return True

    def _fetch(self) -> None:
        fetched = self._source.read(self._next_offset, self._fetch_bytes)
        self._pieces.extend(fetched.pieces)
        self._segment_base_offset, self._position = fetched.segment_base_offset, fetched.position
        self._fetched_until = max(fetched.next_offset, Offset(self._next_offset + 1))
        self.batch_bytes = fetched.size_bytes + sum(
            piece.size_bytes for piece in fetched.pieces if isinstance(piece, Columns)
        )
        if not self._pieces:
            self._next_offset = self._fetched_until

    def _render(self, piece: Piece) -> None:
        """Render the next lines of `piece`; drop the piece when all its records are rendered."""
        if isinstance(piece, Damage):
            self._next_offset = max(self._next_offset, piece.offset)
            self.damage = piece.error
            self._leave_piece()
            return
        offsets = piece.offsets
        first = bisect_left(offsets, self._next_offset)
        last = min(bisect_left(offsets, self._share.end_offset), first + LINES_AT_ONCE)
        if first >= last:
            if first < len(piece):
                self._next_offset = self._share.end_offset
            self._leave_piece()
            return
        sizes = map(
            _line_size,
            piece.key_lengths[first:last],
            piece.value_lengths[first:last],
            piece.header_lengths[first:last],
        )
        last = first + max(1, bisect_right(list(accumulate(sizes)), self._fetch_bytes))
        last = self._last_together(piece, first, last)
        if last == first:
            return
        self._offsets = offsets[first:last].tolist()
        self._lines = self._lines_of(piece, first, last)
        newest = accumulate(piece.timestamps[first:last], max)
        self._keys = [timestamp * self._ranks + self._rank for timestamp in newest]
        self.text_bytes = sum(map(len, self._lines))

    def _last_together(self, piece: Columns, first: int, last: int) -> int:
        """Return the end of the records to render now. Records with the same offset are rendered together.

        No producer writes several records with the same offset. If there are too many of them, they count as damage:
        return `first`.
        """
        offset = Offset(piece.offsets[last - 1])
        behind = bisect_right(piece.offsets, offset)
        if behind == last:
            return last
        begin = bisect_left(piece.offsets, offset)
        if begin > first:
            return begin
        size = sum(self._source.measure(piece, offset, offset + 1))
        if behind - begin <= LINES_AT_ONCE and size <= TOGETHER_BYTES:
            return behind
        batch = next(batch for batch in piece.batches if batch.record_end > begin)
        self.damage = OversizeError(
            segment_path(self._share.partition, self._segment_base_offset),
            self._position + batch.position,
            f"{behind - begin} records of offset {offset}, and {size} bytes of text",
        )
        self._next_offset = self._fetched_until = Offset(offset + 1)
        self._pieces.clear()
        return first

    def _lines_of(self, columns: Columns, first: int, last: int) -> list[bytes]:
        text = self._source.render(columns, columns.offsets[first], columns.offsets[last - 1] + 1)
        if last - first == 1:  # Avoid a copy, because the line may be large.
            return [text]
        # In this form a value may contain a line end; the other forms escape line ends.
        if self._source.form is VALUES:
            sizes = (max(0, length) + 1 for length in columns.value_lengths[first:last])
            return [text[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]
        return [line + b"\n" for line in text[:-1].split(b"\n")]

    def _leave_piece(self) -> None:
        self._pieces.popleft()
        if not self._pieces and self.damage is None:
            self._next_offset = max(self._next_offset, self._fetched_until)

    def pass_damage(self) -> CorruptionError:
        """Skip the damage and return it."""
        damage = self.damage
        assert damage is not None
        self.damage = None
        behind = self._pieces[0] if self._pieces else None
        if isinstance(behind, Columns) and len(behind):
            self._next_offset = Offset(behind.offsets[0])
        elif isinstance(behind, Damage):
            self._next_offset = behind.offset
        elif behind is None:
            self._next_offset = max(self._next_offset, self._fetched_until)
        return damage

    def take(self, below: int) -> tuple[list[int], list[bytes]]:
        """Remove the lines with keys below `below`, and return them with their keys."""
        count = bisect_left(self._keys, below)
        keys, lines = self._keys[:count], self._lines[:count]
        if keys:
            self._next_offset = Offset(self._offsets[count - 1] + 1)
            del self._keys[:count], self._lines[:count], self._offsets[:count]
        return keys, lines

    def shed(self) -> None:
        """Keep only the loaded lines. The batches after them must be read again."""
        if self._lines:
            self._pieces.clear()
            self.batch_bytes = 0
        else:
            self.drop()

    def drop(self) -> None:
        """Drop everything that is loaded."""
        self._pieces.clear()
        self._keys, self._lines, self._offsets = [], [], []
        self.damage = None
        self.batch_bytes = self.text_bytes = 0


def _line_size(key_length: int, value_length: int, header_length: int) -> int:
    return (
        key_length + value_length + header_length + LINE_OVERHEAD_BYTES
    )  # The length is -1 for a null key or value.


class _Held:
    """Memory of one kind (batches or lines) in all inputs; evicts from the least recently used inputs."""

    def __init__(self, let_go: Callable[[_MergeInput], None]) -> None:
        self.size_bytes = 0
        self._let_go = let_go
        self._sizes: OrderedDict[_MergeInput, int] = OrderedDict()

    def count(self, merge_input: _MergeInput, size_bytes: int) -> None:
        """Record the size of an input that was just used, and evict other inputs; the used input is always kept."""
        self.size_bytes += size_bytes - self._sizes.pop(merge_input, 0)
        self._sizes[merge_input] = size_bytes
        while self.size_bytes > MERGE_MEMORY_BYTES // 2 and len(self._sizes) > 1:
            idle, idle_bytes = self._sizes.popitem(last=False)
            self.size_bytes -= idle_bytes
            self._let_go(idle)


class MergedReader:
    """Reads a merged stream. Not thread-safe."""

    def __init__(self, shares: Sequence[MergedRange], form: Form, isolation: Isolation) -> None:
        self._form, self._isolation = form, isolation
        self._rounds: list[list[tuple[MergedRange, Source]]] = []
        """The first rounds, for reading again from the front: all rounds, but at most KEPT_ROUNDS + 1.

        If there are KEPT_ROUNDS + 1, reading again is refused.
        """
        self._rounds_left: deque[list[tuple[MergedRange, Source]]] = deque()
        """The rounds that are not started yet."""
        self._ends: dict[int, tuple[Offset, Source]] = {}
        """The end of the last round in each partition."""
        self.extend(shares)
        self._begin()

    def extend(self, shares: Sequence[MergedRange]) -> None:
        """Add a round: each partition's records from the end of its last round up to the end of its share."""
        ranges = list[tuple[MergedRange, Source]]()
        for share in shares:
            partition = share.partition
            start, source = self._ends.get(partition.number, (share.start_offset, None))
            if source is None or source.partition is not partition:
                source = Source(partition, self._form, self._isolation, partition.cuts)
            if start < share.end_offset:
                self._ends[partition.number] = share.end_offset, source
                ranges.append((share._replace(start_offset=start), source))
        if not ranges and self._rounds:
            return
        self._rounds_left.append(ranges)
        if len(self._rounds) <= KEPT_ROUNDS:
            self._rounds.append(ranges)

    def _begin(self) -> None:
        self._text = bytearray()
        self._position = 0
        self._error: CorruptionError | SegmentDeletedError | None = None
        self._rounds_left = deque(self._rounds)
        self._begin_round()

    def _begin_round(self) -> None:
        ranges = self._rounds_left.popleft()
        self._unplaced = [
            _MergeInput(share, source, rank, len(ranges)) for rank, (share, source) in enumerate(ranges)
        ]
        """Inputs whose next line must still be loaded."""
        self._heap: list[tuple[int, _MergeInput]] = []
        """All placed inputs, by the key of their next line."""
        self._batches = _Held(_MergeInput.shed)
        self._lines = _Held(_MergeInput.drop)

    def reach(self, position: int, size: int) -> bool:
        """Render until `read` can return [position, position + size) (blocking).

        Returns False after some steps; then call again. If the request's allowance runs out, returns whether there is
        anything to read; each call loads at least one more line and keeps it. Raises SegmentDeletedError, or
        CorruptionError at a damaged batch, which the next read skips. Text before the error can be read first.
        """
        if position < self._position:
            if len(self._rounds) > KEPT_ROUNDS:
                raise SegmentDeletedError(f"the stream can no longer be read again at {position}")
            self._begin()
        self._forget(position - REREAD_BYTES)
        for _ in range(ROUNDS_AT_ONCE):
            if self.end >= position + size:
                return True
            try:
                text = self._render_to_error()
            except RequestTooLargeError:
                return self.end > position
            if self._error is not None:
                if self.end > position:
                    return True
                error, self._error = self._error, None
                raise error
            if text is None:
                return False
            if not text:
                return True
            self._text += text
        return False

    def _render_to_error(self) -> bytes | None:
        """Render the next lines; None if an error must be raised after the text before the error was read."""
        if self._error is None:
            try:
                return self._render()
            except (CorruptionError, SegmentDeletedError) as error:
                self._error = error
        return None

    @property
    def end(self) -> int:
        """Position after the rendered text."""
        return self._position + len(self._text)

    def _forget(self, position: int) -> None:
        gone = min(position - self._position, len(self._text))
        if gone > 0:
            del self._text[:gone]
            self._position += gone

    def read(self, position: int, size: int) -> bytes:
        """Return the rendered part of [position, position + size); call `reach` first."""
        start = position - self._position
        return bytes(self._text[start : start + size])

    def _render(self) -> bytes | None:
        """Render the next lines; b"" at the end, None if more must be loaded first."""
        if not self._place():
            return None
        first = self._first()
        if first is None and self._rounds_left:
            self._begin_round()
            return None
        if first is None:
            return b""
        if first.damage is not None:
            heapq.heappop(self._heap)
            self._unplaced.append(first)
            raise first.pass_damage()
        merge_inputs: list[_MergeInput] = []
        try:
            below = self._gather(merge_inputs)
        finally:
            self._unplaced += merge_inputs
        keys: list[int] = []
        lines: list[bytes] = []
        for merge_input in merge_inputs:
            its_keys, its_lines = merge_input.take(below)
            keys += its_keys
            lines += its_lines
        for merge_input in merge_inputs:
            self._account(merge_input)
        # There are no lines if dropped data was read again and turned out to be damaged.
        return b"".join([lines[index] for index in sorted(range(len(keys)), key=keys.__getitem__)]) or None

    def _gather(self, merge_inputs: list[_MergeInput]) -> int:
        """Move the inputs with the next lines from the heap to `merge_inputs`, and return a key.

        `merge_inputs` then have all lines with smaller keys than the returned key. If loading the next input exceeds
        the request's allowance, the key is the first key of that input. Raises RequestTooLargeError if this happens
        for the first input.
        """
        size = held_bytes = 0
        horizon: int | None = None
        while self._heap and (horizon is None or self._heap[0][0] <= horizon):
            try:
                merge_input = self._first()
            except RequestTooLargeError:
                if not merge_inputs:
                    raise
                return self._heap[0][0]
            if merge_input is None:
                break
            if merge_input.damage is not None or size >= MERGE_STEP_BYTES:
                return merge_input.first_key
            heapq.heappop(self._heap)
            merge_inputs.append(merge_input)
            held_bytes += merge_input.batch_bytes
            if held_bytes > MERGE_MEMORY_BYTES:
                for each in merge_inputs:
                    each.shed()
                held_bytes = 0
            size += merge_input.text_bytes
            horizon = merge_input.last_key if horizon is None else min(horizon, merge_input.last_key)
        assert horizon is not None
        return horizon + 1

    def _first(self) -> _MergeInput | None:
        """Return the input with the next line, which is loaded; None at the end."""
        while self._heap:
            key, merge_input = self._heap[0]
            if (
                not merge_input.load()
            ):  # The loaded lines of the input were dropped, and compaction has removed their records.
                heapq.heappop(self._heap)
            elif merge_input.first_key != key:
                heapq.heapreplace(self._heap, (merge_input.first_key, merge_input))
            else:
                return merge_input
        return None

    def _place(self) -> bool:
        """Load the next lines of some unplaced inputs and put these in the heap; return whether all are in it."""
        for _ in range(min(PLACED_AT_ONCE, len(self._unplaced))):
            merge_input = self._unplaced[-1]
            if merge_input.load():
                heapq.heappush(self._heap, (merge_input.first_key, merge_input))
            self._unplaced.pop()
            self._account(merge_input)
        return not self._unplaced

    def _account(self, merge_input: _MergeInput) -> None:
        """Record the memory of `merge_input`, and evict the least recently used inputs."""
        self._batches.count(merge_input, merge_input.batch_bytes)
        self._lines.count(merge_input, merge_input.line_bytes)
