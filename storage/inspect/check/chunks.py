"""A log in pieces: whole adjacent batches, a few MiB at a time."""

from __future__ import annotations

from collections.abc import Iterator

from storage.codec.batch import scan
from storage.codec.headers import Batches
from storage.errors import CorruptBatchError, TornBatchError
from storage.model import Position

CHUNK_BYTES = 1 << 20
"""Bytes of log in a chunk; its records' columns take 64 bytes each, so 10 MB for the smallest ones."""


def chunks(data: memoryview) -> Iterator[Batches]:
    """Give the whole batches of `data`, in order; a last, empty piece has the `problem` that ended the walk.

    No checksum is looked at: only where a batch's own header makes the next one unfindable does the walk end early.
    """
    start = Position(0)
    while start < len(data):
        found = scan(data, start, min(start + CHUNK_BYTES, len(data)))
        if not len(found):
            # A batch longer than a chunk, or one that ends the walk: the whole rest tells which.
            found = scan(data, start, max_batches=1)
        if not len(found):
            yield found
            return
        yield found
        start = Position(found.stop)


def is_torn(problem: CorruptBatchError | None) -> bool:
    """Whether the walk ended in what an interrupted write leaves behind."""
    return isinstance(problem, TornBatchError)
