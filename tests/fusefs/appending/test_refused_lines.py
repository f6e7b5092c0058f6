"""Refused writes: which bytes are dropped, which bytes wait, and which call fails."""

from __future__ import annotations

import errno

import pytest

from tests.doubles.append_target import OpenFile, fails
from tests.doubles.records import batch
from topicfs.fusefs.appending.failed_write import MAX_REQUEST_BYTES, SMALLEST_CUT_BYTES, may_go_on
from topicfs.fusefs.appending.framing import BATCHES
from topicfs.fusefs.appending.handle import Acks
from topicfs.storage.errors import InvalidRecordError, RecordTooLargeError


@pytest.mark.parametrize("durable", [False, True])
async def test_a_bad_line_drops_the_lines_of_its_write_and_the_unfinished_line(durable: bool):
    """A bad line drops the good lines of its write and the unfinished line before it; later lines are stored."""
    file = OpenFile(durable=durable)
    await file.handle.write(b"wait")

    await fails(file.handle.write(b"ed\nbad\nmore"), errno.EINVAL)
    await file.handle.write(b" of that\ngood\n")

    assert [b"good\n"] == file.target.kept


@pytest.mark.parametrize(("again", "kept"), [(b"gun\n", b"begun\n"), (b"next\n", b"next\n")])
async def test_a_full_disk_leaves_the_handle_as_it_was(again, kept):
    """A write that finds the disk full does not change the unfinished line before it.

    The repeated write completes the unfinished line. A write that begins with other data drops the unfinished line.
    """
    file = OpenFile()
    await file.handle.write(b"be")
    with file.target.failing():
        await fails(file.handle.write(b"gun\n"), errno.ENOSPC)

    await file.handle.write(again)

    assert [kept] == file.target.kept


async def test_a_begun_line_beyond_the_bound_is_refused_in_the_write_that_brings_it():
    """If a write makes an unfinished line too long, the write is refused. Input is skipped up to the next newline."""
    file = OpenFile()
    await file.handle.write(b"x" * 15)

    with pytest.raises(RecordTooLargeError):
        await file.handle.write(b"x" * 15)
    await file.handle.write(b"still of that line\nnext\n")

    assert [b"next\n"] == file.target.kept


def long_lines() -> OpenFile:
    """Return a file whose lines may be 12 bytes longer than one request."""
    return OpenFile(max_record_bytes=MAX_REQUEST_BYTES + 12)


async def test_the_rest_of_a_line_too_long_is_refused_when_it_comes_again():
    """If a program repeats the rest of a line that is too long, each repetition is refused.

    The kernel drops the error of the second request of a write(2), so the program repeats that part.
    """
    file = long_lines()
    await file.handle.write(b"before\n" + b"x" * (MAX_REQUEST_BYTES - 7))

    for _again in range(3):
        await fails(file.handle.write(b"x" * 50_000 + b"\n"), errno.EMSGSIZE)
    await file.handle.flush()
    await file.handle.write(b"after\n")

    assert [b"before\n", b"after\n"] == file.target.kept


async def test_more_data_than_was_refused_is_still_the_refused_piece():
    """A repeated write is refused even if it has more data after the refused piece.

    Programs add data to their buffers between two attempts.
    """
    file = long_lines()
    await file.handle.write(b"x" * MAX_REQUEST_BYTES)
    await fails(file.handle.write(b"rest of the line\n"), errno.EMSGSIZE)

    for _again in range(2):
        await fails(file.handle.write(b"rest of the line\nnext\n"), errno.EMSGSIZE)

    assert [] == file.target.kept


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSPC])
async def test_a_repeated_write_is_checked_with_the_unfinished_line(number: int):
    """A repeated write is parsed together with the unfinished line before it.

    After the cause of the error is gone, the repeated write succeeds.
    """
    file = long_lines()
    await file.handle.write(b"x" * MAX_REQUEST_BYTES)
    with file.target.failing(number):
        await fails(file.handle.write(b"y\nz\n"), number)

    await file.handle.write(b"y\nz\n")

    assert [b"x" * MAX_REQUEST_BYTES + b"y\nz\n"] == file.target.kept


@pytest.mark.parametrize("call", ["write", "flush", "fsync"])
async def test_an_error_that_the_kernel_may_have_dropped_is_reported_at_the_next_call(call: str):
    """If the kernel may have dropped an error, the next call fails with the same error, once."""
    file = OpenFile(max_record_bytes=2 * MAX_REQUEST_BYTES)
    await file.handle.write(b"x" * (MAX_REQUEST_BYTES - 1) + b"\n")
    await fails(file.handle.write(b"bad\n"), errno.EINVAL)

    await fails(
        file.handle.write(b"other\n") if call == "write" else getattr(file.handle, call)(), errno.EINVAL
    )
    await file.handle.write(b"next\n")
    await file.handle.flush()
    await file.handle.fsync()

    assert [b"next\n"] == file.target.kept[1:]


async def test_an_error_that_no_call_returned_is_in_the_reports():
    """If the mount ends before a program got its error, the error is reported in `@status`."""
    file = OpenFile(max_record_bytes=2 * MAX_REQUEST_BYTES)
    await file.handle.write(b"x" * MAX_REQUEST_BYTES)
    await fails(file.handle.write(b"y\nbad\n"), errno.EINVAL)

    await file.handle.release()

    assert [] == file.target.kept
    assert "this line is bad" in file.reports.lines()[-1]


async def test_after_a_failed_write_of_one_request_the_next_write_begins_a_line():
    """If a write that fits in one request fails, the program gets the error. Its next write begins a new line."""
    file = OpenFile()
    await file.handle.write(b"good\n")
    await fails(file.handle.write(b"bad\n"), errno.EINVAL)

    await file.handle.write(b"next\n")

    assert [b"good\n", b"next\n"] == file.target.kept


@pytest.mark.parametrize(("size", "may"), [(SMALLEST_CUT_BYTES, False), (SMALLEST_CUT_BYTES + 1, True)])
def test_only_a_large_request_may_be_part_of_a_larger_write(size: int, may: bool):
    """Only a request above SMALLEST_CUT_BYTES may be the first part of a larger write(2)."""
    assert may is may_go_on(size)


async def test_a_write_of_a_refused_lines_rest_alone_is_refused_as_well():
    """Each later write of a refused line's remaining part is refused, up to the newline that ends the line."""
    file = OpenFile()
    await file.handle.write(b"x" * 15)
    await fails(file.handle.write(b"x" * 15), errno.EMSGSIZE)

    await fails(file.handle.write(b"more of that line"), errno.EMSGSIZE)
    await fails(file.handle.write(b"its end\n"), errno.EMSGSIZE)
    await file.handle.write(b"next\n")

    assert [b"next\n"] == file.target.kept


async def test_a_refused_rest_is_known_again_in_a_smaller_piece():
    """If a part of a failed write is written again, it is recognized as part of the refused line, and refused."""
    file = OpenFile()
    await file.handle.write(b"begun ")
    await fails(file.handle.write(b"rest\nbad\n"), errno.EINVAL)

    await fails(file.handle.write(b"rest\n"), errno.EINVAL)
    await file.handle.write(b"good\n")

    assert [b"good\n"] == file.target.kept


@pytest.mark.parametrize(("end", "held"), [("flush", False), ("release", True)])
@pytest.mark.parametrize("acks", Acks)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EAGAIN])
async def test_a_line_whose_rest_failed_leaves_nothing(number: int, acks: Acks, end: str, held: bool):
    """If the write of a line's second part fails, closing the file does not store the first part of the line."""
    file = OpenFile(acks)
    file.held = held
    await file.handle.write(b"whole\nbegun ")
    file.appending.linger_buffer.append_all()
    with file.target.failing(number):
        if acks is Acks.NONE:
            file.handle.failed(file.target.error)
        await fails(file.handle.write(b"rest\n"), number)

    await getattr(file.handle, end)()
    await file.handle.release()
    file.appending.linger_buffer.append_all()

    assert [b"whole\n"] == file.target.kept


async def test_a_line_begun_in_a_write_that_failed_is_refused_to_its_end():
    """If the write that begins a line fails, the remaining part of the line is refused."""
    file = OpenFile()
    with file.target.failing():
        await fails(file.handle.write(b"whole\nbegun "), errno.ENOSPC)

    await fails(file.handle.write(b"rest\n"), errno.ENOSPC)
    await file.handle.write(b"next\n")

    assert [b"next\n"] == file.target.kept


async def test_fsync_does_not_answer_for_a_line_whose_rest_failed():
    """If the write of a line's second part failed, fsync(2) fails, and the program can write the part again."""
    file = OpenFile()
    await file.handle.write(b"begun ")
    with file.target.failing():
        await fails(file.handle.write(b"rest\n"), errno.ENOSPC)

    for _again in range(2):
        await fails(file.handle.fsync(), errno.ENOSPC)
    await file.handle.write(b"rest\n")
    await file.handle.fsync()

    assert [b"begun rest\n"] == file.target.kept


async def test_a_begun_line_that_fsync_finds_no_room_for_waits_on():
    """If fsync(2) cannot append the unfinished line, the line is kept, and a later fsync(2) appends it."""
    file = OpenFile()
    await file.handle.write(b"begun")
    with file.target.failing():
        await fails(file.handle.fsync(), errno.ENOSPC)

    await file.handle.fsync()

    assert [b"begun\n"] == file.target.kept


@pytest.mark.parametrize("call", ["flush", "fsync"])
async def test_the_rest_of_a_line_refused_at_its_beginning_is_no_record(call: str):
    """If flush or fsync refuses an unfinished line, a later write of the line's remaining part is refused."""
    file = OpenFile()
    await file.handle.write(b"bad")
    await fails(getattr(file.handle, call)(), errno.EINVAL)

    await fails(file.handle.write(b" or not\n"), errno.EINVAL)
    await file.handle.write(b"next\n")

    assert [b"next\n"] == file.target.kept


async def test_batches_after_one_that_found_no_room_are_taken():
    """After a batch failed because the disk was full, the next batch is appended."""
    file = OpenFile(framing=BATCHES, max_record_bytes=1000)
    first, second = bytes(batch(b"1", timestamp=1)), bytes(batch(b"2", timestamp=2))
    with file.target.failing():
        await fails(file.handle.write(first), errno.ENOSPC)

    await file.handle.write(second)

    assert file.target.kept == [second]


async def test_batches_after_a_refused_one_are_not_taken():
    """After a refused batch, later batches are refused, because it is unknown where the next batch begins."""
    file = OpenFile(framing=BATCHES, max_record_bytes=1000)
    with file.target.failing(errno.EINVAL):
        await fails(file.handle.write(bytes(batch(b"1", timestamp=1))), errno.EINVAL)

    with pytest.raises(InvalidRecordError, match="open the file again"):
        await file.handle.write(bytes(batch(b"2", timestamp=2)))

    assert [] == file.target.kept
