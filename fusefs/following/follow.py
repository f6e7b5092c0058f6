"""The open `follow` file: the records that arrive from its opening on, of one partition or of a whole topic."""

from __future__ import annotations

import errno
import select
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fusefs.errors import FileError
from fusefs.following.waiting import WaitingReads
from fusefs.forms import Form
from storage.codec.columns import decode
from storage.engine import Partition
from storage.model import Isolation, Offset

FETCH_BYTES = 256 * 1024
"""Batches read at once; at least one, however large."""


class Notify(Protocol):
    """Tells the kernel, once, that a file it polled has become readable."""

    def notify(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Followed:
    """What is followed: the partitions as they are now, and how one learns of news of any of them."""

    path: str
    """`/orders/0/follow`: the file under the mount."""
    partitions: Callable[[], Mapping[int, Partition]]
    """By number. Raises FileError (ESTALE) once the topic is deleted."""
    listen: Callable[[Callable[[], None]], Callable[[], None]]
    form: Form
    isolation: Isolation


class FollowHandle:
    """One open(2) of `follow`: a stream that goes on where the last read ended.

    Programs that took more than they need (`head`, `grep -m`, bash's `read`) seek back to what they leave to the next
    one; so the last bytes given out can be read again.
    """

    def __init__(
        self, followed: Followed, waiting: WaitingReads, *, opener_pid: int, nonblocking: bool
    ) -> None:
        self._followed = followed
        self._waiting = waiting
        self._opener_pid = opener_pid
        self._nonblocking = nonblocking
        self._next = {number: self._visible_end(p) for number, p in followed.partitions().items()}
        self._rest = memoryview(b"")
        self._position = 0
        self._last = b""
        self._poll: Notify | None = None
        self._cancel_poll: Callable[[], None] | None = None

    def _visible_end(self, partition: Partition) -> Offset:
        return partition.offsets().visible_end(self._followed.isolation)

    async def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes of what has arrived and was not read yet; waits where there is none.

        A program that asks for one byte gets one: the rest is kept for its next read. Raises FileError: EAGAIN
        when opened with O_NONBLOCK and nothing is new, EINTR, EMFILE, ESTALE; ESPIPE further back than the last read.
        """
        if position < self._position:
            return self._again(position, size)
        while not self._fill():
            if self._nonblocking:
                raise FileError(errno.EAGAIN)
            await self._waiting.wait(self._followed.listen, pid=self._opener_pid, path=self._followed.path)
        self._last, self._rest = bytes(self._rest[:size]), self._rest[size:]
        self._position = position + len(self._last)
        return self._last

    def _again(self, position: int, size: int) -> bytes:
        start = len(self._last) - (self._position - position)
        if start < 0:
            raise FileError(errno.ESPIPE, "what was read before is gone; `log` has it")
        return self._last[start : start + size]

    def _fill(self) -> bool:
        """Render what has arrived, partition by partition; False where there is nothing."""
        if self._rest:
            return True
        for number, partition in self._followed.partitions().items():
            # A partition that came after the opening is followed from its first record.
            offset = self._next.setdefault(number, partition.log_start_offset)
            text, self._next[number] = self._fetch(partition, offset)
            if text:
                self._rest = memoryview(text)
                return True
        return False

    def _fetch(self, partition: Partition, offset: Offset) -> tuple[bytes, Offset]:
        end = self._visible_end(partition)
        while offset < end:
            if offset < partition.log_start_offset:
                reason = f"offset {offset} was deleted before it was read"
                raise FileError(errno.ESTALE, reason, reported=True)
            fetched = partition.read(offset, max_bytes=FETCH_BYTES, isolation=self._followed.isolation)
            text = b"".join(
                self._followed.form.render(
                    columns,
                    topic=partition.topic,
                    partition=partition.number,
                    start_offset=offset,
                    end_offset=min(end, fetched.next_offset),
                )
                for columns in decode(fetched.data, aborted=fetched.aborted)
            )
            offset = fetched.next_offset
            if text or not fetched.data:
                return text, offset
        return b"", offset

    def poll(self, notify: Notify | None) -> int:
        """The events that are ready; where none is and `notify` is given, it is called when one may be."""
        self._forget_poll()
        try:
            readable = self._fill()
        except FileError:
            readable = True  # The read that follows tells the error and does not wait.
        if readable:
            return select.POLLIN | select.POLLRDNORM
        if notify is not None:
            self._poll = notify
            self._cancel_poll = self._followed.listen(self._news)
        return 0

    def _news(self) -> None:
        notify = self._poll
        self._forget_poll()
        if notify is not None:
            notify.notify()

    def _forget_poll(self) -> None:
        if self._cancel_poll is not None:
            self._cancel_poll()
        self._poll = self._cancel_poll = None

    def release(self) -> None:
        """The last descriptor is closed."""
        self._forget_poll()
