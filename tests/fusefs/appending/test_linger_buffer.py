"""acks=0: a write returns before its lines are appended. The order of lines, the limits, and who gets which error."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from tests.doubles.append_target import MemoryTarget, OpenFile, fails
from tests.doubles.records import batch
from topicfs.fusefs.appending.failed_write import MAX_REQUEST_BYTES
from topicfs.fusefs.appending.framing import BATCHES
from topicfs.fusefs.appending.handle import Acks
from topicfs.fusefs.appending.linger_buffer import MAX_GATHERED_BYTES, LingerBuffer


@pytest.fixture
def file() -> OpenFile:
    return OpenFile(Acks.NONE)


@pytest.fixture
def buffer(file: OpenFile) -> LingerBuffer:
    """The buffer of the file; its lines are appended only when a test asks for it."""
    return file.appending.linger_buffer


async def test_lines_keep_the_order_in_which_they_were_answered(file: OpenFile, buffer: LingerBuffer):
    """Lines that several handles write to one log become one batch, in the order in which the writes were answered."""
    handles = [file.handle, file.open(file.target)]
    for number in range(6):
        await handles[number % 2].write(b"%d\n" % number)
    assert [] == file.target.kept
    buffer.append_all()
    assert [b"0\n1\n2\n3\n4\n5\n"] == file.target.kept


async def test_a_durable_write_comes_after_the_waiting_lines(file: OpenFile):
    """A write with O_SYNC is appended after the lines that wait in the buffer."""
    await file.handle.write(b"waits\n")
    await file.open(file.target, durable=True).write(b"now\n")
    assert [b"waits\n", b"now\n"] == file.target.kept


async def test_a_line_in_two_writes_is_placed_by_the_second_write(file: OpenFile, buffer: LingerBuffer):
    """A line that arrives in two writes takes its place in the order when the second write arrives."""
    await file.handle.write(b"a\nbeg")
    await file.open(file.target).write(b"b\n")
    await file.handle.write(b"un\n")
    buffer.append_all()
    assert [b"a\nb\nbegun\n"] == file.target.kept


async def test_fsync_appends_what_waits_before_it_flushes(file: OpenFile):
    """fsync(2) first appends the waiting lines and the unfinished line, and then flushes."""
    await file.handle.write(b"a\nb")
    await file.handle.fsync()
    (flushed,) = file.target.syncs
    assert b"a\nb\n" == b"".join(flushed)


async def test_a_failed_append_at_fsync_fails_each_file_once(file: OpenFile):
    """If the append at fsync(2) fails, nothing is flushed. Each file that wrote some of the lost lines gets the error.

    A file gets the error once. Later lines are stored.
    """
    other = MemoryTarget()
    second, stranger = file.open(file.target), file.open(other)
    await file.handle.write(b"a\n")
    await second.write(b"b\n")
    await stranger.write(b"c\n")
    with file.target.failing():
        await fails(file.handle.fsync(), errno.ENOSPC)
    assert [] == file.target.syncs
    await file.handle.fsync()
    await fails(second.flush(), errno.ENOSPC)
    await second.flush()
    await stranger.fsync()
    await file.handle.write(b"d\n")
    await file.handle.fsync()
    assert ([b"d\n"], [b"c\n"]) == (file.target.kept, other.kept)


@pytest.mark.parametrize("call", ["write", "fsync", "flush"])
async def test_a_failure_is_reported_at_the_next_call_on_the_handle(
    file: OpenFile, buffer: LingerBuffer, call: str
):
    """The first call on a handle after its lines were lost fails; the second call succeeds."""
    await file.handle.write(b"a\n")
    with file.target.failing():
        buffer.append_all()

    await fails(file.handle.write(b"b\n") if call == "write" else getattr(file.handle, call)(), errno.ENOSPC)
    await file.handle.flush()


async def test_an_error_that_the_kernel_may_have_dropped_is_repeated():
    """If an append fails after a large request, the next two calls fail: the kernel may drop the first error."""
    file = OpenFile(Acks.NONE, max_record_bytes=2 * MAX_REQUEST_BYTES)
    await file.handle.write(b"x" * (MAX_REQUEST_BYTES - 1) + b"\n")
    file.handle.failed(OSError(errno.ENOSPC, "no room"))

    await fails(file.handle.write(b"a\n"), errno.ENOSPC)
    await fails(file.handle.write(b"a\n"), errno.ENOSPC)
    await file.handle.write(b"a\n")
    file.appending.linger_buffer.append_all()

    assert [b"a\n"] == file.target.kept[1:]


async def test_lines_that_are_lost_after_the_close_are_reported(file: OpenFile, buffer: LingerBuffer):
    """If lines are lost after their file was closed, the loss is reported in `@status`, because no call can fail."""
    await file.handle.write(b"a\n")
    await file.handle.flush()
    await file.handle.release()
    with file.target.failing():
        buffer.append_all()

    assert "lines lost when the file was closed" in file.reports.lines()[-1]


async def test_a_bad_line_is_refused_at_once(file: OpenFile, buffer: LingerBuffer):
    """A write that contains a bad line fails even with acks=0."""
    await fails(file.handle.write(b"bad\n"), errno.EINVAL)

    buffer.append_all()
    assert [] == file.target.kept


async def test_batches_do_not_wait():
    """With acks=0, batches do not wait in the linger buffer: only the write that contains a refused batch fails."""
    file = OpenFile(Acks.NONE, framing=BATCHES, max_record_bytes=1000)
    data = bytes(batch(b"1", timestamp=1))

    await file.handle.write(data)

    assert [data] == file.target.kept


async def test_waiting_lines_are_appended_after_the_linger_time(
    file: OpenFile, buffer: LingerBuffer, nursery: trio.Nursery
):
    """The lines that are written within the linger time become one append when this time is over."""
    await file.handle.write(b"a\n")
    await file.handle.write(b"b\n")
    assert [] == file.target.kept

    nursery.start_soon(buffer.run)
    while not file.target.kept:
        await trio.lowlevel.checkpoint()

    assert [b"a\nb\n"] == file.target.kept


async def test_waiting_lines_are_appended_when_the_mount_ends(file: OpenFile, buffer: LingerBuffer):
    """When the mount ends, the waiting lines in the linger buffer are appended without waiting for the linger time."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(buffer.run)
        await trio.testing.wait_all_tasks_blocked()
        await file.handle.write(b"a\n")
        nursery.cancel_scope.cancel()

    assert [b"a\n"] == file.target.kept


@pytest.mark.parametrize(("size", "appended"), [(MAX_GATHERED_BYTES - 1, 0), (MAX_GATHERED_BYTES, 1)])
async def test_the_byte_that_reaches_the_limit_appends_all_waiting_lines(size: int, appended: int):
    """The byte that reaches MAX_GATHERED_BYTES makes the buffer append all waiting lines immediately."""
    file = OpenFile(Acks.NONE, max_record_bytes=MAX_GATHERED_BYTES)
    await file.handle.write(b"x" * 9 + b"\n")
    await file.handle.write(b"x" * (size - 11) + b"\n")
    assert appended == len(file.target.kept)
    file.appending.linger_buffer.append_all()
    file.appending.linger_buffer.append_all()
    assert [size] == [len(lines) for lines in file.target.kept]


async def test_each_log_waits_by_itself():
    """The limit applies to each log separately: reaching it in one log does not append the lines of another log."""
    file = OpenFile(Acks.NONE, max_record_bytes=MAX_GATHERED_BYTES)
    other = MemoryTarget(MAX_GATHERED_BYTES)
    half = b"x" * (MAX_GATHERED_BYTES // 2 - 1) + b"\n"
    await file.handle.write(half)
    await file.open(other).write(half)
    assert ([], []) == (file.target.kept, other.kept)
    await file.handle.write(half)
    assert ([half + half], []) == (file.target.kept, other.kept)
