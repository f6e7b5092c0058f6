"""One round of an archive: tasks for the records since the last commit, and the offsets where the round ends."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from topicfs.pipeline.errors import DataLossError
from topicfs.pipeline.places.cluster_records import opened_cluster, partition_of, read_columns, topic_of
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.source.arrow_buffers import ColumnRange
from topicfs.pipeline.source.query.bounds import select
from topicfs.pipeline.source.query.offsets import StreamState
from topicfs.pipeline.source.query.options import SourceOptions, parse_source_options
from topicfs.pipeline.source.query.ranges import OffsetRange
from topicfs.pipeline.source.slices import Task
from topicfs.pipeline.source.stream_progress import StreamProgress
from topicfs.pipeline.source.topic_source import TopicSource, batches_of, read_task
from topicfs.storage.model import Isolation, TopicPartition

_WILD = frozenset("*?[")


class ArchiveRound(NamedTuple):
    end: StreamState
    pieces: Sequence[Task]


def is_pattern(topics: str) -> bool:
    """Return whether `topics` contains a shell pattern: it then has characters that no topic name can have."""
    return not _WILD.isdisjoint(topics)


def matches(topics: str, name: str) -> bool:
    """Return whether the topic `name` matches one of the names and shell patterns in `topics`."""
    return any(fnmatch.fnmatchcase(name, one.strip()) for one in topics.split(","))


def source_options(place: SparkPlace, topics: str, isolation: Isolation) -> SourceOptions:
    """Return the options of a source that reads all records, from the earliest on. Raises PipelineError."""
    named = {"subscribe": topics}
    if is_pattern(topics):
        patterns = (fnmatch.translate(one.strip()) for one in topics.split(","))
        named = {"subscribePattern": rf"\A(?:{'|'.join(patterns)})"}
    given = {"path": place.path or "/", "without": place.without, "isolation.level": isolation.value}
    return parse_source_options(
        {**given, **named, "startingOffsets": "earliest", "includeHeaders": "true"}, streaming=True
    )


def plan(
    place: SparkPlace, options: SourceOptions, known: StreamState | None, planned: StreamState | None
) -> ArchiveRound:
    """Plan the round that begins at `known` and ends at `planned` (blocking). Raises DataLossError.

    If `planned` is None, the round ends at the current ends of the partitions.
    """
    if place.is_kafka:
        return _of_cluster(place, options, known or StreamState({}, {}), planned)
    with closing(StreamProgress(TopicSource(options))) as progress:
        start = progress.begin() if known is None else known
        end = planned or progress.advance(start, most=None, now_ms=0)
        return ArchiveRound(end, progress.tasks(start, end))


def batches(place: SparkPlace, options: SourceOptions, piece: Task, schema: Any) -> Iterator[Any]:
    """Yield the task's records as Arrow batches (blocking). Raises DataLossError, CorruptionError, OSError."""
    if not place.is_kafka:
        yield from read_task(piece, options=options, schema=schema)
        return
    partition, *offsets = piece.range
    with opened_cluster(place) as engine:
        log = partition_of(engine, partition, piece.topic_id)
        found = read_columns(log, range(*offsets), options.isolation)
        yield from batches_of((ColumnRange(*one) for one in found), partition, schema)


def _of_cluster(
    place: SparkPlace, options: SourceOptions, known: StreamState, planned: StreamState | None
) -> ArchiveRound:
    before = planned or known
    ends, pieces = dict(known.offsets), []
    with opened_cluster(place) as engine:
        topics = engine.topics()
        present = [TopicPartition(one.name, number) for one in topics.values() for number in one.partitions()]
        chosen = select(options.selection, present, must_exist=not known.offsets)
        ids = {one.topic: topics[one.topic].topic_id for one in chosen}
        gone = [
            *(before.offsets.keys() - set(chosen)),
            *(one for one in before.topic_ids if ids.get(one) != before.topic_ids[one]),
        ]
        for topic in {partition.topic for partition in before.offsets} - ids.keys():
            topic_of(engine, topic)  # This call raises the error with which the brokers hide the topic.
        if gone:
            raise DataLossError(
                f"{', '.join(sorted(map(str, gone)))}: deleted, or created again, since it was archived"
            )
        for one in chosen:
            log = topics[one.topic].partitions()[one.partition]
            log.find_bounds()
            start = known.offsets.get(one, log.log_start_offset)
            end = max(start, log.visible_end(options.isolation))
            if not log.log_start_offset <= start <= log.offsets().high_watermark:
                raise DataLossError(
                    f"{one}: the archive ends at offset {start}, but the log has offsets "
                    f"[{log.log_start_offset}, {log.offsets().high_watermark})"
                )
            ends[one] = end if planned is None else planned.offsets.get(one, start)
            if start < ends[one]:
                pieces.append(Task(OffsetRange(one, start, ends[one]), (), topic_id=ids[one.topic]))
    return ArchiveRound(planned or StreamState(ends, ids), pieces)
