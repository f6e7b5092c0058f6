"""Numbers collected from files: the segments there are, and the numbers of some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from topicfs.pipeline.report.counter import Counter
from topicfs.pipeline.report.numbers import PartitionNumbers, SegmentLag, merged
from topicfs.pipeline.source.query.options import parse_source_options
from topicfs.pipeline.source.slices import SegmentChangedError, Slice, SliceReader, Task
from topicfs.pipeline.source.topic_source import TopicSource
from topicfs.storage.disk.names import is_internal
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import TopicPartition


class Segments(NamedTuple):
    """Segments to be read: partitions, also those without records, and a task for each of their segments."""

    partitions: list[TopicPartition]
    segments: list[Task]


def find_segments(path: str, topics: Iterable[str] | None, *, without: str = "") -> Segments:
    """Return the segments of data directories, by partition and offset: of `topics`, or of all but Kafka's own.

    They have everything that a consumer is shown; of a partition's replicas the one that shows most is read. Raises
    PipelineError, StorageError, OSError.
    """
    named = {"subscribePattern": ".*"} if topics is None else {"subscribe": ",".join(topics)}
    with closing(
        TopicSource(parse_source_options({"path": path, "without": without, **named}, streaming=False))
    ) as source:
        ranges = [
            one for one in source.batch_ranges() if topics is not None or not is_internal(one.partition.topic)
        ]
        tasks = source.tasks(ranges)
    segments = [replace(task, slices=(one,)) for task in tasks for one in task.slices]
    return Segments([one.partition for one in ranges], segments)


def bytes_of(task: Task) -> int:
    """Return the bytes of log that are read for a task."""
    return sum(one.end_position - one.position for one in task.slices)


def collect(segments: Sequence[Task]) -> list[PartitionNumbers]:
    """Read segments and count; one a partition (OSError; blocking)."""
    return merged(_read(task) for task in segments)


def _read(task: Task) -> PartitionNumbers:
    numbers = PartitionNumbers(task.range.partition, segments=1, log_bytes=bytes_of(task))
    reader = SliceReader(task, skip_corrupt=True, create_times=True)
    try:
        counter = Counter(numbers)
        for columns, start, end in reader:
            counter.add(columns, start, end)
        counter.flush()
        numbers.damaged_batches = reader.skipped_batches
        (one,) = task.slices
        numbers.segment_lags = _lags(one, numbers)
    except (SegmentChangedError, FileNotFoundError):
        return PartitionNumbers(task.range.partition, changed_segments=1)
    return numbers


def _lags(one: Slice, numbers: PartitionNumbers) -> list[SegmentLag]:
    """Return the segment's lag, where it is known: its producers gave the times, and all that was appended is shown."""
    files, file = NativeFileSystem(read_only=True), Path(one.file)
    if numbers.last_time is None or numbers.stamped_records or files.size(file) != one.end_position:
        return []
    last_append = files.modified_time_ms(file)
    return [SegmentLag(last_append, last_append - numbers.last_time)]
