"""The next stretches of a log that is read through, inflated by threads while the window before is given out.

    window given out │ stretch, inflated by a thread │ stretch, being inflated │ not fetched yet …
                     ▲ its reader waits here for the first of them

A stretch is fetched by its reader's own thread, so that no thread is left at work on a file of a topic that is deleted, or of
a mount that ends. A thread copies a bounded number of bytes and touches no file. What it cannot copy is left to the reader,
which comes to it in order and finds out what is wrong.
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

log = logging.getLogger("topicfs")

LARGEST_CONTENT_BYTES = 2**20
"""To which a batch may inflate in a thread ahead of its reader."""
STRETCH_CONTENT_BYTES = 4 * 2**20
"""Bytes inflated of one stretch, about, after which the rest of it is left to the reader."""
ROOM_BYTES = 2**17
"""Left free in front of a stretch's text, for what a read that begins further in front has to find there, too."""


class Begun:
    """Batches that were fetched together, up to where they are copied."""

    __slots__ = ("batches", "fetched", "number", "offset")

    def __init__(self, fetched: Fetched, batches: Batches, offset: Offset) -> None:
        self.fetched, self.batches = fetched, batches
        self.offset, self.number = offset, 0
        """Offset at which reading them goes on, and index of the batch that holds it."""

    def copy(
        self, text: bytearray, used: int, size: int, start_offset: Offset, end_offset: Offset
    ) -> tuple[int, int]:
        """Copy values to `text` from `used` on until it has `size` bytes, or to a batch that cannot be copied.

        Return where they end, and the bytes of the batches copied. Raises ThreadNeededError and RequestTooLargeError as the
        request's allowance has it.
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
        """Take note that the batches from number `first` on were copied; return their bytes."""
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
        """True if no batch is left, nor damage behind them."""
        return self.number == len(self.batches) and self.batches.problem is None


class Inflated(NamedTuple):
    """The result of a stretch: the text of its first batches, in a buffer with room in front of it."""

    begun: Begun
    passed_bytes: int
    """Bytes of the batches that were copied."""
    inflated_bytes: int
    text: bytearray
    start: int
    end: int

    def behind(self, begun: bytes | memoryview) -> memoryview:
        """Return the text with what is `begun` in front of it."""
        text, start = self.text, self.start - len(begun)
        if start < 0:
            return memoryview(b"".join((begun, memoryview(text)[self.start : self.end])))
        text[start : self.start] = begun
        return memoryview(text)[start : self.end].toreadonly()


class Stretch:
    """Batches whose values are copied by whoever comes first, a thread or the one who needs them."""

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
        """Take what was fetched, or the rest of it where some batches are copied (`begun`), from an offset on.

        It is shown up to `end_offset`, and has about `text_bytes` then.
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
        """Offset at which reading goes on behind the stretch."""
        return min(self._fetched.next_offset, self.end_offset)

    @property
    def text_bytes(self) -> int:
        """Size of its text, or what is known of it."""
        found = self._found
        return self._text_bytes if found is None else found.end - found.start

    def give_up(self) -> None:
        """Drop the result, or the work if nobody has begun it."""
        self._wanted = False
        if self._claim.acquire(blocking=False):
            self._done.release()
        self._found = None

    def inflate(self) -> None:
        """Do the work, if nobody has begun it. Never raises."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            found = self._inflated()
            if self._wanted:
                self._found = found
        except Exception:
            log.exception("%d: inflating ahead: unexpected", self.offset)
        finally:
            self._done.release()

    def result(self) -> Inflated | None:
        """Return the result, having done the work or waited for it; None if it was given up, or failed."""
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
        while begun.number < count and taken < STRETCH_CONTENT_BYTES and self._wanted:
            copied, used, inflated_bytes = copy_inflated(
                fetched.data,
                begun.batches.rows,
                text,
                used,
                first=begun.number,
                size=ROOM_BYTES + STRETCH_CONTENT_BYTES,
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
"""Text of a stretch, about, unless a read asks for more."""
LARGEST_FETCH_BYTES = 2**20
"""Most bytes of batches, whatever is asked for: a read(2) of more than a MiB is slower than two."""
MOST_THREADS = 4
MOST_STRETCHES = 16
"""Stretches begun and not used up, of all readers together."""
PAUSE_SECONDS = 1.0
"""A stretch that was not used up for so long is given up where another one needs its place: its reader has stopped."""


class Pool:
    """Threads that inflate stretches, one a processor; none where there is only one. Safe from any thread."""

    def __init__(self, processors: int) -> None:
        self.threads = min(processors, MOST_THREADS) if processors > 1 else 0
        self._begun = 0
        self._lock = threading.Lock()
        self._queue: SimpleQueue[weakref.ref[Stretch]] = SimpleQueue()
        self._kept: deque[tuple[weakref.ref[Stretch], float]] = deque()

    def begin(self, stretch: Stretch) -> bool:
        """Have a stretch inflated by the next thread that is free; False if there are too many that are not used up yet."""
        now, reference = time.monotonic(), weakref.ref(stretch)
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
        """Make room for a stretch, if need be by giving up one whose reader has stopped."""
        if len(self._kept) < MOST_STRETCHES:
            return True
        self._kept = deque(kept for kept in self._kept if kept[0]() is not None)
        if len(self._kept) < MOST_STRETCHES:
            return True
        oldest, since = self._kept[0]
        stretch = oldest()
        if now - since < PAUSE_SECONDS:
            return False
        if stretch is not None:
            stretch.give_up()
        self._kept.popleft()
        return True

    def _work(self) -> None:
        while True:
            stretch = self._queue.get()()
            if stretch is not None:
                stretch.inflate()
            del stretch


POOL = Pool(len(os.sched_getaffinity(0)))
"""The process's."""


class ReadGoal(NamedTuple):
    """The wishes of a reader for its next stretches."""

    step: int
    """Bytes of text that it reads at once: best each stretch ends a little behind the end of a read."""
    batch_share: float
    """Bytes of batches for one of text, as copied lately."""
    batch_bytes: float
    """Size of a batch, on average."""

    def text_bytes(self, spilled: int) -> int:
        """Return the best size of a stretch, in bytes of text. It begins `spilled` bytes after the start of a read."""
        whole = max(TEXT_BYTES // self.step, 1) * self.step
        margin = int(self.batch_bytes / self.batch_share / 2) + TEXT_BYTES // 32
        size = whole - spilled % self.step + margin
        return size if 2 * size > whole else size + self.step

    def fetch_bytes(self, text_bytes: int) -> int:
        """Return the bytes of batches to fetch for them: half a batch more, for what is fetched ends at a whole one."""
        return min(int(text_bytes * self.batch_share + self.batch_bytes / 2), LARGEST_FETCH_BYTES)

    def rest(self, begun: Begun) -> int:
        """Return about how much text the batches that are left will make."""
        left = len(begun.fetched.data) - begun.batches.rows[begun.number * ROW_SIZE + POSITION]
        return int(left / self.batch_share)


class Ahead:
    """The stretches ahead of one reader. One caller at a time."""

    def __init__(self, fetch: Callable[[Offset, int], Fetched | None]) -> None:
        """Begin with none; `fetch` returns some bytes of batches from an offset on, or None where that is not to be tried."""
        self._fetch = fetch
        self._pool = POOL
        self._stretches: deque[Stretch] = deque()

    def __bool__(self) -> bool:
        return bool(self._stretches)

    def take(self, offset: Offset) -> Stretch | None:
        """Return the first stretch if it begins at an offset; where it begins elsewhere, forget all."""
        if self._stretches[0].offset == offset:
            return self._stretches.popleft()
        self._stretches.clear()
        return None

    def clear(self) -> None:
        self._stretches.clear()

    def fill(
        self, offset: Offset, end_offset: Offset, begun: Begun | None, spilled: int, aim: ReadGoal
    ) -> bool:
        """Begin stretches behind those there are, up to one a thread; return whether one has what was `begun`.

        The first one is at an offset, and may be the rest of batches that were begun; behind the start of a read
        `spilled` bytes of text stand in front of it.
        """
        stretches, most = self._stretches, self._pool.threads
        taken_over = False
        if stretches:
            offset, begun = stretches[-1].next_offset, None
            spilled += sum(stretch.text_bytes for stretch in stretches)
        while len(stretches) < most and offset < end_offset:
            if begun is None:
                text_bytes = aim.text_bytes(spilled)
                fetched = self._fetch(offset, aim.fetch_bytes(text_bytes))
            else:
                text_bytes, fetched = aim.rest(begun), begun.fetched
            if fetched is None:
                break
            stretch = Stretch(fetched, offset, end_offset, text_bytes=text_bytes, begun=begun)
            if not self._pool.begin(stretch):
                break
            stretches.append(stretch)
            taken_over = taken_over or begun is not None
            offset, begun = stretch.next_offset, None
            spilled += text_bytes
        return taken_over
