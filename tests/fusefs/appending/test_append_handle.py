"""What an open file does with its writes, and whom an error reaches."""

from __future__ import annotations

import errno
import threading
from typing import NamedTuple

import pytest
import trio
import trio.testing

from fusefs.appending.failed_write import MAX_REQUEST_BYTES, SMALLEST_CUT_BYTES, may_go_on
from fusefs.appending.framing import BATCHES
from fusefs.appending.handle import Acks, AppendHandle, Appending
from fusefs.appending.linger_buffer import LingerBuffer
from fusefs.blocking import Blocking
from fusefs.errors import FileError, errno_of
from fusefs.forms import FormError
from fusefs.reports import Reports
from storage.errors import InvalidConfigError, InvalidRecordError, RecordTooLargeError, StorageError
from storage.model import Timestamp
from tests.doubles.records import batch


class Book:
    """A target that keeps lines in a list; a line `bad` is refused, and it can be full."""

    name = "orders/0/log"

    def __init__(self) -> None:
        self.max_record_bytes = 20
        self.kept: list[bytes] = []
        self.durable: list[bytes] = []
        self.full = False
        self.error: OSError | None = None
        """What every append fails with."""
        self.door = threading.Event()
        """Appends wait before it."""
        self.door.set()
        self.syncs = 0

    def check(self, lines: bytes) -> None:
        if b"bad\n" in lines:
            raise FormError(lines.split(b"\n").index(b"bad") + 1, "this line is bad")
        if max(map(len, lines.split(b"\n"))) > self.max_record_bytes:
            raise RecordTooLargeError("this line is too long")

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        self.check(lines)
        self.door.wait()
        if self.full:
            raise OSError(errno.ENOSPC, "no room")
        if self.error is not None:
            raise self.error
        self.kept.append(lines)
        if durable:
            self.durable.append(lines)

    def sync(self) -> None:
        self.syncs += 1


class Desk:
    """A handle on a book, and whether its opener holds on."""

    def __init__(self, acks: Acks = Acks.LEADER, *, durable: bool = False) -> None:
        self.book = Book()
        self.held = False
        self.reports = Reports(lambda: Timestamp(0))
        self.appending = Appending(
            acks=acks,
            linger_buffer=LingerBuffer(linger_ms=0),
            blocking=Blocking(),
            reports=self.reports,
            still_held=lambda pid, path: self.held and (pid, path) == (7, "/orders/0/log"),
        )
        self.handle = AppendHandle(self.book, self.appending, opener_pid=7, durable=durable)


async def fails(awaited: object, number: int) -> None:
    """Await it; it raises that errno, or an error of that errno."""
    with pytest.raises((FileError, FormError, OSError, StorageError)) as caught:
        await awaited  # type: ignore[misc]
    assert errno.errorcode[number] == errno.errorcode[errno_of(caught.value)]


async def test_one_write_is_one_append():
    """All its whole lines go together; the begun one waits."""
    desk = Desk()

    assert 5 == await desk.handle.write(b"a\nb\nc")

    assert [b"a\nb\n"] == desk.book.kept


async def test_a_refused_write_keeps_nothing_and_drops_what_waited():
    """Good lines of the same request are not kept; what follows the refused line is."""
    desk = Desk()
    await desk.handle.write(b"wait")

    await fails(desk.handle.write(b"ed\nbad\nmore"), errno.EINVAL)
    await desk.handle.write(b" of that\ngood\n")

    assert [b"good\n"] == desk.book.kept


async def test_a_full_disk_leaves_the_handle_as_it_was():
    """The write can be tried again: then it brings what it would have brought."""
    desk = Desk()
    await desk.handle.write(b"be")
    desk.book.full = True
    await fails(desk.handle.write(b"gun\n"), errno.ENOSPC)
    desk.book.full = False

    await desk.handle.write(b"gun\n")

    assert [b"begun\n"] == desk.book.kept


async def test_a_begun_line_beyond_the_bound_is_refused_in_the_write_that_brings_it():
    """The waiting bytes are dropped, and input is skipped to the next newline."""
    desk = Desk()
    await desk.handle.write(b"x" * 15)

    with pytest.raises(RecordTooLargeError):
        await desk.handle.write(b"x" * 15)
    await desk.handle.write(b"still of that line\nnext\n")

    assert [b"next\n"] == desk.book.kept


REQUEST = MAX_REQUEST_BYTES
"""What the kernel puts into one request at most."""


def long_lines() -> Desk:
    """A handle whose lines may have a little more than fits into one request."""
    desk = Desk()
    desk.book.max_record_bytes = REQUEST + 12
    return desk


async def test_the_rest_of_a_line_too_long_is_refused_when_it_comes_again():
    """One write(2) in two requests: the kernel drops the error of the second, and the program repeats it."""
    desk = long_lines()
    await desk.handle.write(b"before\n" + b"x" * (REQUEST - 7))

    for _again in range(3):
        await fails(desk.handle.write(b"x" * 50_000 + b"\n"), errno.EMSGSIZE)
    await desk.handle.flush()
    await desk.handle.write(b"after\n")

    assert [b"before\n", b"after\n"] == desk.book.kept


async def test_more_data_than_was_refused_is_still_the_refused_piece():
    """A program with a buffer appends to it what it writes next, and tries again with all of it."""
    desk = long_lines()
    await desk.handle.write(b"x" * REQUEST)
    await fails(desk.handle.write(b"rest of the line\n"), errno.EMSGSIZE)

    for _again in range(2):
        await fails(desk.handle.write(b"rest of the line\nnext\n"), errno.EMSGSIZE)

    assert [] == desk.book.kept


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSPC])
async def test_a_repeated_piece_is_judged_again_behind_the_line_it_goes_on_with(number: int):
    """What the refusal was for may be over by then: the line is whole, and the begun part of it is not lost."""
    desk = long_lines()
    await desk.handle.write(b"x" * REQUEST)
    desk.book.error = OSError(number, "not now")
    await fails(desk.handle.write(b"y\nz\n"), number)
    desk.book.error = None

    await desk.handle.write(b"y\nz\n")

    assert [b"x" * REQUEST + b"y\nz\n"] == desk.book.kept


@pytest.mark.parametrize("call", ["write", "flush", "fsync"])
async def test_an_error_that_the_kernel_may_have_dropped_is_told_at_the_next_call(call: str):
    """A program that does not look at the count of a short write learns of it all the same; once."""
    desk = Desk()
    desk.book.max_record_bytes = 2 * REQUEST
    await desk.handle.write(b"x" * (REQUEST - 1) + b"\n")
    await fails(desk.handle.write(b"bad\n"), errno.EINVAL)

    await fails(
        desk.handle.write(b"other\n") if call == "write" else getattr(desk.handle, call)(), errno.EINVAL
    )
    await desk.handle.write(b"next\n")
    await desk.handle.flush()
    await desk.handle.fsync()

    assert [b"next\n"] == desk.book.kept[1:]


async def test_an_error_that_nobody_was_told_stands_in_the_reports():
    """The mount ends before the program closes its file."""
    desk = Desk()
    desk.book.max_record_bytes = 2 * REQUEST
    await desk.handle.write(b"x" * REQUEST)
    await fails(desk.handle.write(b"y\nbad\n"), errno.EINVAL)

    await desk.handle.release()

    assert [] == desk.book.kept
    assert "this line is bad" in desk.reports.lines()[-1]


async def test_after_a_request_of_its_own_the_next_write_is_a_line_of_its_own():
    """The kernel drops no error of a request that is the first of its write(2): the program knows."""
    desk = Desk()
    await desk.handle.write(b"good\n")
    await fails(desk.handle.write(b"bad\n"), errno.EINVAL)

    await desk.handle.write(b"next\n")

    assert [b"good\n", b"next\n"] == desk.book.kept


@pytest.mark.parametrize(("size", "may"), [(SMALLEST_CUT_BYTES, False), (SMALLEST_CUT_BYTES + 1, True)])
def test_a_request_that_was_cut_off_is_a_large_one(size: int, may: bool):
    """More than half of what the kernel sends at most."""
    assert may is may_go_on(size)


async def test_a_begun_line_of_exactly_the_limit_waits():
    """One byte more is refused."""
    desk = Desk()

    await desk.handle.write(b"x" * 20)
    await fails(desk.handle.write(b"x\n"), errno.EMSGSIZE)
    await desk.handle.write(b"y" * 20)
    await desk.handle.flush()

    assert [b"y" * 20 + b"\n"] == desk.book.kept


async def test_a_write_of_a_refused_lines_rest_alone_is_refused_as_well():
    """Not a byte of it is kept; with its newline the line is over."""
    desk = Desk()
    await desk.handle.write(b"x" * 15)
    await fails(desk.handle.write(b"x" * 15), errno.EMSGSIZE)

    await fails(desk.handle.write(b"more of that line"), errno.EMSGSIZE)
    await fails(desk.handle.write(b"its end\n"), errno.EMSGSIZE)
    await desk.handle.write(b"next\n")

    assert [b"next\n"] == desk.book.kept


async def test_a_refused_rest_is_known_again_in_a_smaller_piece():
    """A program that goes over to a line a write does not make a record of a line's end."""
    desk = Desk()
    await desk.handle.write(b"begun ")
    await fails(desk.handle.write(b"rest\nbad\n"), errno.EINVAL)

    await fails(desk.handle.write(b"rest\n"), errno.EINVAL)
    await desk.handle.write(b"good\n")

    assert [b"good\n"] == desk.book.kept


class Closing(NamedTuple):
    """A way in which an open file ends."""

    name: str
    held: bool


ENDS = [Closing("flush", held=False), Closing("release", held=True)]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name)
@pytest.mark.parametrize("acks", Acks)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EAGAIN])
async def test_a_line_whose_rest_failed_leaves_nothing(number: int, acks: Acks, end: Closing):
    """The writer was told of the error: the part that waited does not become a record when the file is closed."""
    desk = Desk(acks)
    desk.held = end.held
    await desk.handle.write(b"whole\nbegun ")
    desk.appending.linger_buffer.append_all()
    desk.book.error = OSError(number, "not now")
    if acks is Acks.NONE:
        desk.handle.failed(desk.book.error)
    await fails(desk.handle.write(b"rest\n"), number)
    desk.book.error = None

    await getattr(desk.handle, end.name)()
    await desk.handle.release()
    desk.appending.linger_buffer.append_all()

    assert [b"whole\n"] == desk.book.kept


async def test_a_line_that_follows_a_failed_rest_stands_alone():
    """The failed line's beginning is not joined with the next line that is written."""
    desk = Desk()
    await desk.handle.write(b"begun ")
    desk.book.full = True
    await fails(desk.handle.write(b"rest\n"), errno.ENOSPC)
    desk.book.full = False

    await desk.handle.write(b"next\n")

    assert [b"next\n"] == desk.book.kept


async def test_a_line_begun_in_a_write_that_failed_is_refused_to_its_end():
    """Its beginning is nowhere: its rest is no record."""
    desk = Desk()
    desk.book.full = True
    await fails(desk.handle.write(b"whole\nbegun "), errno.ENOSPC)
    desk.book.full = False

    await fails(desk.handle.write(b"rest\n"), errno.ENOSPC)
    await desk.handle.write(b"next\n")

    assert [b"next\n"] == desk.book.kept


async def test_fsync_does_not_answer_for_a_line_whose_rest_failed():
    """It fails as the write did, and leaves the line to a program that tries again."""
    desk = Desk()
    await desk.handle.write(b"begun ")
    desk.book.full = True
    await fails(desk.handle.write(b"rest\n"), errno.ENOSPC)
    desk.book.full = False

    for _again in range(2):
        await fails(desk.handle.fsync(), errno.ENOSPC)
    await desk.handle.write(b"rest\n")
    await desk.handle.fsync()

    assert [b"begun rest\n"] == desk.book.kept


async def test_a_begun_line_that_fsync_finds_no_room_for_waits_on():
    """A second fsync(2) that succeeds has put it on disk."""
    desk = Desk()
    await desk.handle.write(b"begun")
    desk.book.full = True
    await fails(desk.handle.fsync(), errno.ENOSPC)
    desk.book.full = False

    await desk.handle.fsync()

    assert [b"begun\n"] == desk.book.kept


@pytest.mark.parametrize("call", ["flush", "fsync"])
async def test_the_rest_of_a_line_refused_at_its_beginning_is_no_record(call: str):
    """A child goes on with the line whose beginning was refused when its parent closed the file."""
    desk = Desk()
    await desk.handle.write(b"bad")
    await fails(getattr(desk.handle, call)(), errno.EINVAL)

    await fails(desk.handle.write(b" or not\n"), errno.EINVAL)
    await desk.handle.write(b"next\n")

    assert [b"next\n"] == desk.book.kept


async def test_batches_after_one_that_found_no_room_are_taken():
    """The failed write ended between two batches: it is known where the next one begins."""
    desk = Desk()
    desk.book.max_record_bytes = 1000
    handle = AppendHandle(desk.book, desk.appending, opener_pid=7, durable=False, framing=BATCHES)
    first, second = bytes(batch(b"1", timestamp=1)), bytes(batch(b"2", timestamp=2))
    desk.book.full = True
    await fails(handle.write(first), errno.ENOSPC)
    desk.book.full = False

    await handle.write(second)

    assert desk.book.kept == [second]


async def test_batches_after_a_refused_one_are_not_taken():
    """Nobody knows where the next one begins; the refused write itself is judged again when it is repeated."""
    desk = Desk()
    desk.book.max_record_bytes = 1000
    handle = AppendHandle(desk.book, desk.appending, opener_pid=7, durable=False, framing=BATCHES)
    good = bytes(batch(b"1", timestamp=1))
    desk.book.error = OSError(errno.EINVAL, "a bad batch")
    await fails(handle.write(good), errno.EINVAL)
    desk.book.error = None

    with pytest.raises(InvalidRecordError, match="open the file again"):
        await handle.write(bytes(batch(b"2", timestamp=2)))

    assert [] == desk.book.kept


async def test_a_close_waits_for_the_append_under_way():
    """With acks=all an append waits in a thread; a duplicate closed meanwhile must not take the begun line it ends."""
    desk = Desk(Acks.ALL)
    await desk.handle.write(b"begun ")
    desk.book.door.clear()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.handle.write, b"rest\n")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(desk.handle.flush)
        await trio.testing.wait_all_tasks_blocked()
        desk.book.door.set()

    assert [b"begun rest\n"] == desk.book.kept


async def test_acks_0_tells_an_earlier_failure_again_where_the_kernel_may_drop_it():
    """The failure of lines that were answered reaches the program, not only the second request of its write(2)."""
    desk = Desk(Acks.NONE)
    desk.book.max_record_bytes = 2 * REQUEST
    await desk.handle.write(b"x" * (REQUEST - 1) + b"\n")
    desk.handle.failed(OSError(errno.ENOSPC, "no room"))

    await fails(desk.handle.write(b"a\n"), errno.ENOSPC)
    await fails(desk.handle.write(b"a\n"), errno.ENOSPC)
    await desk.handle.write(b"a\n")
    desk.appending.linger_buffer.append_all()

    assert [b"a\n"] == desk.book.kept[1:]


async def test_what_waits_for_the_disk_does_not_overtake_what_was_gathered():
    """A file opened with O_SYNC beside one that is answered at once: lines stand in the order of the writes."""
    desk = Desk(Acks.NONE)
    synchronous = AppendHandle(desk.book, desk.appending, opener_pid=8, durable=True)
    await desk.handle.write(b"a\n")

    await synchronous.write(b"b\n")

    assert [b"a\n", b"b\n"] == desk.book.kept


async def test_acks_0_fsync_tells_what_befell_the_lines_it_appends():
    """They were not on disk when it answered."""
    desk = Desk(Acks.NONE)
    await desk.handle.write(b"a\n")
    desk.book.full = True

    await fails(desk.handle.fsync(), errno.ENOSPC)

    assert 0 == desk.book.syncs


async def test_acks_0_gathers_no_batches():
    """One that is refused must not take others' with it: its error belongs to its own write."""
    desk = Desk(Acks.NONE)
    desk.book.max_record_bytes = 1000
    handle = AppendHandle(desk.book, desk.appending, opener_pid=7, durable=False, framing=BATCHES)
    data = bytes(batch(b"1", timestamp=1))

    await handle.write(data)

    assert desk.book.kept == [data]


async def test_what_was_gathered_is_appended_when_the_mount_ends():
    """The wait is cut short, the lines are not lost."""
    desk = Desk(Acks.NONE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.appending.linger_buffer.run)
        await trio.testing.wait_all_tasks_blocked()
        await desk.handle.write(b"a\n")
        nursery.cancel_scope.cancel()

    assert [b"a\n"] == desk.book.kept


async def test_acks_0_reports_what_fails_after_the_file_was_closed():
    """There is no call left to tell it in."""
    desk = Desk(Acks.NONE)
    await desk.handle.write(b"a\n")
    await desk.handle.flush()
    await desk.handle.release()
    desk.book.full = True

    desk.appending.linger_buffer.append_all()

    assert "lost when the file was closed" in desk.reports.lines()[-1]


async def test_flush_commits_the_begun_line_when_the_opener_let_go():
    """The last close of `printf x >> log` makes the record, and tells its outcome."""
    desk = Desk()
    await desk.handle.write(b"x")

    await desk.handle.flush()

    assert [b"x\n"] == desk.book.kept


async def test_flush_waits_while_the_opener_holds_on():
    """A child of a shell that ends closes its duplicate; the line goes on."""
    desk = Desk()
    desk.held = True
    await desk.handle.write(b"a ")
    await desk.handle.flush()
    await desk.handle.write(b"b\n")

    assert [b"a b\n"] == desk.book.kept


async def test_a_failure_at_flush_is_told_once():
    """close(2) says it; release has nothing left to lose."""
    desk = Desk()
    await desk.handle.write(b"bad")

    await fails(desk.handle.flush(), errno.EINVAL)
    await desk.handle.release()

    assert [] == desk.book.kept
    assert () == desk.reports.lines()


async def test_release_commits_what_is_left_and_reports_what_fails():
    """Nobody waits for RELEASE: its failure stands in the reports."""
    desk = Desk()
    desk.held = True
    await desk.handle.write(b"bad")
    await desk.handle.flush()

    await desk.handle.release()

    assert 1 == len(desk.reports.lines())
    assert "orders/0/log" in desk.reports.lines()[0]
    assert "this line is bad" in desk.reports.lines()[0]


@pytest.mark.parametrize("desk", [Desk(Acks.ALL), Desk(durable=True)], ids=["acks=all", "O_DSYNC"])
async def test_durable_handles_append_durably(desk: Desk):
    """Every write, and the begun line at close, is on disk when its call returns."""
    await desk.handle.write(b"a\nb")
    await desk.handle.flush()

    assert desk.book.durable == desk.book.kept == [b"a\n", b"b\n"]


async def test_a_durable_write_is_refused_like_any_other():
    """The rest of the refused line is skipped there too."""
    desk = Desk(durable=True)

    await fails(desk.handle.write(b"bad\nrest"), errno.EINVAL)
    await desk.handle.write(b" of it\ngood\n")

    assert [b"good\n"] == desk.book.kept


async def test_fsync_puts_the_begun_line_on_disk_too():
    """What a successful fsync(2) promises holds for every byte written before it."""
    desk = Desk()
    await desk.handle.write(b"a\nb")

    await desk.handle.fsync()

    assert [b"a\n", b"b\n"] == desk.book.kept
    assert 1 == desk.book.syncs


async def test_acks_0_gathers_the_lines_of_all_writers():
    """Writes of several handles within the linger time become one append."""
    desk = Desk(Acks.NONE)
    other = AppendHandle(desk.book, desk.appending, opener_pid=8, durable=False)
    await desk.handle.write(b"a\n")
    await other.write(b"b\n")
    assert [] == desk.book.kept

    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.appending.linger_buffer.run)
        while not desk.book.kept:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    assert [b"a\nb\n"] == desk.book.kept


@pytest.mark.parametrize("call", ["write", "fsync", "flush"])
async def test_acks_0_tells_a_failure_at_the_next_call_of_that_handle(call: str):
    """Once: the call after that one is served."""
    desk = Desk(Acks.NONE)
    await desk.handle.write(b"a\n")
    desk.book.full = True
    desk.appending.linger_buffer.append_all()
    desk.book.full = False

    await fails(desk.handle.write(b"b\n") if call == "write" else getattr(desk.handle, call)(), errno.ENOSPC)
    await desk.handle.flush()


async def test_acks_0_refuses_a_bad_line_at_once():
    """A line's own fault belongs to the write that brings it, whatever the acks."""
    desk = Desk(Acks.NONE)

    await fails(desk.handle.write(b"bad\n"), errno.EINVAL)

    desk.appending.linger_buffer.append_all()
    assert [] == desk.book.kept


async def test_acks_0_fsync_appends_what_was_gathered():
    """fsync(2) means on disk, also there."""
    desk = Desk(Acks.NONE)
    await desk.handle.write(b"a\n")

    await desk.handle.fsync()

    assert [b"a\n"] == desk.book.kept
    assert 1 == desk.book.syncs


@pytest.mark.parametrize(
    ("text", "acks"), [("0", Acks.NONE), ("1", Acks.LEADER), ("all", Acks.ALL), ("-1", Acks.ALL)]
)
def test_acks_are_spelled_as_kafka_does(text: str, acks: Acks):
    """0, 1, all or -1."""
    assert Acks.parse(text) is acks


def test_other_acks_are_refused():
    """With the spellings that are valid."""
    with pytest.raises(InvalidConfigError, match="0, 1, all or -1"):
        Acks.parse("2")
