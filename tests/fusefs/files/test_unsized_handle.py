"""close(2) of a log whose size is unknown until it is read."""

from __future__ import annotations

import errno

import pytest
import trio

from topicfs.fusefs.errors import FileError
from topicfs.fusefs.files.log_handle import UnsizedHandle
from topicfs.fusefs.handle import Handle


class Stale(Handle):
    """A file whose records were deleted."""

    async def read(self, position: int, size: int) -> bytes:
        raise FileError(errno.ESTALE)


def test_a_read_that_failed_is_reported_once():
    """close(2) fails if the program has read nothing, but not if a read has already failed."""

    async def closed(*, read: bool) -> None:
        handle = UnsizedHandle(Stale(), lambda: 0)
        if read:
            with pytest.raises(FileError):
                await handle.read(0, 4096)
        await handle.flush()

    trio.run(lambda: closed(read=True))
    with pytest.raises(FileError, match="unknown until it is read"):
        trio.run(lambda: closed(read=False))
