"""Numbers collected by tasks: from segments of data directories, and from the batches that a cluster's brokers give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from topicfs.cluster.engine import ClusterEngine
from topicfs.pipeline.archiving.plan import plan, source_options
from topicfs.pipeline.errors import DataLossError
from topicfs.pipeline.places.cluster_records import opened_cluster, partition_of, read_columns
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.report.counter import Counter
from topicfs.pipeline.report.numbers import PartitionNumbers, merged
from topicfs.pipeline.source.slices import SegmentChangedError, Slice, SliceReader, Task
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Isolation, TopicPartition

RECORD_BYTES = 100
"""Assumed size of a cluster's record, for tasks of about equal work."""


class Parts(NamedTuple):
    """Partitions to be read, also those without records, and the pieces of work."""

    partitions: list[TopicPartition]
    pieces: list[Task]
    """The unit of work: a segment of a data directory, or all offsets of a partition of a cluster."""


def find_parts(place: SparkPlace, topics: Iterable[str] | None) -> Parts:
    """Return the parts by partition and offset: of `topics`, or of all but Kafka's own.

    They have everything that a consumer is shown; of a partition's replicas the one that shows most is read. Raises
    PipelineError, StorageError, OSError.
    """
    named = "*" if topics is None else ",".join(topics)
    found = plan(place, source_options(place, named, Isolation.READ_UNCOMMITTED), None, None)
    pieces = list(found.pieces)
    if not place.is_kafka:
        pieces = [replace(one, slices=(each,)) for one in pieces for each in one.slices]
    return Parts(sorted(found.end.offsets), pieces)


def bytes_of(piece: Task) -> int:
    """Return the bytes of log that are read for a piece; of a cluster's about so many."""
    if piece.slices:
        return sum(one.end_position - one.position for one in piece.slices)
    return piece.range.size * RECORD_BYTES


def collect(place: SparkPlace, pieces: Sequence[Task]) -> list[PartitionNumbers]:
    """Read pieces and count; one a partition (StorageError, OSError; blocking)."""
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
    """Return the segment's lag, where it is known: its producers gave the times, and all that was appended is shown."""
    files, file = NativeFileSystem(read_only=True), Path(one.file)
    if numbers.last_time is None or numbers.stamped_records or files.size(file) != one.end_position:
        return []
    return [files.modified_time_ms(file) - numbers.last_time]
