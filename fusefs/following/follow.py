"""The open `follow` file: records of a partition or of a whole topic that arrive after the open."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from topicfs.fusefs.allowance import INLINE_BYTES, Allowance, leave_event_loop, take_turn
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.following.tail import TAIL_FETCH_BYTES, Tail, Tails
from topicfs.fusefs.following.waiting_reads import Program
from topicfs.fusefs.forms import Form
from topicfs.fusefs.handle import Handle, Notify, WaitingPoll
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.fusefs.views.decoded_fetch import Damage, DecodedFetch
from topicfs.fusefs.views.measure import Source
from topicfs.fusefs.views.rendering import Rendering, Text
from topicfs.storage.engine import Cancel, Partition
from topicfs.storage.errors import NoAnswerError, SegmentDeletedError, StorageError
from topicfs.storage.model import Fetched, Isolation, Offset
from topicfs.storage.remote import ThreadNeededError

INLINE_PARTITIONS = 500
"""Largest number of partitions that the event loop's thread itself checks for new records: a few microseconds each."""


class News(Protocol):
    """Change notifications of the followed partitions, in the event loop's thread."""

    @property
    def news_count(self) -> int:
        """Number of notifications so far."""

    def wait(self, waiter: Callable[[], None]) -> Cancel:
        """Call `waiter` once, soon after the next notification."""


class Followed(NamedTuple):
    """The partitions that are followed now, and their change notifications."""

    partitions: Callable[[], Mapping[int, Partition]]
    """Returns the partitions by number. Raises FileError (ESTALE) if the topic was deleted."""
    news: News
    tails: Tails
    form: Form
    isolation: Isolation


class _Stream:
    """The stream of one partition; uses the shared tail where possible."""

    __slots__ = ("_bound", "_own", "_tails", "start_offset", "tail")

    def __init__(self, tails: Tails, source: Source, start_offset: Offset) -> None:
        self._tails = tails
        self.tail = tails.attach(source)
        self.start_offset = start_offset
        """Offset of the next record to show."""
        self._own: Rendering | None = None
        self._bound = start_offset

    @property
    def source(self) -> Source:
        return self.tail.source

    def replace(self, source: Source) -> None:
        """Read from `source` from now on.

        Called after the partition was reopened, or after an unclean election that lost no shown record.
        """
        self.close()
        self.tail, self._own = self._tails.attach(source), None

    def close(self) -> None:
        self._tails.detach(self.tail)

    def end_offset(self) -> Offset:
        """Exclusive end of the records to render separately from the shared tail."""
        return min(self._bound, self.source.visible_end())

    def fetch(self, offset: Offset, max_bytes: int) -> Fetched | DecodedFetch:
        return self.source.fetch(offset, max_bytes)

    def next(self) -> Text | Damage | None:
        """Return the next text; None if there is none yet. Damaged batches are skipped. Raises SegmentDeletedError."""
        tail = self.tail
        partition, _, isolation, _ = tail.source
        while self.start_offset < (end_offset := partition.visible_end(isolation)):
            start_offset = self.start_offset
            chunk = tail.chunks.get(start_offset) or tail.extend(start_offset, end_offset)
            if chunk is None:
                found = self._alone(tail)
                if found:
                    return found
            else:
                self._own = None
                text, self.start_offset = chunk
                if text:
                    return text
                if self.start_offset == start_offset:
                    return None
        return None

    def _alone(self, tail: Tail) -> Text | Damage | None:
        """Render records that the tail no longer has, up to the next chunk that the tail keeps."""
        if self._own is None:
            self._own = Rendering(self, TAIL_FETCH_BYTES)
        self._bound = tail.next_start(self.start_offset)
        found = self._own.next_fetch(self.end_offset())
        if isinstance(found, Damage):
            self._own.pass_damage()
        self.start_offset = max(self._own.next_offset, self.start_offset)
        return found


class FollowHandle(Handle):
    """An open(2) of `follow`: a stream that continues where the last read ended.

    Programs that read more than they need (`head`, `grep -m`, bash's `read`) seek back for the next program. So the
    bytes of the last read are kept and can be read again.
    """

    follows = True

    def __init__(
        self, followed: Followed, program: Program, blocking: BlockingCalls, *, nonblocking: bool
    ) -> None:
        self._followed = followed
        self._program = program
        self._blocking = blocking
        self._nonblocking = nonblocking
        self._filling = threading.Lock()
        self._streams: dict[int, _Stream] = {}
        for number, partition in followed.partitions().items():
            partition.find_bounds()
            self._add(number, partition)
        self._rest: Text = b""
        self._failure: Exception | None = None
        """The error to raise after the remaining text is read."""
        self._position = 0
        self._last: Text = b""
        self._poll = WaitingPoll(followed.news.wait)

    def _add(self, number: int, partition: Partition, start_offset: Offset | None = None) -> _Stream:
        source = Source(partition, self._followed.form, self._followed.isolation, partition.cuts)
        start_offset = source.visible_end() if start_offset is None else start_offset
        stream = self._streams[number] = _Stream(self._followed.tails, source, start_offset)
        return stream

    def _stream(self, number: int, partition: Partition) -> _Stream | None:
        """Return the stream of a partition; None if the start of a newly created partition is not known yet."""
        stream = self._streams.get(number)
        if stream is None:
            known = partition.unknown is None
            return self._add(number, partition, partition.log_start_offset) if known else None
        source = stream.source
        if source.partition is not partition or source.cuts is not partition.cuts:
            renewed = source._replace(partition=partition, cuts=partition.cuts)
            if source.partition is partition:  # Otherwise, the partition was reopened.
                source.check(stream.start_offset)
            stream.replace(renewed)
        return stream

    async def read(self, position: int, size: int) -> Text:
        """Return at most `size` new bytes; wait if there are none.

        If a program reads a single byte, it gets one byte, and the bytes after it are kept for the next read. A
        damaged batch is reported once.

        Raises FileError: EAGAIN with O_NONBLOCK if no record is new, EINTR, EMFILE, ESTALE; ESPIPE for a position
        before the last read. Raises CorruptionError.
        """
        if position < self._position:
            return self._again(position, size)
        waker, news = self._program.waiting.waker, self._followed.news
        if not self._rest and waker.is_busy:
            # Let the queued readers run first: hundreds of busy followers would delay the answer to an
            # append.
            await waker.turn()
        while not self._rest and self._failure is None:
            heard = news.news_count
            inline = len(self._streams) <= INLINE_PARTITIONS
            try:
                if await self._blocking.run_inline_or_in_thread(
                    self._fill if inline else self._fill_in_thread, self._program
                ):
                    continue
            except NoAnswerError:
                heard = -1  # Wait for brokers in the same way as for records, then look again.
            if self._nonblocking:
                raise FileError(Refusal.NOTHING_NEW)
            if heard == news.news_count:  # Otherwise something changed while a thread looked.
                await self._program.wait(news.wait)
        if not self._rest and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return self._take(position, size)

    def _take(self, position: int, size: int) -> Text:
        rest = self._rest
        if len(rest) <= size:
            data, self._rest = rest, b""
        else:
            data, self._rest = memoryview(rest)[:size], memoryview(rest)[size:]
        # Do not keep a large chunk in memory if only a small part of it was returned.
        self._last = data if isinstance(data, bytes) or 2 * len(data) > _held_by(data) else bytes(data)
        self._position = position + len(data)
        return data

    def _again(self, position: int, size: int) -> Text:
        start = len(self._last) - (self._position - position)
        if start < 0:
            raise FileError(Refusal.READ_ONCE, "earlier records cannot be read again here; `log` has them")
        return self._last[start : start + size]

    def _fill_in_thread(self) -> bool:
        leave_event_loop()
        return self._fill()

    def _fill(self) -> bool:
        """Render new records, partition by partition. Return False if there is neither text nor an error."""
        take_turn(self._filling)  # Another read, or poll(2), is filling in another thread.
        try:
            if self._rest or self._failure is not None:
                return True
            missing: ThreadNeededError | None = None
            for number, partition in self._followed.partitions().items():
                stream = self._stream(number, partition)
                if stream is None:
                    continue
                try:
                    partition.find_bounds()  # Raises the error if the partition cannot be read.
                    found = stream.next()
                except ThreadNeededError as error:  # Try the other partitions without waiting.
                    missing = missing or error
                    continue
                if isinstance(found, Damage):
                    self._failure = found.error
                    return True
                if found is not None:
                    self._rest = found
                    return True
        except SegmentDeletedError as error:
            reason = f"records were deleted: {error}"
            raise FileError(Refusal.GONE, reason, reported=True) from None
        finally:
            self._filling.release()
        if missing is not None:
            raise missing
        return False

    def poll(self, notify: Notify | None) -> int:
        """Return the ready events; `notify` is called when they may have changed."""
        self._poll.begin(notify)
        try:
            with Allowance(INLINE_BYTES, inline=True):
                readable = self._fill()
        except (FileError, StorageError, ThreadNeededError):
            readable = (
                True  # The next read raises the error, or runs in a thread; it does not wait for records.
            )
        return select.POLLIN | select.POLLRDNORM if readable else 0

    async def release(self) -> None:
        """End the stream at the last close."""
        self._poll.forget()
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()


def _held_by(text: memoryview) -> int:
    """Return the size of the buffer that `text` keeps alive."""
    return memoryview(text.obj).nbytes
