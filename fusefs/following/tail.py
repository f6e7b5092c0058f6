"""The tail of a partition: its newest records, rendered once per form for all followers.

    rendered    ···┌────────┬────────┬────────┐
                   │ chunk  │ chunk  │ chunk  │◄─ the first follower who gets here renders the next
    followers      └────────┴────────┴────────┘
                   ▲slow    ▲▲▲              ▲▲▲▲▲▲ waiting

A follower goes from chunk to chunk. Chunks are kept for slow followers, up to a limit for the whole mount. A follower
whose next chunk is no longer kept renders records itself, as `cat log` does, until it reaches the next kept chunk.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TypeAlias

from topicfs.fusefs.allowance import take_turn
from topicfs.fusefs.views.decoded_fetch import Damage, DecodedFetch
from topicfs.fusefs.views.measure import Source
from topicfs.fusefs.views.rendering import Rendering, Text
from topicfs.storage.model import Fetched, Offset

TAIL_FETCH_BYTES = 256 * 1024
"""Size of a fetch. A fetch returns at least one batch, however large."""

TAIL_CACHE_BYTES = 16 * 2**20
"""Limit on the bytes of the kept chunks of all tails of a mount, enough for some tens of reads per slow follower."""

CHUNK_OVERHEAD_BYTES = 1024
"""Memory that a chunk takes besides its text."""


Chunk: TypeAlias = tuple[Text, Offset]
"""Text rendered in one pass, and the exclusive end offset of its records."""


class Tail:
    """The tail of one partition in one form. Thread-safe."""

    def __init__(self, source: Source, tails: Tails) -> None:
        self.source = source
        self.followers = 0
        self._tails = tails
        self._turn = threading.Lock()
        self._rendering: Rendering | None = None
        self.chunks: dict[Offset, Chunk] = {}
        """Chunks by the offset of their first record; usually each chunk begins where the previous chunk ends."""
        self.start_offset = self._end_offset = Offset(0)

    def end_offset(self) -> Offset:
        """Exclusive end of the records that may be shown now."""
        return self.source.visible_end()

    def fetch(self, offset: Offset, max_bytes: int) -> Fetched | DecodedFetch:
        return self.source.fetch(offset, max_bytes)

    def extend(self, offset: Offset, end_offset: Offset) -> Chunk | None:
        """Render the chunk from `offset` on, below `end_offset`, if the tail ends at `offset`; otherwise return None.

        Raises SegmentDeletedError.
        """
        take_turn(self._turn)
        try:
            chunk = self.chunks.get(offset)
            if chunk is not None or offset < self._end_offset:
                return chunk
            rendering = self._rendering
            if rendering is None or offset > self._end_offset:
                rendering = self._begin(offset)
            found = rendering.next_fetch(end_offset)
            if isinstance(found, Damage):
                rendering.pass_damage()  # A follower reports the damage when that follower reaches the damaged batch.
                self._end_offset = rendering.next_offset
                return None
            self._end_offset = rendering.next_offset
            text = found or b""
            if self.followers > 1 and self._end_offset > offset:
                self.chunks[offset] = text, self._end_offset
                self._tails.keep(self, offset, len(text))
            return text, self._end_offset
        finally:
            self._turn.release()

    def _begin(self, offset: Offset) -> Rendering:
        """Start a rendering at `offset`: there is none yet, or a follower at `offset` is ahead of all others."""
        self.start_offset = self._end_offset = offset
        self._rendering = Rendering(self, TAIL_FETCH_BYTES)
        return self._rendering

    def next_start(self, offset: Offset) -> Offset:
        """Return the offset where a slow reader at `offset` can use the tail again.

        This is the start of the next kept chunk, or the end of the tail.
        """
        return min((start for start in self.chunks.copy() if start > offset), default=self._end_offset)


class Tails:
    """The followed tails of a mount. Thread-safe."""

    def __init__(self, kept_bytes: int = TAIL_CACHE_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        self._tails: dict[Source, Tail] = {}
        self._kept: deque[tuple[Tail, Offset, int]] = deque()
        self._bytes = 0

    @property
    def kept_chunks(self) -> int:
        return sum(len(tail.chunks) for tail in self._tails.values())

    def attach(self, source: Source) -> Tail:
        """Return the tail of a source, and count another follower of the tail."""
        with self._lock:
            tail = self._tails.get(source)
            if tail is None:
                tail = self._tails[source] = Tail(source, self)
            tail.followers += 1
            return tail

    def detach(self, tail: Tail) -> None:
        """Remove a follower from a tail. When a tail has no followers any more, it is dropped."""
        with self._lock:
            tail.followers -= 1
            if not tail.followers:
                del self._tails[tail.source]
                tail.chunks.clear()

    def keep(self, tail: Tail, offset: Offset, text_bytes: int) -> None:
        """Count a kept chunk, and drop the oldest chunks if the tails keep too much."""
        size = text_bytes + CHUNK_OVERHEAD_BYTES
        with self._lock:
            self._kept.append((tail, offset, size))
            self._bytes += size
            while self._bytes > self._kept_bytes:
                tail, offset, size = self._kept.popleft()
                self._bytes -= size
                tail.chunks.pop(offset, None)
