"""A write that failed, and what the write after it means.

The kernel sends a write(2) of more than 1 MiB as several requests, one after the other. When one of them fails and those
before it were taken, write(2) answers how many bytes were taken and drops the error; the program comes again with the
rest in another write(2). So a failed request is remembered: a write that begins with the same bytes is the same piece of
the stream again, and whatever else comes is what the program goes on with.
"""

from __future__ import annotations

from typing import NamedTuple

from topicfs.fusefs.appending.framing import NOTHING, Waiting
from topicfs.storage.errors import NotEnoughReplicasAfterAppendError

MAX_REQUEST_BYTES = 1024 * 1024
"""Most bytes that the kernel puts into one request."""

SMALLEST_CUT_BYTES = MAX_REQUEST_BYTES // 2
"""Fewest bytes of a request that was cut off: 1 MiB, less what is missing of the first and last page of each buffer.

(Of hundreds of small buffers, written with writev(2), it has less; a repetition is known all the same.)
"""


class FailedWrite(NamedTuple):
    """A request of which nothing was kept, or, where too few replicas have it, all whole lines."""

    data: bytes
    error: Exception
    after: Waiting
    """The state after it, for a program that goes on."""
    unheard: bool
    """True if the kernel may have dropped the error."""

    def repeated_by(self, data: bytes) -> bool:
        """Return whether `data` is the same piece of the stream, and perhaps more of it."""
        return data.startswith(self.data)

    def kept_of(self, data: bytes) -> int:
        """Return how many bytes at the beginning of `data` are in the log already: the same piece, all of it or a part."""
        same = data.startswith(self.data) or self.data.startswith(data)
        kept = isinstance(self.error, NotEnoughReplicasAfterAppendError)
        return min(len(data), len(self.data)) if same and kept else 0

    def followed_by(self, data: bytes, begun: Waiting) -> Waiting:
        """Return what waits before `data`, which is not the same piece again; `begun` waited before the failed write."""
        if begun != NOTHING and self.data.startswith(data):
            # The rest of a begun line again, this time in a smaller piece.
            return Waiting(refused=self.error)
        return self.after


def may_go_on(size: int) -> bool:
    """Return whether the write(2) of which a request of `size` bytes was taken may send another one."""
    return size > SMALLEST_CUT_BYTES
