"""The next stretches of a log that is read through, inflated by threads while the window before is given out.

    window given out │ stretch, inflated by a thread │ stretch, being inflated │ not fetched yet …
                     ▲ its reader waits here for the first of them

A stretch is fetched by its reader's own thread, so that no thread is left at work on a file of a topic that is deleted, or of
a mount that ends.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from topicfs.fusefs.views.ahead.stretch import Begun, Stretch
from topicfs.storage.codec.binary.fields import POSITION, ROW_SIZE
from topicfs.storage.model import Fetched, Offset

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


class Aim(NamedTuple):
    """The wishes of a reader for its next stretches."""

    step: int
    """Bytes of text that it reads at once: best each stretch ends a little behind the end of a read."""
    batch_share: float
    """Bytes of batches for one of text, as copied lately."""
    batch_bytes: float
    """Size of a batch, on average."""

    def text_bytes(self, spilled: int) -> int:
        """Return the bytes of text of a stretch that follows so many bytes behind the start of a read."""
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
        """Return whether there are any."""
        return bool(self._stretches)

    def take(self, offset: Offset) -> Stretch | None:
        """Return the first stretch if it begins at an offset; where it begins elsewhere, forget all."""
        if self._stretches[0].offset == offset:
            return self._stretches.popleft()
        self._stretches.clear()
        return None

    def clear(self) -> None:
        """Forget all."""
        self._stretches.clear()

    def fill(self, offset: Offset, end_offset: Offset, begun: Begun | None, spilled: int, aim: Aim) -> bool:
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
