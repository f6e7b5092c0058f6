"""Which data of a write is appended immediately, which data is appended at close(2), and which data is flushed."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from tests.doubles.append_target import OpenFile, fails
from topicfs.fusefs.appending.handle import Acks
from topicfs.storage.errors import InvalidConfigError


async def test_one_write_is_one_append():
    """The complete lines of one write become one append; a line without a newline waits."""
    file = OpenFile()

    assert 5 == await file.handle.write(b"a\nb\nc")

    assert [b"a\nb\n"] == file.target.kept


async def test_a_close_waits_for_the_append_under_way():
    """flush waits until an append in a thread has ended, and does not append the unfinished line a second time."""
    file = OpenFile(Acks.ALL)
    await file.handle.write(b"begun ")
    file.target.door.clear()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.handle.write, b"rest\n")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(file.handle.flush)
        await trio.testing.wait_all_tasks_blocked()
        file.target.door.set()

    assert [b"begun rest\n"] == file.target.kept


async def test_flush_commits_the_begun_line_when_the_opener_let_go():
    """When the program that opened the file closes it (`printf x >> log`), flush appends the unfinished line."""
    file = OpenFile()
    await file.handle.write(b"x")

    await file.handle.flush()

    assert [b"x\n"] == file.target.kept


async def test_flush_waits_while_the_opener_holds_on():
    """While the opener holds the file, closing a duplicate descriptor does not append the unfinished line."""
    file = OpenFile()
    file.held = True
    await file.handle.write(b"a ")
    await file.handle.flush()
    await file.handle.write(b"b\n")

    assert [b"a b\n"] == file.target.kept


async def test_a_failure_at_flush_is_reported_once():
    """If flush refuses a line, close(2) fails, and release does not report the error again."""
    file = OpenFile()
    await file.handle.write(b"bad")

    await fails(file.handle.flush(), errno.EINVAL)
    await file.handle.release()

    assert [] == file.target.kept
    assert () == file.reports.lines()


async def test_release_appends_the_unfinished_line_and_reports_a_failure():
    """RELEASE has no caller that could get an error, so a failed append in RELEASE is reported in `@status`."""
    file = OpenFile()
    file.held = True
    await file.handle.write(b"bad")
    await file.handle.flush()

    await file.handle.release()

    assert 1 == len(file.reports.lines())
    assert "orders/0/log" in file.reports.lines()[0]
    assert "this line is bad" in file.reports.lines()[0]


@pytest.mark.parametrize("file", [OpenFile(Acks.ALL), OpenFile(durable=True)], ids=["acks=all", "O_DSYNC"])
async def test_durable_handles_append_durably(file: OpenFile):
    """With acks=all or O_DSYNC, write(2) and close(2) return after the records are on disk."""
    await file.handle.write(b"a\nb")
    await file.handle.flush()

    assert file.target.durable == file.target.kept == [b"a\n", b"b\n"]


async def test_fsync_puts_the_begun_line_on_disk_too():
    """fsync(2) appends the unfinished line as a record and flushes it."""
    file = OpenFile()
    await file.handle.write(b"a\nb")

    await file.handle.fsync()

    assert [[b"a\n", b"b\n"]] == file.target.syncs


@pytest.mark.parametrize(
    ("text", "acks"), [("0", Acks.NONE), ("1", Acks.LEADER), ("all", Acks.ALL), ("-1", Acks.ALL)]
)
def test_acks_are_spelled_as_kafka_does(text: str, acks: Acks):
    """`Acks.parse` accepts 0, 1, all and -1."""
    assert Acks.parse(text) is acks


def test_other_acks_are_refused():
    """`Acks.parse` refuses any other value, and its error lists the valid spellings."""
    with pytest.raises(InvalidConfigError, match="0, 1, all or -1"):
        Acks.parse("2")
