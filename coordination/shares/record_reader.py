"""Records as a queue hands them out: fetched batch by batch, decoded once, and kept for the next ones of the same batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from topicfs.coordination.shares.records.acquisition import LogBatch
from topicfs.storage.codec.aborted_filter import hide_aborted
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.columns import Columns, decode
from topicfs.storage.engine import Partition
from topicfs.storage.errors import CorruptBatchError, CorruptionError
from topicfs.storage.model import Isolation, Offset, Position

KEPT_BATCHES = 4
"""Decoded batches kept of each partition."""
FETCH_BYTES = 1 << 20
"""Fetched at once where more than one record is wanted."""


class FetchedBatch(NamedTuple):
    """A batch as it stands in the log."""

    base: Offset
    last: Offset
    data: memoryview
    segment_base_offset: Offset
    position: Position
    """Position of the batch in its segment's file."""
    is_hidden: bool
    """True if it belongs to a transaction that was aborted."""
    is_control: bool

    @property
    def bounds(self) -> LogBatch:
        return LogBatch(self.base, self.last)


class RecordReader:
    """Reads one partition. Calls come one at a time (the group's lock)."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._kept: OrderedDict[Offset, tuple[FetchedBatch, Columns | None]] = OrderedDict()

    def fetch(self, offset: Offset, isolation: Isolation, *, most: int) -> Sequence[FetchedBatch]:
        """Return the batches from the one that holds `offset` on; empty at the visible end.

        Raises OffsetOutOfRangeError, CorruptionError, PartitionOfflineError, OSError.
        """
        if most == 1:
            for batch, _columns in self._kept.values():
                if batch.base <= offset <= batch.last:
                    return (batch,)
        fetched = self._partition.read(offset, max_bytes=1 if most == 1 else FETCH_BYTES, isolation=isolation)
        if not fetched.data:
            return ()
        batches = scan(fetched.data)
        hide_aborted(batches, fetched.aborted)
        return [
            FetchedBatch(
                one.base_offset,
                one.last_offset,
                fetched.data[one.position : one.end_position],
                fetched.segment_base_offset,
                Position(fetched.position + one.position),
                one.is_hidden,
                one.is_control,
            )
            for one in batches
        ]

    def decode(self, batch: FetchedBatch) -> Columns | None:
        """Return the records of a batch; None where it has none for readers. Raises CorruptionError."""
        if batch.is_control or batch.is_hidden:
            return None
        kept = self._kept.get(batch.base)
        if kept is not None:
            self._kept.move_to_end(batch.base)
            return kept[1]
        try:
            found = decode(batch.data)
        except CorruptBatchError as error:
            name = f"{batch.segment_base_offset:020}.log"
            directory = self._partition.directory
            where = name if directory is None else directory / name
            raise CorruptionError(where, batch.position + error.position, error.cause) from None
        columns = found[0] if found else None
        self._kept[batch.base] = (batch, columns)
        if len(self._kept) > KEPT_BATCHES:
            self._kept.popitem(last=False)
        return columns

    def forget(self) -> None:
        self._kept.clear()


def find(columns: Columns, offset: Offset) -> int | None:
    """Return the index of a record; None where there is none at the offset."""
    index = columns.find(offset)
    return index if index < len(columns) and columns.offsets[index] == offset else None
