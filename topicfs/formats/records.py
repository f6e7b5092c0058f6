"""The records of a path, as ranges of offsets; read in slices of columns, or one by one, merged by time."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from topicfs.fusefs.forms import SUFFIXES
from topicfs.fusefs.selectors import SelectedRange, SelectorError, TimeRange, parse, resolve
from topicfs.fusefs.views.decoded_fetch import Damage, read_decoded
from topicfs.fusefs.views.records import earliest_offset, latest_offset
from topicfs.paths import TopicPath
from topicfs.storage.codec.columns import Columns
from topicfs.storage.engine import LogEngine, Partition
from topicfs.storage.errors import InvalidNameError
from topicfs.storage.model import Isolation, Offset, Record, Timestamp

WHOLE = "log"
ENDS = {"earliest": earliest_offset, "latest": latest_offset}


class RecordRange(NamedTuple):
    """The records of a partition with start_offset <= offset < end_offset."""

    partition: Partition
    start_offset: Offset
    end_offset: Offset


class Ranges(NamedTuple):
    """The ranges of a path, and the offset from which later records follow."""

    ranges: list[RecordRange]
    grows_at: Offset | None
    """Offset from which later records follow. None: the path does not grow, or is the path of a topic."""


def ranges_of(engine: LogEngine, path: TopicPath, isolation: Isolation) -> Ranges:
    """Return a path's records. Raises SelectorError (no records), InvalidNameError (not records), UnknownTopicError."""
    if any(path.name.endswith(suffix) for suffix in SUFFIXES):
        raise InvalidNameError(f"{path}: a format replaces the suffix; write the path without it")
    if path.partition is None:
        return Ranges(_of_topic(engine, path, isolation), None)
    return _of_partition(engine.partition(*path.topic_partition), path, isolation)


def _of_topic(engine: LogEngine, path: TopicPath, isolation: Isolation) -> list[RecordRange]:
    partitions = engine.topic(path.topic).partitions()
    if path.name == WHOLE:
        return [_whole(partitions[number], isolation) for number in sorted(partitions)]
    selector = parse(path.name)
    if not isinstance(selector, TimeRange):
        raise SelectorError(f"{path}: a whole topic only has log, @TIME-@TIME and @TIME-; add a partition")
    found = []
    for number in sorted(partitions):
        whole = _whole(partitions[number], isolation)
        place = resolve(selector, whole.partition, isolation=isolation)
        assert isinstance(place, SelectedRange)
        found.append(_within(whole, place))
    return found


def _of_partition(partition: Partition, path: TopicPath, isolation: Isolation) -> Ranges:
    whole = _whole(partition, isolation)
    if path.name == WHOLE:
        return Ranges([whole], whole.end_offset)
    if path.name in ENDS:
        offset = ENDS[path.name](partition, isolation=isolation)
        return Ranges([] if offset is None else [_one(partition, offset)], None)
    place = resolve(parse(path.name), partition, isolation=isolation)
    if not isinstance(place, SelectedRange):
        return Ranges([_one(partition, place)], None)
    return Ranges([_within(whole, place)], whole.end_offset if place.end_offset is None else None)


def _within(whole: RecordRange, place: SelectedRange) -> RecordRange:
    end = whole.end_offset if place.end_offset is None else place.end_offset
    return RecordRange(whole.partition, place.start_offset, end)


def _whole(partition: Partition, isolation: Isolation) -> RecordRange:
    partition.find_bounds()
    return RecordRange(partition, partition.log_start_offset, partition.visible_end(isolation))


def _one(partition: Partition, offset: Offset) -> RecordRange:
    return RecordRange(partition, offset, Offset(offset + 1))


RECORD_FETCH_BYTES, SMALLEST_RECORD_FETCH_BYTES = 2**20, 2**10
"""Size of a fetch from a partition, and the smallest size if many partitions are merged."""
MAX_HELD_BATCH_BYTES = 64 * 2**20
"""Memory limit for the batches of all partitions. At least one batch of each partition is held."""


class RecordSlice(NamedTuple):
    """Records [start, end) of some columns of a partition."""

    partition: Partition
    columns: Columns
    start: int
    end: int


class Placed(NamedTuple):
    """A record and its topic, partition and offset."""

    topic: str
    partition: int
    record: Record


def record_slices(
    wanted: RecordRange, isolation: Isolation, fetch_bytes: int | None = None
) -> Iterator[RecordSlice]:
    """Yield the records of a range in order. Raises CorruptionError at a damaged batch, after the records before it."""
    partition, offset, end_offset = wanted
    while offset < end_offset:
        fetched = read_decoded(
            partition, offset, max_bytes=fetch_bytes or RECORD_FETCH_BYTES, isolation=isolation
        )
        for piece in fetched.below(end_offset):
            if isinstance(piece, Damage):
                raise piece.error
            start, end = bisect_left(piece.offsets, offset), bisect_left(piece.offsets, end_offset)
            if start < end:
                yield RecordSlice(partition, piece, start, end)
        offset = max(fetched.next_offset, Offset(offset + 1))


def merged(wanted: Sequence[RecordRange], isolation: Isolation) -> Iterator[Placed]:
    """Yield the records of all ranges, the oldest next record first; each partition stays in offset order."""
    if len(wanted) == 1:
        return _records(wanted[0], isolation, RECORD_FETCH_BYTES)
    share = max(
        SMALLEST_RECORD_FETCH_BYTES, min(RECORD_FETCH_BYTES, MAX_HELD_BATCH_BYTES // max(len(wanted), 1))
    )
    queues = (_keyed(one, rank, isolation, share) for rank, one in enumerate(wanted))
    return (placed for _, _, _, placed in heapq.merge(*queues, key=lambda keyed: keyed[:3]))


def _records(wanted: RecordRange, isolation: Isolation, fetch_bytes: int) -> Iterator[Placed]:
    topic, number = wanted.partition.topic, wanted.partition.number
    for records in record_slices(wanted, isolation, fetch_bytes):
        for index in range(records.start, records.end):
            yield Placed(topic, number, records.columns.record(index))


def _keyed(
    wanted: RecordRange, rank: int, isolation: Isolation, fetch_bytes: int
) -> Iterator[tuple[Timestamp, int, Offset, Placed]]:
    """Yield records with sorting keys. A record older than its predecessor directly follows the predecessor."""
    newest = Timestamp(-1)
    for placed in _records(wanted, isolation, fetch_bytes):
        newest = max(newest, placed.record.timestamp)
        yield newest, rank, placed.record.offset, placed
