"""Scanning a segment's file batch by batch, in windows of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, TypeAlias

from topicfs.storage.codec.batch import find_offset, scan
from topicfs.storage.codec.binary.fields import HEADER_SIZE, LENGTH_POSITION, LOG_OVERHEAD
from topicfs.storage.codec.headers import Batches, BatchHeader
from topicfs.storage.disk.filesystem import File
from topicfs.storage.errors import CorruptBatchError, CorruptionError, TornBatchError
from topicfs.storage.model import Position

ENDS_EARLY = "the file ends early"
"""The cause reported for a file that is shorter than it was."""
LOOKUP_WINDOW_BYTES = 36_864
"""Bytes that a lookup reads at a time: the batch of an index entry and the one behind it, which the entry is there for, of
16 KiB each. A batch that does not fit is read twice.
"""
SCAN_WINDOW_BYTES = 65_536
"""Read at a time where headers alone count, of the rest of a segment or of a whole one, so that little memory is touched."""
FILE_WINDOW_BYTES = 1 << 20
"""Bytes read at a time where a whole file is read: recovery, copies, checksums."""

_LENGTH = Struct(">i")


class Window(NamedTuple):
    """A window of a file: whole batches as they are there. Positions inside `batches` count from `position`."""

    data: bytes
    position: int
    batches: Batches
    problem: CorruptBatchError | None
    """The error that ends the scan of the file; a batch that only this window's end cuts is read with the next one."""

    def raise_problem(self, file: File) -> None:
        """Raise CorruptionError where the scan of `file` ended before its time."""
        if self.problem is not None:
            raise CorruptionError(file.path, self.position + self.problem.position, self.problem.cause)


FoundBatch: TypeAlias = tuple[Window, BatchHeader]
"""A batch, and the window that it was found in."""


def windows(
    file: File,
    start: int,
    end: int,
    *,
    window_bytes: int = FILE_WINDOW_BYTES,
    check_crc: bool = False,
    offset: int | None = None,
) -> Iterator[Window]:
    """Yield the batches of [start, end), or those from `offset` on; the last window's `problem` says why it ends."""
    position = start
    size = least = max(window_bytes, HEADER_SIZE)
    while position < end:
        data = file.pread(min(size, end - position), Position(position))
        if not data:
            yield Window(data, position, scan(data), TornBatchError(0, ENDS_EARLY))
            return
        if offset is None:
            batches = scan(data, check_crc=check_crc)
        else:
            first = find_offset(data, offset, end - position)
            if first >= len(data):
                position, size = position + first, least
                continue
            batches = scan(data, first, check_crc=check_crc, max_batches=1)
        cut = isinstance(batches.problem, TornBatchError) and len(data) == size and position + size < end
        if cut and batches.stop == 0:
            # A batch larger than the window; one that claims more than the file holds is torn.
            size = min(declared_size(data), end - position)
            continue
        problem = None if cut else batches.problem
        yield Window(data, position, batches, problem)
        if problem is not None:
            return
        position, size = position + batches.stop, least


def declared_size(data: bytes) -> int:
    """Return the bytes of the batch that begins `data`, as its header says; at least as many as `data` has, and one more."""
    if len(data) < LOG_OVERHEAD:
        return len(data) + 1
    length: int = _LENGTH.unpack_from(data, LENGTH_POSITION)[0]
    return max(length + LOG_OVERHEAD, len(data) + 1)
