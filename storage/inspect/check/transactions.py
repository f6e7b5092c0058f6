"""What must be true of a segment's aborted transactions: they ascend by their markers, which stand in the segment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from storage.disk.filesystem import FileSystem
from storage.errors import CorruptionError
from storage.indexes import transaction_index
from storage.inspect.check.findings import Finding
from storage.model import Offset, Position


def check_transactions(files: FileSystem, path: Path, base_offset: Offset) -> Iterator[Finding]:
    """Check the `.txnindex` of the segment that begins at `base_offset`. FileNotFoundError without one."""
    try:
        spans = transaction_index.decode(files.read_bytes(path), path)
    except CorruptionError as error:
        yield Finding.of(error)
        return
    before = Offset(base_offset - 1)
    for slot, span in enumerate(spans):
        if span.last_offset <= before or span.first_offset > span.last_offset:
            cause = f"transaction at {span.first_offset} to {span.last_offset} after marker {before}"
            yield Finding(path, Position(slot * transaction_index.SLOT.size), cause)
        before = span.last_offset
