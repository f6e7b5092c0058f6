"""Statistics of topics as a page of plots: records over time, sizes, lag, compression.

Tasks read and count records (`pipeline.report`); the driver adds up their numbers and draws the page. The result has
one row per partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.report.collector import bytes_of, collect, find_lags, find_parts
from topicfs.pipeline.report.numbers import PartitionNumbers, merged
from topicfs.pipeline.report.page.page import page
from topicfs.pipeline.source.slices import Task
from topicfs.pipeline.tasks.task_sizing import TASK_BYTES, pack
from topicfs.pipeline.tasks.task_source import in_tasks
from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk.native import NativeFileSystem

ROWS = """
topic string, partition int, records bigint, segments bigint, log_bytes bigint, uncompressed_bytes bigint,
first_time bigint, last_time bigint, groups array<struct<group: string, position: bigint, lag: bigint>>
"""
"""Schema of the result. Times are milliseconds since 1970 as numbers, because a record may have any timestamp."""
TOP = 12
"""Default number of topics with plots of their own. A page with more panels is hard to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Options of a report: its topics, and the file of the page."""

    place: SparkPlace
    topics: tuple[str, ...] | None = None
    """Names of the topics; None means all topics except Kafka's own."""
    output: Path | None = None
    """File of the page; None: return only the numbers."""
    top: int = TOP
    """Number of topics with plots of their own."""
    now_ms: int | None = None
    """Time of creation to show on the page; None: show none."""
    task_bytes: int = TASK_BYTES


def report(spark: SparkSession, options: ReportOptions) -> DataFrame:
    """Count all records, and write the page atomically; return sorted `ROWS`. Raises StorageError, OSError."""
    if options.output is not None and not options.output.absolute().parent.is_dir():
        raise PipelineError(f"{options.output}: no such directory to put the report into")
    partitions, pieces = find_parts(options.place, options.topics)
    tasks = pack([bytes_of(one) for one in pieces], task_bytes=options.task_bytes)
    place = options.place.resolved()
    inputs = [(place, pieces[task.start : task.stop]) for task in tasks]
    numbers = merged([*map(PartitionNumbers, partitions), *in_tasks(spark, _collect, inputs)])
    groups = find_lags(options.place, options.topics)
    rows = []
    for one in numbers:
        one.groups = groups.get(one.partition, ())
        sizes = one.records, one.segments, one.log_bytes, one.stored.uncompressed_bytes
        rows.append((*one.partition, *sizes, one.first_time, one.last_time, list(one.groups)))
    if options.output is not None:
        text = page(numbers, place=str(options.place), now_ms=options.now_ms, top=options.top)
        beside = options.output.absolute().with_name(f".{options.output.name}.{uuid4().hex}")
        # A reader sees the old page or the new one.
        write_atomically(NativeFileSystem(), options.output.absolute(), text.encode(), temporary=beside)
    return spark.createDataFrame(rows, ROWS)


def _collect(task: tuple[SparkPlace, Sequence[Task]]) -> Iterator[PartitionNumbers]:
    """Count a task's records; runs in Spark's workers."""
    yield from collect(*task)
