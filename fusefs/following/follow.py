"""The open `follow` file: the records that arrive from its opening on, of one partition or of a whole topic."""

from __future__ import annotations

import errno
import select
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fusefs.allowance import INLINE_BYTES, Allowance, ThreadNeededError, leave_event_loop, take_turn
from fusefs.blocking import Blocking
from fusefs.errors import FileError
from fusefs.following.waiting import WaitingReads
from fusefs.forms import Form
from fusefs.views.decoded_fetch import Damage
from fusefs.views.measuring import Source
from fusefs.views.rendering import Rendering, Text
from storage.engine import Partition
from storage.errors import SegmentDeletedError, StorageError
from storage.model import Isolation, Offset

FETCH_BYTES = 256 * 1024
"""Bytes of batches read at once; at least one batch, however large."""


INLINE_PARTITIONS = 500
"""Looked through in the event loop's thread, some microseconds each; more of them in another one."""


class Notify(Protocol):
    """Tells the kernel, once, that a file it polled has become readable."""

    def notify(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Followed:
    """The partitions that are followed, as they are now, and the way to listen to news of any of them."""

    path: str
    """`/orders/0/follow`: the file under the mount."""
    partitions: Callable[[], Mapping[int, Partition]]
    """The partitions by number. Raises FileError (ESTALE) once the topic is deleted."""
    listen: Callable[[Callable[[], None]], Callable[[], None]]
    form: Form
    isolation: Isolation


class _Followed:
    """One partition from an offset on, as `rendering.Rendered`; it may be opened again meanwhile."""

    def __init__(self, source: Source, start_offset: Offset) -> None:
        self.source = source
        self.start_offset = start_offset
        self.rendering = Rendering(self, FETCH_BYTES)

    def end_offset(self) -> Offset:
        return self.source.visible_end()


class FollowHandle:
    """One open(2) of `follow`: a stream that goes on where the last read ended.

    Programs that took more than they need (`head`, `grep -m`, bash's `read`) seek back to what they leave to the next
    one; so the last bytes given out can be read again.
    """

    def __init__(
        self,
        followed: Followed,
        waiting: WaitingReads,
        blocking: Blocking,
        *,
        opener_pid: int,
        nonblocking: bool,
    ) -> None:
        self._followed = followed
        self._waiting = waiting
        self._blocking = blocking
        self._opener_pid = opener_pid
        self._nonblocking = nonblocking
        self._filling = threading.Lock()
        self._streams: dict[int, _Followed] = {}
        for number, partition in followed.partitions().items():
            self._stream(number, partition, partition.offsets().visible_end(followed.isolation))
        self._rest: Text = b""
        self._failure: Exception | None = None
        """The error that is raised when the rest was read."""
        self._position = 0
        self._last = b""
        self._poll: Notify | None = None
        self._cancel_poll: Callable[[], None] | None = None

    def _stream(self, number: int, partition: Partition, start_offset: Offset) -> Rendering:
        """Give what renders a partition, which begins at an offset if it is new."""
        stream = self._streams.get(number)
        if stream is None or stream.source.partition is not partition:
            source = Source(partition, self._followed.form, self._followed.isolation)
            if stream is None:
                stream = self._streams[number] = _Followed(source, start_offset)
            stream.source = source
        return stream.rendering

    async def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes of what has arrived and was not read yet; waits where there is none.

        A program that asks for one byte gets one: the rest is kept for its next read. A damaged batch is told once. Raises
        FileError: EAGAIN when opened with O_NONBLOCK and nothing is new, EINTR, EMFILE, ESTALE; ESPIPE further back than the
        last read. Raises CorruptionError.
        """
        if position < self._position:
            return self._again(position, size)
        while not self._rest and not await self._blocking.patiently(self._fill_patiently):
            if self._nonblocking:
                raise FileError(errno.EAGAIN)
            await self._waiting.wait(self._followed.listen, pid=self._opener_pid, path=self._followed.path)
        if not self._rest and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._last, self._rest = bytes(self._rest[:size]), memoryview(self._rest)[size:] or b""
        self._position = position + len(self._last)
        return self._last

    def _again(self, position: int, size: int) -> bytes:
        start = len(self._last) - (self._position - position)
        if start < 0:
            raise FileError(errno.ESPIPE, "what was read before is gone; `log` has it")
        return self._last[start : start + size]

    def _fill_patiently(self) -> bool:
        if not self._rest and len(self._followed.partitions()) > INLINE_PARTITIONS:
            leave_event_loop()
        return self._fill()

    def _fill(self) -> bool:
        """Render what has arrived, partition by partition; False where there is nothing, neither text nor an error."""
        take_turn(self._filling)  # Another read, or poll(2), may be at it in another thread.
        try:
            return self._fill_in_turn()
        finally:
            self._filling.release()

    def _fill_in_turn(self) -> bool:
        if self._rest or self._failure is not None:
            return True
        for number, partition in self._followed.partitions().items():
            # A partition that came after the opening is followed from its first record.
            rendering = self._stream(number, partition, partition.log_start_offset)
            if not rendering.is_behind():
                continue
            try:
                # With one fetch it is content: mostly a few records came.
                found = rendering.next(b"", least=1, step=1, front=None)
            except SegmentDeletedError as error:
                reason = f"records were deleted before they were read: {error}"
                raise FileError(errno.ESTALE, reason, reported=True) from None
            if isinstance(found, Damage):
                rendering.pass_damage()
                self._failure = found.error
                return True
            if found:
                self._rest = found
                return True
        return False

    def poll(self, notify: Notify | None) -> int:
        """The events that are ready; where none is and `notify` is given, it is called when one may be."""
        self._forget_poll()
        try:
            with Allowance(INLINE_BYTES, inline=True):
                readable = self._fill()
        except (FileError, StorageError, ThreadNeededError):
            readable = True  # The read that follows tells the error, or takes its time, and does not wait.
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
