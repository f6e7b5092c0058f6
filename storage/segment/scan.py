"""Scans a segment's file batch by batch, in windows of bounded memory."""

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
"""The cause that is reported if a file is shorter than it was."""
LOOKUP_WINDOW_BYTES = 36_864
"""Bytes that a lookup reads at a time: two batches of 16 KiB, because the target is usually in the batch of the found
index entry or in the next batch.
"""
SCAN_WINDOW_BYTES = 65_536
"""Bytes read at a time if only headers are needed; small, so that only little memory is touched."""
FILE_WINDOW_BYTES = 1 << 20
"""Bytes read at a time if the whole file is needed, for recovery, copies and checksums."""

_LENGTH = Struct(">i")


class Window(NamedTuple):
    """The whole batches in a window of a file. Positions in `batches` count from `position`."""

    data: bytes
    position: int
    batches: Batches
    problem: CorruptBatchError | None
    """The error that ends the scan; None if only the window's end cuts off a batch, which the next window has."""

    def raise_problem(self, file: File) -> None:
        """Raise CorruptionError if the scan of `file` ended early."""
        if self.problem is not None:
            raise CorruptionError(file.path, self.position + self.problem.position, self.problem.cause)


FoundBatch: TypeAlias = tuple[Window, BatchHeader]
"""A batch, and the window in which it was found."""


def windows(
    file: File,
    start: int,
    end: int,
    *,
    window_bytes: int = FILE_WINDOW_BYTES,
    check_crc: bool = False,
    offset: int | None = None,
) -> Iterator[Window]:
    """Yield windows of the batches in the range [start, end) of file positions.

    With `offset`, begin with the batch that contains it, and read one batch per window. If an error ends the scan,
    the last window has the error in `problem`.
    """
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
            # The batch is larger than the window. If it declares more bytes than the file has, it is torn.
            size = min(declared_size(data), end - position)
            continue
        problem = None if cut else batches.problem
        yield Window(data, position, batches, problem)
        if problem is not None:
            return
        position, size = position + batches.stop, least


def declared_size(data: bytes) -> int:
    """Return the size that the header of the first batch in `data` declares, but at least `len(data) + 1`."""
    if len(data) < LOG_OVERHEAD:
        return len(data) + 1
    length: int = _LENGTH.unpack_from(data, LENGTH_POSITION)[0]
    return max(length + LOG_OVERHEAD, len(data) + 1)
