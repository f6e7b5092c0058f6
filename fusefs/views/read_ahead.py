"""Read-ahead for compressed logs: threads inflate the next chunks while the reader returns the window before them.

    window given out │ chunk, inflated by a thread │ chunk, being inflated │ not fetched yet …
                     ▲ its reader waits here for the first of them

A chunk is the text of batches that were fetched together. The reader's own thread fetches the batches, so that no
other thread reads a file after its topic was deleted, or after the mount has begun to end. A thread copies a bounded
number of bytes. If a thread cannot copy a batch, the reader decodes this batch in order and finds the error.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from topicfs.fusefs.allowance import current
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.binary.fields import LAST_OFFSET, POSITION, ROW_SIZE, SIZE_BYTES
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.codec.headers import Batches
from topicfs.storage.codec.value_copy import begin_text, copy_inflated
from topicfs.storage.model import Fetched, Offset

_LOGGER = logging.getLogger("topicfs")

LARGEST_CONTENT_BYTES = 2**20
"""A batch that inflates to more than this is left to the reader."""
CHUNK_CONTENT_BYTES = 4 * 2**20
"""A thread stops after about this many inflated bytes of a chunk; the reader inflates the remaining batches."""
ROOM_BYTES = 2**17
"""Free space before a chunk's text. If text of the same read precedes the chunk, that text is put there."""


class Begun:
    """Batches that were fetched together, and how many of them have been copied."""

    __slots__ = ("batches", "fetched", "number", "offset")

    def __init__(self, fetched: Fetched, batches: Batches, offset: Offset) -> None:
        self.fetched, self.batches = fetched, batches
        self.offset, self.number = offset, 0
        """The next offset to read, and the index of the batch that contains this offset."""

    def copy(
        self, text: bytearray, used: int, size: int, start_offset: Offset, end_offset: Offset
    ) -> tuple[int, int]:
        """Copy values into `text` from `used` on, up to `size` bytes or up to a batch that cannot be copied.

        Return the position where the text ends, and the size of the copied batches. Raises ThreadNeededError and
        RequestTooLargeError if the request's allowance does not suffice.
        """
        data, rows, first, request = self.fetched.data, self.batches.rows, self.number, current()
        limit = MAX_CONTENT_BYTES if request is None else request.begin(len(data))
        while self.number < len(self.batches) and used < size:
            copied, used, inflated_bytes = copy_inflated(
                data,
                rows,
                text,
                used,
                first=self.number,
                size=size,
                start_offset=start_offset,
                end_offset=end_offset,
                max_content_bytes=limit,
            )
            self.number += copied
            if not copied:
                break
            if request is not None:
                request.remaining -= inflated_bytes
                if request.is_late or request.remaining <= 0:
                    break
        return used, self.passed(first)

    def passed(self, first: int) -> int:
        """Update `offset` after the batches from index `first` on were copied; return their size."""
        if self.number == first:
            return 0
        rows = self.batches.rows
        last = (self.number - 1) * ROW_SIZE
        self.offset = Offset(rows[last + LAST_OFFSET] + 1)
        if self.is_copied:
            self.offset = self.fetched.next_offset
        return rows[last + POSITION] + rows[last + SIZE_BYTES] - rows[first * ROW_SIZE + POSITION]

    @property
    def is_copied(self) -> bool:
        """True if neither batches nor damage are left."""
        return self.number == len(self.batches) and self.batches.problem is None


class Inflated(NamedTuple):
    """A finished chunk: the text of its first batches, in a buffer with free space before the text."""

    begun: Begun
    passed_bytes: int
    """Size of the copied batches."""
    inflated_bytes: int
    text: bytearray
    start: int
    end: int

    def behind(self, begun: bytes | memoryview) -> memoryview:
        """Return the text with `begun` in front of it."""
        text, start = self.text, self.start - len(begun)
        if start < 0:
            return memoryview(b"".join((begun, memoryview(text)[self.start : self.end])))
        text[start : self.start] = begun
        return memoryview(text)[start : self.end].toreadonly()


class PrefetchChunk:
    """Batches to inflate, by a thread or by the reader, depending on which starts first."""

    __slots__ = (
        "__weakref__",
        "_begun",
        "_claim",
        "_done",
        "_fetched",
        "_found",
        "_text_bytes",
        "_wanted",
        "end_offset",
        "offset",
    )

    def __init__(
        self,
        fetched: Fetched,
        offset: Offset,
        end_offset: Offset,
        *,
        text_bytes: int,
        begun: Begun | None = None,
    ) -> None:
        """Prepare the batches in `fetched` from `offset` on; `begun` is given if some of them are already copied.

        Values are shown up to `end_offset`; `text_bytes` is their expected size.
        """
        self.offset = offset
        self.end_offset = end_offset
        self._fetched = fetched
        self._begun = begun
        self._text_bytes = text_bytes
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._wanted = True
        self._found: Inflated | None = None

    @property
    def next_offset(self) -> Offset:
        return min(self._fetched.next_offset, self.end_offset)

    @property
    def text_bytes(self) -> int:
        """Size of the text; an estimate until the text is inflated."""
        found = self._found
        return self._text_bytes if found is None else found.end - found.start

    def give_up(self) -> None:
        """Drop the result, or cancel the work if it has not started."""
        self._wanted = False
        if self._claim.acquire(blocking=False):
            self._done.release()
        self._found = None

    def inflate(self) -> None:
        """Inflate the batches unless another thread has started. Never raises."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            found = self._inflated()
            if self._wanted:
                self._found = found
        except Exception:
            _LOGGER.exception("%d: inflating ahead: unexpected", self.offset)
        finally:
            self._done.release()

    def result(self) -> Inflated | None:
        """Return the result, after inflating the batches, or after waiting for another thread that inflates them.

        Returns None if the chunk was canceled or failed.
        """
        if not self._wanted:
            return None
        self.inflate()
        with self._done:
            return self._found

    def _inflated(self) -> Inflated:
        fetched, room = self._fetched, self._text_bytes + self._text_bytes // 8
        begun = self._begun or Begun(fetched, scan(fetched.data, check_crc=True), self.offset)
        first, count = begun.number, len(begun.batches)
        text, used, taken = begin_text(b"", ROOM_BYTES + room), ROOM_BYTES, 0
        while begun.number < count and taken < CHUNK_CONTENT_BYTES and self._wanted:
            copied, used, inflated_bytes = copy_inflated(
                fetched.data,
                begun.batches.rows,
                text,
                used,
                first=begun.number,
                size=ROOM_BYTES + CHUNK_CONTENT_BYTES,
                start_offset=self.offset,
                end_offset=self.end_offset,
                max_content_bytes=LARGEST_CONTENT_BYTES,
            )
            if not copied:
                break
            begun.number += copied
            taken += inflated_bytes
        return Inflated(begun, begun.passed(first), taken, text, ROOM_BYTES, used)


TEXT_BYTES = 2**19
"""Approximate text size of a chunk, unless a read asks for more."""
LARGEST_FETCH_BYTES = 2**20
"""Limit on the bytes of batches in a fetch, because a read(2) of more than 1 MiB is slower than two smaller reads."""
MAX_READ_AHEAD_THREADS = 4
MAX_CHUNKS = 16
"""Limit, over all readers, on chunks that were started and not used yet."""
STOPPED_READER_SECONDS = 1.0
"""If a chunk was not used for this long, its reader has stopped. If space is needed, the chunk is then canceled."""


class Pool:
    """Threads that inflate chunks, one per processor (up to 4); no threads on a single processor. Thread-safe."""

    def __init__(self, processors: int) -> None:
        self.threads = min(processors, MAX_READ_AHEAD_THREADS) if processors > 1 else 0
        self._begun = 0
        self._lock = threading.Lock()
        self._queue: SimpleQueue[weakref.ref[PrefetchChunk]] = SimpleQueue()
        self._kept: deque[tuple[weakref.ref[PrefetchChunk], float]] = deque()

    def begin(self, chunk: PrefetchChunk) -> bool:
        """Queue a chunk for the next free thread; return False if too many chunks wait to be used."""
        now, reference = time.monotonic(), weakref.ref(chunk)
        with self._lock:
            if not self._has_room(now):
                return False
            self._kept.append((reference, now))
            if self._begun < self.threads:
                self._begun += 1
                threading.Thread(target=self._work, name="inflating", daemon=True).start()
        self._queue.put(reference)
        return True

    def _has_room(self, now: float) -> bool:
        """Return whether there is room for a chunk; if necessary, cancel an abandoned chunk."""
        if len(self._kept) < MAX_CHUNKS:
            return True
        self._kept = deque(kept for kept in self._kept if kept[0]() is not None)
        if len(self._kept) < MAX_CHUNKS:
            return True
        oldest, since = self._kept[0]
        chunk = oldest()
        if now - since < STOPPED_READER_SECONDS:
            return False
        if chunk is not None:
            chunk.give_up()
        self._kept.popleft()
        return True

    def _work(self) -> None:
        while True:
            chunk = self._queue.get()()
            if chunk is not None:
                chunk.inflate()
            del chunk


POOL = Pool(len(os.sched_getaffinity(0)))
"""The threads of this process."""


class ReadGoal(NamedTuple):
    """What a reader knows about the chunks that it needs next."""

    step: int
    """Size of the reader's reads in bytes of text; a chunk should end a little after the end of a read."""
    batch_share: float
    """Bytes of batches per byte of text, from the last copies."""
    batch_bytes: float
    """Average size of a batch."""

    def text_bytes(self, spilled: int) -> int:
        """Return the best text size of a chunk, if the chunk begins `spilled` bytes after the start of a read."""
        whole = max(TEXT_BYTES // self.step, 1) * self.step
        margin = int(self.batch_bytes / self.batch_share / 2) + TEXT_BYTES // 32
        size = whole - spilled % self.step + margin
        return size if 2 * size > whole else size + self.step

    def fetch_bytes(self, text_bytes: int) -> int:
        """Return how many bytes of batches to fetch. It adds half a batch, because a fetch ends at a whole batch."""
        return min(int(text_bytes * self.batch_share + self.batch_bytes / 2), LARGEST_FETCH_BYTES)

    def rest(self, begun: Begun) -> int:
        """Return about how many bytes of text the remaining batches of `begun` will make."""
        left = len(begun.fetched.data) - begun.batches.rows[begun.number * ROW_SIZE + POSITION]
        return int(left / self.batch_share)


class Prefetcher:
    """The chunks that are inflated ahead for one reader. Not thread-safe."""

    def __init__(self, fetch: Callable[[Offset, int], Fetched | None]) -> None:
        """`fetch` returns batches from an offset on, or None if these batches should not be read ahead."""
        self._fetch = fetch
        self._pool = POOL
        self._chunks: deque[PrefetchChunk] = deque()

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def take(self, offset: Offset) -> PrefetchChunk | None:
        """Return the first chunk if it begins at `offset`; otherwise drop all chunks."""
        if self._chunks[0].offset == offset:
            return self._chunks.popleft()
        self._chunks.clear()
        return None

    def clear(self) -> None:
        self._chunks.clear()

    def fill(
        self, offset: Offset, end_offset: Offset, begun: Begun | None, spilled: int, aim: ReadGoal
    ) -> bool:
        """Add chunks, at most one per thread; return whether one of them took over `begun`.

        The first chunk starts at `offset`, and continues `begun` if that is given. `spilled` is the number of bytes
        of text between the start of a read and the first chunk.
        """
        chunks, most = self._chunks, self._pool.threads
        taken_over = False
        if chunks:
            offset, begun = chunks[-1].next_offset, None
            spilled += sum(chunk.text_bytes for chunk in chunks)
        while len(chunks) < most and offset < end_offset:
            if begun is None:
                text_bytes = aim.text_bytes(spilled)
                fetched = self._fetch(offset, aim.fetch_bytes(text_bytes))
            else:
                text_bytes, fetched = aim.rest(begun), begun.fetched
            if fetched is None:
                break
            chunk = PrefetchChunk(fetched, offset, end_offset, text_bytes=text_bytes, begun=begun)
            if not self._pool.begin(chunk):
                break
            chunks.append(chunk)
            taken_over = taken_over or begun is not None
            offset, begun = chunk.next_offset, None
            spilled += text_bytes
        return taken_over
