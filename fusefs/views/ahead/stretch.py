"""Batches that were fetched together, and their values copied to lines of text by whoever comes first.

What a thread does with them is a matter of bytes alone, and of a bounded number of them: it touches no file. Whatever
cannot be copied is left to the reader, which comes to it in order and finds out what is wrong.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

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


@dataclass(slots=True)
class Begun:
    """Batches that were fetched together, up to where they are copied."""

    fetched: Fetched
    batches: Batches
    offset: Offset
    """Offset at which reading them goes on."""
    number: int = 0
    """Index of the batch that holds it."""

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


@dataclass(slots=True)
class Inflated:
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
