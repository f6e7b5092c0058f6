"""Collects numbers in tasks, from segments of data directories, or from batches that a cluster's brokers return."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from topicfs.cluster.engine import ClusterEngine
from topicfs.coordination.engine import Engine
from topicfs.pipeline.archiving.plan import plan, source_options
from topicfs.pipeline.errors import DataLossError
from topicfs.pipeline.places.cluster_records import opened_cluster, partition_of, read_columns
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.report.histograms import Integers
from topicfs.pipeline.report.numbers import GroupLag, PartitionNumbers, StoredBytes, merged
from topicfs.pipeline.source.slices import SegmentChangedError, Slice, SliceReader, Task
from topicfs.pipeline.tasks.output import MESSAGE_PREFIX
from topicfs.replication import open_directories
from topicfs.storage.codec.binary.fields import CODEC_MASK, HEADER_SIZE, ROW_SIZE, TIMESTAMP_TYPE_MASK
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.headers import BatchHeader, Codec
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import StorageError, UnknownTopicError
from topicfs.storage.model import Isolation, TopicPartition

ENOUGH_RECORDS = 1 << 16
_TIMESTAMPS, _KEY_LENGTHS, _VALUE_LENGTHS = 1, 3, 5
"""Indices of the columns of timestamps and lengths among the eight columns in `Columns.block`."""
_SIZE, _ATTRIBUTES, _MAX_TIMESTAMP, _RECORD_END = map(
    BatchHeader._fields.index, ("size_bytes", "attributes", "max_timestamp", "record_end")
)
_NO_TIME = -1


class Counter:
    """Counts records and batches into `numbers`. It creates no object for a record.

    Small batches have small columns. These are buffered until there are enough records for calls over whole arrays.
    """

    def __init__(self, numbers: PartitionNumbers) -> None:
        self._numbers = numbers
        self._waiting: list[tuple[Integers, Integers, Integers, Integers]] = []
        """The buffered columns. Each entry has create times, append times, lengths of keys, and lengths of values.

        The append time is -1 if the broker did not set it.
        """
        self._records = 0

    def count(self, found: Iterable[tuple[Columns, int, int]]) -> None:
        """Count the records [start, end) of each item's columns, and all batches of the columns.

        The columns must be decoded with `create_times`.
        """
        for columns, start, end in found:
            self._add(columns, start, end)
        self._flush()

    def _add(self, columns: Columns, start: int, end: int) -> None:
        block = np.frombuffer(columns.block, np.int64).reshape(8, len(columns))
        batches = np.frombuffer(columns.batches.rows, np.int64).reshape(-1, ROW_SIZE)
        self._count_batches(columns, batches)
        self._waiting.append(
            (
                block[_TIMESTAMPS, start:end],
                _times_of_append(batches)[start:end],
                block[_KEY_LENGTHS, start:end],
                block[_VALUE_LENGTHS, start:end],
            )
        )
        self._records += end - start
        if self._records >= ENOUGH_RECORDS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        created, appended, keys, values = (
            np.concatenate(parts) for parts in zip(*self._waiting, strict=True)
        )
        self._waiting, self._records = [], 0
        numbers, stamped = self._numbers, appended != _NO_TIME
        numbers.records += len(created)
        numbers.stamped_records += int(stamped.sum())
        numbers.count_times(np.where(stamped, appended, created), np.maximum(keys, 0) + np.maximum(values, 0))
        numbers.count_sizes(keys, values)
        both = stamped & (created != _NO_TIME)
        numbers.count_lags(appended[both] - created[both])

    def _count_batches(self, columns: Columns, batches: npt.NDArray[np.int64]) -> None:
        codec = Codec(int(batches[0, _ATTRIBUTES]) & CODEC_MASK)
        size = int(batches[:, _SIZE].sum())
        # A compressed batch has its own `Columns`, over its inflated records.
        uncompressed = size if codec is Codec.NONE else HEADER_SIZE + len(columns.data)
        self._numbers.store(codec.label, StoredBytes(size, uncompressed))


def _times_of_append(batches: npt.NDArray[np.int64]) -> Integers:
    """Return the timestamp that the broker set for each record of these batches; -1 if the broker set none."""
    stamps = np.where(batches[:, _ATTRIBUTES] & TIMESTAMP_TYPE_MASK, batches[:, _MAX_TIMESTAMP], _NO_TIME)
    if len(stamps) == 1:
        return np.full(int(batches[0, _RECORD_END]), stamps[0])
    return np.repeat(stamps, np.diff(batches[:, _RECORD_END], prepend=0))


RECORD_BYTES = 100
"""Assumed size of a record in a cluster, to make tasks of about equal work."""


def find_parts(place: SparkPlace, topics: Iterable[str] | None) -> tuple[list[TopicPartition], list[Task]]:
    """Return the partitions of `topics` (None: all but Kafka's own) and their tasks, sorted by partition and offset.

    Each task reads one segment of a data directory, or all offsets of one partition of a cluster. The tasks read all
    records that are visible to a consumer, from the replica with the highest high watermark. Raises PipelineError,
    StorageError, OSError.
    """
    named = "*" if topics is None else ",".join(topics)
    found = plan(place, source_options(place, named, Isolation.READ_UNCOMMITTED), None, None)
    pieces = list(found.pieces)
    if not place.is_kafka:
        pieces = [replace(one, slices=(each,)) for one in pieces for each in one.slices]
    return sorted(found.end.offsets), pieces


def bytes_of(piece: Task) -> int:
    """Return the bytes of log that a task reads; for a cluster, an estimate."""
    if piece.slices:
        return sum(one.end_position - one.position for one in piece.slices)
    return piece.range.size * RECORD_BYTES


def collect(place: SparkPlace, pieces: Sequence[Task]) -> list[PartitionNumbers]:
    """Count the records of these tasks; return one result per partition (blocking). Raises StorageError, OSError."""
    with opened_cluster(place) if place.is_kafka else nullcontext() as engine:
        return merged(_read_segment(one) if engine is None else _read_range(engine, one) for one in pieces)


def _read_segment(task: Task) -> PartitionNumbers:
    numbers = PartitionNumbers(task.range.partition, segments=1, log_bytes=bytes_of(task))
    reader = SliceReader(task, skip_corrupt=True, create_times=True)
    try:
        Counter(numbers).count(reader)
        numbers.damaged_batches = reader.skipped_batches
        (one,) = task.slices
        numbers.segment_lags = _lags(one, numbers)
    except (SegmentChangedError, FileNotFoundError):
        return PartitionNumbers(task.range.partition, changed_segments=1)
    return numbers


def _read_range(engine: ClusterEngine, task: Task) -> PartitionNumbers:
    partition, *offsets = task.range
    numbers = PartitionNumbers(partition)
    try:
        log = partition_of(engine, partition, task.topic_id)
        Counter(numbers).count(
            read_columns(log, range(*offsets), Isolation.READ_UNCOMMITTED, create_times=True)
        )
    except DataLossError:
        return PartitionNumbers(partition, changed_segments=1)
    numbers.log_bytes = numbers.stored.bytes
    return numbers


def _lags(one: Slice, numbers: PartitionNumbers) -> list[int]:
    """Return a list with the segment's lag; empty if the lag is unknown.

    The lag is known if producers set all timestamps, and if the slice ends at the end of the file.
    """
    files, file = NativeFileSystem(read_only=True), Path(one.file)
    if numbers.last_time is None or numbers.stamped_records or files.size(file) != one.end_position:
        return []
    return [files.modified_time_ms(file) - numbers.last_time]


_LOGGER = logging.getLogger(__name__)


def find_lags(
    place: SparkPlace, topics: Collection[str] | None
) -> dict[TopicPartition, tuple[GroupLag, ...]]:
    """Return the lags of the groups of each partition, sorted (blocking). An error is only logged.

    `topics` are the topics to query; None: all topics.
    """
    try:
        with _opened_place(place) as engine:
            found: dict[TopicPartition, list[GroupLag]] = {}
            for partition, lag in _group_lags(engine):
                if topics is None or partition.topic in topics:
                    found.setdefault(partition, []).append(lag)
            return {partition: tuple(lags) for partition, lags in found.items()}
    except (StorageError, OSError) as error:
        _LOGGER.warning("%sgroups are not in the report: %s", MESSAGE_PREFIX, error)
        return {}


def _opened_place(place: SparkPlace) -> AbstractContextManager[Engine]:
    if place.is_kafka:
        return opened_cluster(place)
    return closing(open_directories(place.directories, read_only=True, left_out=place.left_out))


def _group_lags(engine: Engine) -> Iterator[tuple[TopicPartition, GroupLag]]:
    for group in engine.groups.listed():
        for partition, position in sorted(engine.groups.positions(group).committed.items()):
            try:
                bounds = engine.partition(*partition).offsets()
            except UnknownTopicError:
                continue  # The topic was deleted.
            lag = max(bounds.last_stable_offset - position.offset, 0)
            yield partition, GroupLag(group, position.offset, lag)
