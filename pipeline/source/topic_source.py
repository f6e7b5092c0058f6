"""A query's view of data directories: the ranges that it reads, their tasks, and a task's records as Arrow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from topicfs.pipeline.errors import DataLossError
from topicfs.pipeline.places.paths import with_replica_hint
from topicfs.pipeline.source.arrow import BATCH_ROWS, record_batch
from topicfs.pipeline.source.arrow_buffers import ColumnRange
from topicfs.pipeline.source.directories import SourceDirectories
from topicfs.pipeline.source.query.bounds import clamp, in_order, offsets_at, select, within
from topicfs.pipeline.source.query.narrowing import EVERYTHING, Narrowing
from topicfs.pipeline.source.query.options import SourceOptions
from topicfs.pipeline.source.query.ranges import OffsetRange, divide, split_ranges
from topicfs.pipeline.source.slices import (
    SLICE_WINDOW_BYTES,
    SegmentChangedError,
    SliceReader,
    Task,
    plan_task,
)
from topicfs.storage.model import Timestamp, TopicPartition

_LOGGER = logging.getLogger(__name__)

ENOUGH_ROWS = 16_384
"""Smaller ranges (single compressed batches) are combined until they have this many records, or ENOUGH_BYTES."""
ENOUGH_BYTES = SLICE_WINDOW_BYTES
"""Ranges are combined up to this many bytes, which bounds memory if records are large."""
MAX_TASK_BYTES = 256 << 20
"""Maximum bytes of a task's slices, unless an option sets another limit.

Starting a task costs as much as reading 10 MB.
"""
_ATTEMPTS = 3
"""If a segment changes, a task is tried again. After this many attempts in a row without a new record, the task
fails.
"""


class TopicSource:
    """The topics that one query reads. It implements `bounds.PartitionEnds`."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        with with_replica_hint():
            self._directories = SourceDirectories(options.directories, options.left_out)

    def refresh(self) -> None:
        self._directories.refresh()

    def close(self) -> None:
        self._directories.close()

    def partitions(self, *, must_exist: bool = True) -> list[TopicPartition]:
        """Return the partitions that the query reads. Raises UnknownTopicError if a topic that it names is missing."""
        return select(self.options.selection, self._directories.partitions(), must_exist=must_exist)

    def earliest(self, partition: TopicPartition) -> int:
        return self._directories.log(partition).log_start_offset

    def latest(self, partition: TopicPartition) -> int:
        return self._directories.log(partition).visible_end(self.options.isolation)

    def log_end(self, partition: TopicPartition) -> int:
        """Return the end of the log, including records that are not visible to this query yet."""
        return self._directories.log(partition).log_end_offset

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        """Return the IDs of the topics of these partitions, by name; leaves out topics whose files have no ID."""
        firsts: dict[str, TopicPartition] = {}
        for one in sorted(partitions):
            firsts.setdefault(one.topic, one)
        found = {topic: self._directories.topic_id(one) for topic, one in firsts.items()}
        return {topic: one for topic, one in found.items() if one is not None}

    def at_time(self, partition: TopicPartition, timestamp: int) -> int | None:
        log = self._directories.log(partition)
        found = log.offset_for_timestamp(Timestamp(timestamp), isolation=self.options.isolation)
        return None if found is None else found.offset

    def start(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition for this query."""
        return offsets_at(
            self.options.starting,
            partitions,
            self,
            option="startingOffsets",
            latest_after_last_record=self.options.starting_strategy_latest,
        )

    def batch_ranges(self, narrowing: Narrowing = EVERYTHING) -> list[OffsetRange]:
        """Return the ranges of a batch query, one per partition. Raises PipelineError and its subclasses."""
        partitions = self.partitions()
        start = self.start(partitions)
        end = offsets_at(self.options.ending, partitions, self, option="endingOffsets")
        ranges = [self.checked(in_order(one, start[one], end[one])) for one in partitions]
        return [self._narrowed(one, narrowing) for one in ranges if narrowing.admits(one.partition)]

    def checked(self, wanted: OffsetRange) -> OffsetRange:
        """Return the part of a range that exists. Raises DataLossError if a part is lost and failOnDataLoss is true."""
        partition, start, end = wanted
        earliest, latest = self.earliest(partition), self.latest(partition)
        try:
            return OffsetRange(partition, *within(partition, start, end, earliest=earliest, latest=latest))
        except DataLossError as error:
            if self.options.fail_on_data_loss:
                raise
            _LOGGER.warning("%s", error)
        return OffsetRange(partition, *clamp(start, end, earliest=earliest, latest=latest))

    def _narrowed(self, whole: OffsetRange, narrowing: Narrowing) -> OffsetRange:
        """Leave out offsets that the query's filters exclude. Spark applies the filters again to the records."""
        start = max(whole.start_offset, narrowing.start_offset)
        end = (
            whole.end_offset if narrowing.end_offset is None else min(whole.end_offset, narrowing.end_offset)
        )
        if narrowing.start_timestamp is not None and start < end:
            found = self.at_time(whole.partition, narrowing.start_timestamp)
            start = end if found is None else max(start, found)
        return OffsetRange(whole.partition, start, max(start, end))

    def tasks(self, ranges: list[OffsetRange]) -> list[Task]:
        """Return the tasks that read the ranges, split by options or by size. Raises StorageError, OSError."""
        least, most = self.options.min_partitions, self.options.max_records_per_partition
        tasks = [self.task(part) for part in split_ranges(ranges, min_partitions=least, max_records=most)]
        if least is not None or most is not None:
            return tasks
        return [smaller for task in tasks for smaller in self._split_if_large(task)]

    def _split_if_large(self, task: Task) -> list[Task]:
        """Split a large task, so that even one partition keeps many cores busy."""
        size_bytes = sum(one.end_position - one.position for one in task.slices)
        count = -(-size_bytes // MAX_TASK_BYTES)
        return [task] if count <= 1 else [self.task(part) for part in divide(task.range, count)]

    def task(self, part: OffsetRange) -> Task:
        found, name = self._directories, part.partition
        topic_id, inodes = found.topic_id(name), found.inodes(name)
        return plan_task(found.log(name), part, self.options.isolation, topic_id=topic_id, inodes=inodes)

    def reason_lost(self, task: Task) -> str | None:
        """Return why a task cannot be planned again (its partition or topic is gone), or None if it can be."""
        partition = task.range.partition
        if partition not in self._directories.partitions():
            return f"{partition}: was deleted while it was read, from offset {task.range.start_offset} on"
        now = self._directories.topic_id(partition)
        if task.topic_id is not None and now is not None and now != task.topic_id:
            return (
                f"{partition.topic}: was deleted and created again while it was read "
                f"(topic id {task.topic_id}, now {now})"
            )
        return None


def read_task(task: Task, *, options: SourceOptions, schema: Any) -> Iterator[Any]:
    """Yield the task's records as Arrow batches of `schema`.

    If retention or compaction has changed a segment since the task was planned, the remainder of the task is planned
    again. Records that are gone by then raise DataLossError or are skipped. Raises CorruptionError with file and
    position, unless corrupt batches are skipped.
    """
    in_vain = 0
    while True:
        reader = SliceReader(task, skip_corrupt=options.skip_corrupt_batches)
        try:
            yield from batches_of(_parts(reader), task.range.partition, schema)
        except SegmentChangedError:
            in_vain = 0 if reader.next_offset > task.range.start_offset else in_vain + 1
            if in_vain == _ATTEMPTS:
                raise
        else:
            return
        finally:
            if reader.skipped_batches:
                _LOGGER.warning(
                    "%s: skipped %d corrupt batches", task.range.partition, reader.skipped_batches
                )
        left = _replanned(task, reader.next_offset, options)
        if left is None:
            return
        task = left


def _replanned(task: Task, next_offset: int, options: SourceOptions) -> Task | None:
    """Plan the rest of a task again; None if its log is gone and failOnDataLoss is false. Raises DataLossError."""
    left = replace(task, range=task.range._replace(start_offset=next_offset))
    with closing(TopicSource(options)) as source:
        lost = source.reason_lost(left)
        if lost is None:
            return source.task(source.checked(left.range))
    if options.fail_on_data_loss:
        raise DataLossError(f"{lost}{DataLossError.REMEDY}continues with what exists")
    _LOGGER.warning("%s", lost)
    return None


def batches_of(parts: Iterable[ColumnRange], partition: TopicPartition, schema: Any) -> Iterator[Any]:
    """Combine parts into Arrow batches of enough rows or bytes.

    If reading the parts raises SegmentChangedError, yield the parts read so far before raising it.
    """
    waiting: list[ColumnRange] = []
    rows = size_bytes = 0
    try:
        for part in parts:
            waiting.append(part)
            rows += part.end - part.start
            size_bytes += len(part.columns.data)
            if rows >= ENOUGH_ROWS or size_bytes >= ENOUGH_BYTES:
                ready, waiting, rows, size_bytes = waiting, [], 0, 0
                yield record_batch(ready, partition=partition, schema=schema)
    except SegmentChangedError:
        if waiting:
            yield record_batch(waiting, partition=partition, schema=schema)
        raise
    if waiting:
        yield record_batch(waiting, partition=partition, schema=schema)


def _parts(reader: SliceReader) -> Iterator[ColumnRange]:
    for columns, start, end in reader:
        for first in range(start, end, BATCH_ROWS):
            yield ColumnRange(columns, first, min(end, first + BATCH_ROWS))
