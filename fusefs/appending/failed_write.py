"""Remembers a failed write, to interpret the write after it.

The kernel splits a write(2) of more than 1 MiB into several requests. If a later request fails, write(2) returns the
number of bytes already written and drops the error; the program then writes the remaining bytes with another
write(2). So the failed request is remembered. If the next write begins with the same bytes, it repeats the failed
request; otherwise the program goes on with new data.
"""

from __future__ import annotations

from typing import NamedTuple

from topicfs.fusefs.appending.framing import NOTHING, FramingState
from topicfs.storage.errors import NotEnoughReplicasAfterAppendError

MAX_REQUEST_BYTES = 1024 * 1024
"""Largest amount of data in one request of the kernel."""

SMALLEST_CUT_BYTES = MAX_REQUEST_BYTES // 2
"""Size of the smallest request that may be followed by another request of the same write(2).

The kernel fills such a request to 1 MiB, minus partial pages of the program's buffers. (A writev(2) of hundreds of
small buffers has smaller requests. If such a request is repeated, the mount recognizes it all the same.)
"""


class FailedWrite(NamedTuple):
    """A failed request. Either no line was stored, or all whole lines were stored, but on too few replicas."""

    data: bytes
    error: Exception
    after: FramingState
    """The framing state if the program goes on with new data."""
    unheard: bool
    """True if the kernel may have dropped the error."""

    def kept_of(self, data: bytes) -> int:
        """Return how many leading bytes of `data` repeat the failed request and are already in the log."""
        same = data.startswith(self.data) or self.data.startswith(data)
        kept = isinstance(self.error, NotEnoughReplicasAfterAppendError)
        return min(len(data), len(self.data)) if same and kept else 0

    def followed_by(self, data: bytes, begun: FramingState) -> FramingState:
        """Return the framing state before `data`, which is new data.

        `begun` was the framing state before the failed write.
        """
        if begun != NOTHING and self.data.startswith(data):
            # `data` is a smaller piece of the failed request, which continued a begun line.
            return FramingState(refused=self.error)
        return self.after


def may_go_on(size: int) -> bool:
    """Return whether another request of the same write(2) may follow a request of `size` bytes."""
    return size > SMALLEST_CUT_BYTES
