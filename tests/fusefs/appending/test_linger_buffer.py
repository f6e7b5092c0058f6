"""acks=0: the order of lines from many files, the limits, and the files that get the error of a failed append."""

from __future__ import annotations

import errno

import pytest

from tests.doubles.records import batch
from topicfs.fusefs.appending.framing import BATCHES, LINES, NOTHING
from topicfs.fusefs.appending.handle import Acks, AppendHandle, Appending
from topicfs.fusefs.appending.linger_buffer import MAX_GATHERED_BYTES, LingerBuffer
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.errors import RecordTooLargeError
from topicfs.storage.model import Timestamp


class Book:
    """A target that stores the lines in a list; appends fail while it is full."""

    def __init__(self, name: str = "orders/0/log") -> None:
        self.name = name
        self.max_record_bytes = 20
        self.kept: list[bytes] = []
        self.full = False
        self.synced_after = -1

    def check(self, lines: bytes) -> None:
        del lines

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        del durable
        if self.full:
            raise OSError(errno.ENOSPC, "no room")
        self.kept.append(lines)

    def sync(self) -> None:
        self.synced_after = len(self.kept)


class Desk:
    """The linger buffer and the handles of a mount with acks=0; the buffer appends only when a test asks for it."""

    def __init__(self) -> None:
        self.linger_buffer = LingerBuffer(linger_ms=60_000)
        self.reports = Reports(lambda: Timestamp(0))
        self.appending = Appending(
            Acks.NONE, self.linger_buffer, BlockingCalls(), self.reports, lambda _pid, _path: False
        )

    def open(self, book: Book, *, durable: bool = False) -> AppendHandle:
        return AppendHandle(book, self.appending, opener_pid=7, durable=durable)


async def test_lines_keep_the_order_in_which_they_were_answered() -> None:
    """Lines that several handles write to one log become one batch, in the order in which the writes were answered."""
    desk, book = Desk(), Book()
    first, second = desk.open(book), desk.open(book)
    for number in range(6):
        await (first, second)[number % 2].write(b"%d\n" % number)
    assert [] == book.kept
    desk.linger_buffer.append_all()
    assert [b"0\n1\n2\n3\n4\n5\n"] == book.kept


async def test_a_durable_write_comes_after_the_waiting_lines() -> None:
    """A write with O_SYNC is appended after the lines that wait in the buffer."""
    desk, book = Desk(), Book()
    await desk.open(book).write(b"waits\n")
    await desk.open(book, durable=True).write(b"now\n")
    assert [b"waits\n", b"now\n"] == book.kept


async def test_a_line_in_two_writes_is_placed_by_the_second_write() -> None:
    """A line that arrives in two writes takes its place in the order when the second write arrives."""
    desk, book = Desk(), Book()
    first, second = desk.open(book), desk.open(book)
    await first.write(b"a\nbeg")
    await second.write(b"b\n")
    await first.write(b"un\n")
    desk.linger_buffer.append_all()
    assert [b"a\nb\nbegun\n"] == book.kept


async def test_fsync_appends_what_waits_before_it_flushes() -> None:
    """fsync(2) first appends the waiting lines and the unfinished line, and then flushes."""
    desk, book = Desk(), Book()
    handle = desk.open(book)
    await handle.write(b"a\nb")
    await handle.fsync()
    assert (b"a\nb\n", len(book.kept)) == (b"".join(book.kept), book.synced_after)


async def test_a_failed_append_at_fsync_fails_each_file_once() -> None:
    """If the append at fsync(2) fails, each file that wrote some of the lost lines gets the error once.

    Later lines are stored.
    """
    desk, book, other = Desk(), Book(), Book("orders/1/log")
    first, second, stranger = desk.open(book), desk.open(book), desk.open(other)
    await first.write(b"a\n")
    await second.write(b"b\n")
    await stranger.write(b"c\n")
    book.full = True
    with pytest.raises(OSError, match="no room") as failed:
        await first.fsync()
    assert (errno.ENOSPC, -1) == (failed.value.errno, book.synced_after)
    book.full = False
    await first.fsync()
    with pytest.raises(OSError, match="no room"):
        await second.flush()
    await second.flush()
    await stranger.fsync()
    await first.write(b"d\n")
    await first.fsync()
    assert ([b"d\n"], [b"c\n"]) == (book.kept, other.kept)


@pytest.mark.parametrize(("size", "appended"), [(MAX_GATHERED_BYTES - 1, 0), (MAX_GATHERED_BYTES, 1)])
async def test_the_byte_that_reaches_the_limit_appends_all_waiting_lines(size: int, appended: int) -> None:
    """The byte that reaches MAX_GATHERED_BYTES makes the buffer append all waiting lines immediately."""
    desk, book = Desk(), Book()
    handle = desk.open(book)
    await handle.write(b"x" * 9 + b"\n")
    await handle.write(b"\n" * (size - 10))
    assert appended == len(book.kept)
    desk.linger_buffer.append_all()
    desk.linger_buffer.append_all()
    assert [size] == [len(lines) for lines in book.kept]


async def test_each_log_waits_by_itself() -> None:
    """The limit applies to each log separately: reaching it in one log does not append the lines of another log."""
    desk, book, other = Desk(), Book(), Book("orders/1/log")
    first, second = desk.open(book), desk.open(other)
    half = b"\n" * (MAX_GATHERED_BYTES // 2)
    await first.write(half)
    await second.write(half)
    assert ([], []) == (book.kept, other.kept)
    await first.write(half)
    assert ([half + half], []) == (book.kept, other.kept)


@pytest.mark.parametrize("before", [b"", b"whole\n"])
def test_a_begun_line_may_be_as_long_as_a_record(before: bytes) -> None:
    """An unfinished line may be as long as max.message.bytes; a write that adds one more byte is refused."""
    limit = 20
    assert b"x" * limit == LINES.frame(NOTHING, before + b"x" * limit, limit).waiting.tail
    waiting = LINES.frame(NOTHING, before + b"x" * (limit - 1), limit).waiting
    assert b"x" * limit == LINES.frame(waiting, b"x", limit).waiting.tail
    with pytest.raises(RecordTooLargeError, match="max.message.bytes=20"):
        LINES.frame(waiting, b"xx", limit)


def test_a_batch_may_be_as_long_as_the_log_takes() -> None:
    """A batch of max.message.bytes is accepted. A larger batch is refused as soon as its length field has arrived."""
    data = bytes(batch(b"value"))
    assert data == BATCHES.frame(NOTHING, data, len(data)).lines
    begun = data[:20]
    assert begun == BATCHES.frame(NOTHING, begun, len(data)).waiting.tail
    with pytest.raises(RecordTooLargeError, match=f"exceeds max.message.bytes={len(data) - 1}"):
        BATCHES.frame(NOTHING, begun, len(data) - 1)
