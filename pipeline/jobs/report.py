"""Statistics of topics as a page of plots: records over time, sizes, lag, compression.

Tasks read and count (`pipeline.report`); the driver adds up what they found and draws. The result has the numbers that
the page is drawn from, one row a partition.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.report.arrow_rows import SCHEMA, batch_of, numbers_of, table_of
from topicfs.pipeline.report.group_lags import find_lags
from topicfs.pipeline.report.numbers import PartitionNumbers, merged
from topicfs.pipeline.report.page.page import Heading, page
from topicfs.pipeline.report.record_collector import collect_records
from topicfs.pipeline.report.segment_collector import bytes_of, collect, find_segments
from topicfs.pipeline.source.slices import Task
from topicfs.pipeline.tasks.task_sizing import TASK_BYTES, pack
from topicfs.pipeline.tasks.task_source import in_tasks
from topicfs.storage.disk.names import INTERNAL_TOPICS

TOP = 12
"""Topics with plots of their own: a page with more panels is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Options of a report: its topics, and the file of the page."""

    place: SparkPlace
    topics: tuple[str, ...] | None = None
    """None for all but Kafka's own."""
    output: Path | None = None
    """The page; None where only the numbers are wanted."""
    top: int = TOP
    """Number of topics with plots of their own."""
    now_ms: int | None = None
    """The time the page says it was made at; None where it is not to say so."""
    task_bytes: int = TASK_BYTES


def report(spark: SparkSession, options: ReportOptions) -> DataFrame:
    """Count everything, now, and write the page whole or not at all: one row a partition, by topic and number.

    Raises PipelineError and its kinds, StorageError, OSError.
    """
    if options.output is not None and not options.output.absolute().parent.is_dir():
        raise PipelineError(f"{options.output}: no such directory to put the report into")
    numbers = (_of_cluster if options.place.is_kafka else _of_files)(spark, options)
    groups = find_lags(options.place, options.topics)
    for one in numbers:
        one.groups = groups.get(one.partition, ())
    if options.output is not None:
        _write(options.output, page(numbers, heading(options)))
    return spark.createDataFrame(table_of(numbers), from_arrow_schema(SCHEMA))


def heading(options: ReportOptions) -> Heading:
    """Return the page's heading, with the origin of the numbers: a cluster shows less than files."""
    return Heading(
        place=str(options.place),
        now_ms=options.now_ms,
        top=options.top,
        from_files=not options.place.is_kafka,
    )


def _of_files(spark: SparkSession, options: ReportOptions) -> list[PartitionNumbers]:
    found = find_segments(options.place.path or "", options.topics, without=options.place.without)
    tasks = pack([bytes_of(one) for one in found.segments], task_bytes=options.task_bytes)
    inputs = [found.segments[task.start : task.stop] for task in tasks]
    rows = in_tasks(spark, _collect, inputs, schema=from_arrow_schema(SCHEMA)).toArrow()
    empty = [PartitionNumbers(partition) for partition in found.partitions]
    return merged([*empty, *map(numbers_of, rows.to_pylist())])


def _of_cluster(spark: SparkSession, options: ReportOptions) -> list[PartitionNumbers]:
    """Return numbers from records: a cluster shows its consumers neither segments nor codecs."""
    named = {"subscribePattern": ".*"} if options.topics is None else {"subscribe": ",".join(options.topics)}
    place = options.place
    records = (
        spark.read.format(place.format).options(**place.options, **named, startingOffsets="earliest").load()
    )
    if options.topics is None:
        internal = ", ".join(f"'{topic}'" for topic in sorted(INTERNAL_TOPICS))
        records = records.where(f"topic NOT IN ({internal})")
    return collect_records(records)


def _collect(segments: Sequence[Task]) -> Iterator[Any]:
    """Count a task's records; runs in Spark's workers."""
    yield batch_of(collect(segments))


def _write(path: Path, text: str) -> None:
    """Replace a file, or make it: a reader sees the old one or the new one."""
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.absolute().parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o666 & ~_umask())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise


def _umask() -> int:
    """Return the process's umask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
