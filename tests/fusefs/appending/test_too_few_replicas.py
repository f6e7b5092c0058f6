"""If too few disks have the lines of a write, the write fails, and repeating it does not append them again."""

from __future__ import annotations

import errno

import pytest

from tests.doubles.append_target import OpenFile, fails
from tests.doubles.records import batch
from topicfs.fusefs.appending.framing import BATCHES, LINES, Framing
from topicfs.fusefs.appending.handle import Acks


async def failed(data: bytes = b"a\nb\n", *, framing: Framing = LINES) -> OpenFile:
    """Return a file whose last write, `data`, is in the log but on too few disks."""
    file = OpenFile(Acks.ALL, framing=framing, max_record_bytes=1000)
    file.target.too_few = True
    await fails(file.handle.write(data), errno.EIO)
    return file


async def test_the_same_bytes_again_are_not_appended_again():
    """A repeated write gets EAGAIN while too few disks are in sync, and later succeeds without a second append."""
    file = await failed()
    for _ in range(2):
        await fails(file.handle.write(b"a\nb\n"), errno.EAGAIN)
    file.target.too_few = False
    assert 4 == await file.handle.write(b"a\nb\n")
    assert 4 == await file.handle.write(b"a\nb\n")
    assert [b"a\nb\n", b"a\nb\n"] == file.target.kept


async def test_more_bytes_than_failed_are_taken_in_two_steps():
    """If a repeated write has additional bytes, write(2) first returns the number of bytes that are in the log.

    The program then writes the additional bytes.
    """
    file = await failed(b"a\nbeg")
    file.target.too_few = False
    assert 5 == await file.handle.write(b"a\nbegun\n")
    assert 3 == await file.handle.write(b"un\n")
    assert [b"a\n", b"begun\n"] == file.target.kept


async def test_fewer_bytes_than_failed_are_known_as_well():
    """If a write is repeated in smaller pieces, each line is stored once."""
    file = await failed(b"a\nb\nbeg")
    file.target.too_few = False
    for piece in (b"a", b"\nb\nb", b"eg", b"un\n"):
        assert len(piece) == await file.handle.write(piece)
    assert [b"a\nb\n", b"begun\n"] == file.target.kept


async def test_other_bytes_are_another_write():
    """If a program then writes other bytes, the failed lines stay in the log; the rest of the last line is refused."""
    file = await failed(b"a\nbeg")
    file.target.too_few = False
    await fails(file.handle.write(b"in\n"), errno.EIO)
    await file.handle.write(b"c\n")
    assert [b"a\n", b"c\n"] == file.target.kept


async def test_fsync_and_close_append_a_begun_line_once():
    """If fsync(2) fails after it appended the unfinished line, later fsync(2) and close(2) do not append it again."""
    file = OpenFile(Acks.ALL)
    await file.handle.write(b"begun")
    file.target.too_few = True
    await fails(file.handle.fsync(), errno.EIO)
    await fails(file.handle.fsync(), errno.EAGAIN)
    file.target.too_few = False
    await file.handle.fsync()
    await file.handle.flush()
    await file.handle.release()
    assert [b"begun\n"] == file.target.kept


@pytest.mark.parametrize("torn", [False, True])
async def test_batches_again_are_not_appended_again(torn: bool):
    """A repeated write to `log.batch` stores its batches once, even if the write ended in the middle of a batch."""
    whole, more = bytes(batch(b"a")), bytes(batch(b"b"))
    data = whole + more[:30] if torn else whole
    file = await failed(data, framing=BATCHES)
    file.target.too_few = False
    assert len(data) == await file.handle.write(data)
    await file.handle.write(more[30:] if torn else more)
    assert [whole, more] == file.target.kept
