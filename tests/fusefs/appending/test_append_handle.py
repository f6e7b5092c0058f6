"""What an open file does with its writes, and whom an error reaches."""

from __future__ import annotations

import errno

import pytest
import trio

from fusefs.appending.gathering import Gatherer
from fusefs.appending.handle import Acks, AppendHandle, Appending
from fusefs.blocking import Blocking
from fusefs.errors import FileError
from fusefs.forms import FormError
from fusefs.reports import Reports
from storage.errors import InvalidConfigError, RecordTooLargeError
from storage.model import Timestamp


class Book:
    """A target that keeps lines in a list; a line `bad` is refused, and it can be full."""

    name = "orders/0/log"
    max_record_bytes = 20

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.durable: list[bytes] = []
        self.full = False
        self.syncs = 0

    def check(self, lines: bytes) -> None:
        if b"bad\n" in lines:
            raise FormError(lines.split(b"\n").index(b"bad") + 1, "this line is bad")

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        self.check(lines)
        if self.full:
            raise OSError(errno.ENOSPC, "no room")
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
            gatherer=Gatherer(linger_ms=0),
            blocking=Blocking(),
            reports=self.reports,
            still_held=lambda pid, path: self.held and (pid, path) == (7, "/orders/0/log"),
        )
        self.handle = AppendHandle(self.book, self.appending, opener_pid=7, durable=durable)


async def fails(awaited: object, number: int) -> None:
    """Await it; it raises that errno, or an error of that errno."""
    with pytest.raises((FileError, FormError, OSError)) as caught:
        await awaited  # type: ignore[misc]
    raised = caught.value
    seen = errno.EINVAL if isinstance(raised, FormError) else getattr(raised, "number", None) or raised.errno
    assert seen == number


async def test_one_write_is_one_append():
    """All its whole lines go together; the begun one waits."""
    desk = Desk()

    assert await desk.handle.write(b"a\nb\nc") == 5

    assert desk.book.kept == [b"a\nb\n"]


async def test_a_refused_write_keeps_nothing_and_drops_what_waited():
    """Good lines of the same request are not kept; what follows the refused line is."""
    desk = Desk()
    await desk.handle.write(b"wait")

    await fails(desk.handle.write(b"ed\nbad\nmore"), errno.EINVAL)
    await desk.handle.write(b" of that\ngood\n")

    assert desk.book.kept == [b"good\n"]


async def test_a_full_disk_leaves_the_handle_as_it_was():
    """The write can be tried again: then it brings what it would have brought."""
    desk = Desk()
    await desk.handle.write(b"be")
    desk.book.full = True
    await fails(desk.handle.write(b"gun\n"), errno.ENOSPC)
    desk.book.full = False

    await desk.handle.write(b"gun\n")

    assert desk.book.kept == [b"begun\n"]


async def test_a_begun_line_beyond_the_bound_is_refused_in_the_write_that_brings_it():
    """The waiting bytes are dropped, and input is skipped to the next newline."""
    desk = Desk()
    await desk.handle.write(b"x" * 15)

    with pytest.raises(RecordTooLargeError):
        await desk.handle.write(b"x" * 15)
    await desk.handle.write(b"still of that line\nnext\n")

    assert desk.book.kept == [b"next\n"]


async def test_flush_commits_the_begun_line_when_the_opener_let_go():
    """The last close of `printf x >> log` makes the record, and tells its outcome."""
    desk = Desk()
    await desk.handle.write(b"x")

    await desk.handle.flush()

    assert desk.book.kept == [b"x\n"]


async def test_flush_waits_while_the_opener_holds_on():
    """A child of a shell that ends closes its duplicate; the line goes on."""
    desk = Desk()
    desk.held = True
    await desk.handle.write(b"a ")
    await desk.handle.flush()
    await desk.handle.write(b"b\n")

    assert desk.book.kept == [b"a b\n"]


async def test_a_failure_at_flush_is_told_once():
    """close(2) says it; release has nothing left to lose."""
    desk = Desk()
    await desk.handle.write(b"bad")

    await fails(desk.handle.flush(), errno.EINVAL)
    await desk.handle.release()

    assert desk.book.kept == []
    assert desk.reports.lines() == ()


async def test_release_commits_what_is_left_and_reports_what_fails():
    """Nobody waits for RELEASE: its failure stands in the reports."""
    desk = Desk()
    desk.held = True
    await desk.handle.write(b"bad")
    await desk.handle.flush()

    await desk.handle.release()

    assert len(desk.reports.lines()) == 1
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

    assert desk.book.kept == [b"good\n"]


async def test_fsync_puts_the_begun_line_on_disk_too():
    """What a successful fsync(2) promises holds for every byte written before it."""
    desk = Desk()
    await desk.handle.write(b"a\nb")

    await desk.handle.fsync()

    assert desk.book.kept == [b"a\n", b"b\n"]
    assert desk.book.syncs == 1


async def test_acks_0_gathers_the_lines_of_all_writers():
    """Writes of several handles within the linger time become one append."""
    desk = Desk(Acks.NONE)
    other = AppendHandle(desk.book, desk.appending, opener_pid=8, durable=False)
    await desk.handle.write(b"a\n")
    await other.write(b"b\n")
    assert desk.book.kept == []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.appending.gatherer.run)
        while not desk.book.kept:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    assert desk.book.kept == [b"a\nb\n"]


@pytest.mark.parametrize("call", ["write", "fsync", "flush"])
async def test_acks_0_tells_a_failure_at_the_next_call_of_that_handle(call: str):
    """Once: the call after that one is served."""
    desk = Desk(Acks.NONE)
    await desk.handle.write(b"a\n")
    desk.book.full = True
    desk.appending.gatherer.append_all()
    desk.book.full = False

    await fails(desk.handle.write(b"b\n") if call == "write" else getattr(desk.handle, call)(), errno.ENOSPC)
    await desk.handle.flush()


async def test_acks_0_refuses_a_bad_line_at_once():
    """A line's own fault belongs to the write that brings it, whatever the acks."""
    desk = Desk(Acks.NONE)

    await fails(desk.handle.write(b"bad\n"), errno.EINVAL)

    desk.appending.gatherer.append_all()
    assert desk.book.kept == []


async def test_acks_0_fsync_appends_what_was_gathered():
    """fsync(2) means on disk, also there."""
    desk = Desk(Acks.NONE)
    await desk.handle.write(b"a\n")

    await desk.handle.fsync()

    assert desk.book.kept == [b"a\n"]
    assert desk.book.syncs == 1


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
