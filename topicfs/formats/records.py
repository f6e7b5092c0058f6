"""The records of ranges: as runs of columns, and one by one, merged by time."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from topicfs.formats.ranges import RecordRange
from topicfs.fusefs.views.decoded_fetch import Damage, read_decoded
from topicfs.storage.codec.columns import Columns
from topicfs.storage.engine import Partition
from topicfs.storage.model import Isolation, Offset, Record, Timestamp

FETCH_BYTES, SMALLEST_FETCH_BYTES = 2**20, 2**10
"""Bytes of batches fetched from a partition at once; fewer where many are merged."""
HELD_BYTES = 64 * 2**20
"""Bytes of batches held of all partitions together, but for one batch of each."""


class RecordRun(NamedTuple):
    """Records [start, end) of some columns of a partition."""

    partition: Partition
    columns: Columns
    start: int
    end: int


class Placed(NamedTuple):
    """A record and where it stands."""

    topic: str
    partition: int
    record: Record


def runs(wanted: RecordRange, isolation: Isolation, fetch_bytes: int | None = None) -> Iterator[RecordRun]:
    """Yield the records of a range in their order. Raises CorruptionError at a damaged batch, behind all that stands before it."""
    partition, offset, end_offset = wanted
    while offset < end_offset:
        fetched = read_decoded(partition, offset, max_bytes=fetch_bytes or FETCH_BYTES, isolation=isolation)
        for piece in fetched.below(end_offset):
            if isinstance(piece, Damage):
                raise piece.error
            start, end = bisect_left(piece.offsets, offset), bisect_left(piece.offsets, end_offset)
            if start < end:
                yield RecordRun(partition, piece, start, end)
        offset = max(fetched.next_offset, Offset(offset + 1))


def merged(wanted: Sequence[RecordRange], isolation: Isolation) -> Iterator[Placed]:
    """Yield the records of all ranges, of their next ones always the oldest; each partition stays in its own order."""
    if len(wanted) == 1:
        return _records(wanted[0], isolation, FETCH_BYTES)
    share = max(SMALLEST_FETCH_BYTES, min(FETCH_BYTES, HELD_BYTES // max(len(wanted), 1)))
    queues = (_keyed(one, rank, isolation, share) for rank, one in enumerate(wanted))
    return (placed for _, _, _, placed in heapq.merge(*queues, key=lambda keyed: keyed[:3]))


def _records(wanted: RecordRange, isolation: Isolation, fetch_bytes: int) -> Iterator[Placed]:
    topic, number = wanted.partition.topic, wanted.partition.number
    for run in runs(wanted, isolation, fetch_bytes):
        for index in range(run.start, run.end):
            yield Placed(topic, number, run.columns.record(index))


def _keyed(
    wanted: RecordRange, rank: int, isolation: Isolation, fetch_bytes: int
) -> Iterator[tuple[Timestamp, int, Offset, Placed]]:
    """A record that is older than the one before it follows that one at once."""
    newest = Timestamp(-1)
    for placed in _records(wanted, isolation, fetch_bytes):
        newest = max(newest, placed.record.timestamp)
        yield newest, rank, placed.record.offset, placed
