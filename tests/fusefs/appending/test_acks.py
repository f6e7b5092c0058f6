"""Tests of acks=0, where a write returns before its lines are appended, and of the values that acks may have."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from tests.doubles.append_target import OpenFile, fails
from tests.doubles.records import batch
from topicfs.fusefs.appending.failed_write import MAX_REQUEST_BYTES
from topicfs.fusefs.appending.framing import BATCHES
from topicfs.fusefs.appending.handle import Acks, AppendHandle
from topicfs.storage.errors import InvalidConfigError


async def test_acks_0_repeats_an_error_that_the_kernel_may_have_dropped():
    """If an append fails after a large request, the next two calls fail: the kernel may drop the first error."""
    file = OpenFile(Acks.NONE)
    file.target.max_record_bytes = 2 * MAX_REQUEST_BYTES
    await file.handle.write(b"x" * (MAX_REQUEST_BYTES - 1) + b"\n")
    file.handle.failed(OSError(errno.ENOSPC, "no room"))

    await fails(file.handle.write(b"a\n"), errno.ENOSPC)
    await fails(file.handle.write(b"a\n"), errno.ENOSPC)
    await file.handle.write(b"a\n")
    file.appending.linger_buffer.append_all()

    assert [b"a\n"] == file.target.kept[1:]


async def test_a_write_with_o_sync_comes_after_the_lines_that_wait():
    """A write with O_SYNC first appends the lines in the linger buffer, so that the order of writes is kept."""
    file = OpenFile(Acks.NONE)
    synchronous = AppendHandle(file.target, file.appending, opener_pid=8, durable=True)
    await file.handle.write(b"a\n")

    await synchronous.write(b"b\n")

    assert [b"a\n", b"b\n"] == file.target.kept


async def test_acks_0_fsync_raises_the_error_of_the_lines_it_appends():
    """fsync(2) appends the waiting lines; if this append fails, fsync(2) fails and does not flush."""
    file = OpenFile(Acks.NONE)
    await file.handle.write(b"a\n")
    file.target.full = True

    await fails(file.handle.fsync(), errno.ENOSPC)

    assert 0 == file.target.syncs


async def test_acks_0_gathers_no_batches():
    """With acks=0, batches do not wait in the linger buffer: only the write that contains a refused batch fails."""
    file = OpenFile(Acks.NONE)
    file.target.max_record_bytes = 1000
    handle = AppendHandle(file.target, file.appending, opener_pid=7, durable=False, framing=BATCHES)
    data = bytes(batch(b"1", timestamp=1))

    await handle.write(data)

    assert file.target.kept == [data]


async def test_waiting_lines_are_appended_when_the_mount_ends():
    """When the mount ends, the waiting lines in the linger buffer are appended without waiting for the linger time."""
    file = OpenFile(Acks.NONE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.appending.linger_buffer.run)
        await trio.testing.wait_all_tasks_blocked()
        await file.handle.write(b"a\n")
        nursery.cancel_scope.cancel()

    assert [b"a\n"] == file.target.kept


async def test_acks_0_reports_what_fails_after_the_file_was_closed():
    """If lines are lost after their file was closed, the loss is reported in `@status`, because no call can fail."""
    file = OpenFile(Acks.NONE)
    await file.handle.write(b"a\n")
    await file.handle.flush()
    await file.handle.release()
    file.target.full = True

    file.appending.linger_buffer.append_all()

    assert "lines lost when the file was closed" in file.reports.lines()[-1]


async def test_acks_0_gathers_the_lines_of_all_writers():
    """Lines that several handles write within the linger time become one append."""
    file = OpenFile(Acks.NONE)
    other = AppendHandle(file.target, file.appending, opener_pid=8, durable=False)
    await file.handle.write(b"a\n")
    await other.write(b"b\n")
    assert [] == file.target.kept

    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.appending.linger_buffer.run)
        while not file.target.kept:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    assert [b"a\nb\n"] == file.target.kept


@pytest.mark.parametrize("call", ["write", "fsync", "flush"])
async def test_acks_0_reports_a_failure_at_the_next_call_on_the_handle(call: str):
    """The first call on a handle after its lines were lost fails; the second call succeeds."""
    file = OpenFile(Acks.NONE)
    await file.handle.write(b"a\n")
    file.target.full = True
    file.appending.linger_buffer.append_all()
    file.target.full = False

    await fails(file.handle.write(b"b\n") if call == "write" else getattr(file.handle, call)(), errno.ENOSPC)
    await file.handle.flush()


async def test_acks_0_refuses_a_bad_line_at_once():
    """A write that contains a bad line fails even with acks=0."""
    file = OpenFile(Acks.NONE)

    await fails(file.handle.write(b"bad\n"), errno.EINVAL)

    file.appending.linger_buffer.append_all()
    assert [] == file.target.kept


async def test_acks_0_fsync_appends_what_was_gathered():
    """fsync(2) appends the waiting lines and flushes the log."""
    file = OpenFile(Acks.NONE)
    await file.handle.write(b"a\n")

    await file.handle.fsync()

    assert [b"a\n"] == file.target.kept
    assert 1 == file.target.syncs


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
