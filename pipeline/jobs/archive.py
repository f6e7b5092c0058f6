"""Archives topics as Parquet files or as an Iceberg table, with a folder per topic and date, and each record once.

    TARGET/topic=orders/date=2026-01-02/part-….parquet        all of Kafka's columns, the headers too
    TARGET/_topics.json    {"orders": {"partitions": 4, "overrides": {"cleanup.policy": "compact"}}}
    TARGET/_topics.lock    locked by the job that changes `_topics.json`

`pipeline.archiving` stores how far the topics are archived, and which files are committed. The date is the date of the
timestamp in UTC. Records of aborted transactions are not archived; open transactions are left to a later run.
"""

from __future__ import annotations

import fcntl
import json
import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StructField, StructType

from topicfs.cluster.topics.topic import ClusterTopic
from topicfs.pipeline.archiving.files import (
    FileRows,
    archived_files,
    merge,
    rows_of,
    small_groups,
    write_batches,
)
from topicfs.pipeline.archiving.iceberg import IcebergCommits
from topicfs.pipeline.archiving.listed import CATALOG, CHECKPOINT, COMMITTED, is_iceberg
from topicfs.pipeline.archiving.parquet import ParquetCommits
from topicfs.pipeline.archiving.plan import batches, is_pattern, matches, plan, source_options
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.jobs.queries import losses_reported
from topicfs.pipeline.places.cluster_records import opened_cluster
from topicfs.pipeline.places.place import SparkPlace, place_of
from topicfs.pipeline.sink.layout import broker_settings, read_topics
from topicfs.pipeline.source.query.offsets import StreamState
from topicfs.pipeline.source.query.options import SourceOptions
from topicfs.pipeline.source.query.schema import arrow_schema, full_schema
from topicfs.pipeline.source.slices import Task
from topicfs.pipeline.tasks.output import MESSAGE_PREFIX
from topicfs.pipeline.tasks.task_source import in_tasks
from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk.names import is_internal
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Isolation

_LOGGER = logging.getLogger(__name__)

PARQUET, ICEBERG = "parquet", "iceberg"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    path: str | SparkPlace
    """Data directories, or a Kafka cluster (`pipeline.places.place`)."""
    topics: str
    """Topic names and shell patterns (`orders-*`), separated by commas."""
    target: Path
    """The directory of the archive, which contains nothing else."""
    format: str = PARQUET
    every_seconds: float | None = None
    """Seconds between two rounds. The rounds go on until ^C and need the main thread. None: a single round."""
    committed: Callable[[StreamState], None] = lambda _: None
    """Called after each round with the offsets where the next round begins."""


def archive(spark: SparkSession, options: ArchiveOptions) -> DataFrame:
    """Archive the records since the last run; return one row per topic, date and partition of the archive."""
    place = place_of(options.path).resolved()
    archive_folder = options.target.absolute()
    source = source_options(place, options.topics, Isolation.READ_COMMITTED)
    check_archive(archive_folder, options)
    if not (archive_folder / CHECKPOINT).is_dir():
        plan(
            place, source, None, None
        )  # This call raises the error for a topic that does not exist, before anything is created.
    with ExitStack() as stack:
        commits: ParquetCommits | IcebergCommits
        if options.format == ICEBERG:
            commits = IcebergCommits(archive_folder)
            stack.callback(commits.close)
        else:
            commits = ParquetCommits(archive_folder)
        interrupts = SimpleQueue[int]()
        if options.every_seconds is not None:
            stack.enter_context(_noted_interrupts(interrupts))
        while True:
            try:
                with losses_reported(
                    "this archive is unchanged; archive the records that exist now into another directory"
                ):
                    while _round(spark, place, source, commits, options):
                        pass
            except PySparkException:
                if (
                    interrupts.empty()
                ):  # ^C in a terminal also ends the tasks. The next run repeats the round.
                    raise
            _, state = commits.last()
            options.committed(state or StreamState({}, {}))
            if options.every_seconds is None:
                break
            with suppress(Empty):
                interrupts.get(timeout=min(options.every_seconds, TIMEOUT_MAX))
                break
    return spark.createDataFrame(_contents(archive_folder))


@contextmanager
def _noted_interrupts(noted: SimpleQueue[int]) -> Iterator[None]:
    """Put the first ^C into the queue `noted`, so that a round can end. A second ^C interrupts the block."""

    def note(number: int, frame: object) -> None:
        del frame
        noted.put(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _round(
    spark: SparkSession,
    place: SparkPlace,
    source: SourceOptions,
    commits: ParquetCommits | IcebergCommits,
    options: ArchiveOptions,
) -> bool:
    """Archive the records since the last commit. Return True if another round may have records.

    If an earlier run had already begun this round, only finish that run's range and return True, because newer
    records may exist. Raises PipelineError if the earlier run archived other topics.
    """
    folder = options.target.absolute()

    def check(state: StreamState) -> None:
        _check_topics(folder, options.topics, {one.topic for one in state.offsets})

    last, known = commits.last()
    number = last + 1
    planned = commits.planned(number)
    if noted := planned or known:
        check(noted)
    found = plan(place, source, known, planned)
    waiting = bool(found.pieces) or planned is not None
    end = commits.plan(number, found.end) if waiting else found.end
    check(end)
    write_notes(folder, _notes(place, options.topics))
    if not waiting:
        return False
    if end != found.end:  # Another run had already planned this round.
        found = plan(place, source, known, end)
    groups = small_groups(folder) if commits.merges(number) else []
    work = partial(_work, folder, place, source, has_topic=commits.has_topic)
    written = in_tasks(spark, work, [*found.pieces, *groups])
    commits.commit(number, end, written, [file for group in groups for file in group])
    return planned is not None


def _work(
    folder: Path, place: SparkPlace, source: SourceOptions, piece: Task | list[Path], *, has_topic: bool
) -> Iterator[Path]:
    """Write the records of a task, or merge files; runs in Spark's workers."""
    schema = arrow_schema(full_schema(include_headers=True))
    if isinstance(piece, list):
        yield merge(piece, schema if has_topic else schema.remove(schema.get_field_index("topic")))
    else:
        read = batches(place, source, piece, schema)
        yield from write_batches(folder, piece.range.partition.topic, read, has_topic=has_topic)


def _contents(folder: Path) -> Any:
    """Return the rows that `archive` returns, from the footers of the files."""
    rows = [row for file in archived_files(folder) for row in rows_of(file)]
    schema = pa.schema(
        zip(FileRows._fields, (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64()), strict=True)
    )
    table = pa.Table.from_pylist([row._asdict() for row in rows], schema)
    keys = ["topic", "date", "partition"]
    summed = table.group_by(keys).aggregate([("first_offset", "min"), ("records", "sum")])
    return summed.rename_columns([*keys, "first_offset", "records"]).sort_by(
        [(key, "ascending") for key in keys]
    )


def check_archive(archive: Path, options: ArchiveOptions) -> None:
    """Raise PipelineError if the archive has other topics or another format, or if the list of its files is lost."""
    _check_topics(archive, options.topics, read_notes(archive))
    there = ICEBERG if is_iceberg(archive) else PARQUET if (archive / COMMITTED).is_dir() else None
    if there is None and any(archive.glob("topic=*/date=*/*.parquet")):
        raise PipelineError(
            f"{archive}: has files of an archive, but no list of the committed ones ({COMMITTED} or {CATALOG}); "
            "archive into another directory"
        )
    if there not in (None, options.format):
        raise PipelineError(
            f"{archive}: is an archive in the format {there}; name this format, or another directory"
        )


def _check_topics(archive: Path, topics: str, names: Iterable[str]) -> None:
    others = [name for name in names if not matches(topics, name)]
    if others:
        raise PipelineError(
            f"{archive}: also has the topics {', '.join(sorted(others))}; name all of its topics, or another directory"
        )


def _notes(place: SparkPlace, topics: str) -> dict[str, TopicNote]:
    """Return, for each topic, what its records do not contain: the number of partitions, and the settings."""

    def wanted(name: str) -> bool:
        return matches(topics, name) and not (is_pattern(topics) and is_internal(name))

    if place.is_kafka:
        with opened_cluster(place) as engine:
            return {
                name: TopicNote(len(topic.partitions()), _overrides(topic))
                for name, topic in engine.topics().items()
                if wanted(name)
            }
    directories = place.directories
    settings = broker_settings(directories)
    return {
        name: TopicNote(facts.partitions[-1] + 1, facts.overrides or settings.get(name, {}))
        for name, facts in read_topics(directories).items()
        if wanted(name)
    }


def _overrides(topic: ClusterTopic) -> Mapping[str, str]:
    try:
        return topic.overrides
    except StorageError as error:  # The user may lack the right to see the settings.
        _LOGGER.warning("%ssettings of %s are not archived: %s", MESSAGE_PREFIX, topic.name, error)
        return {}


TOPICS = "_topics.json"
LOCK = "_topics.lock"


class TopicNote(NamedTuple):
    partitions: int
    overrides: Mapping[str, str]


def archived_rows(spark: SparkSession, archive: Path) -> DataFrame:
    """Return every archived record, with Kafka's columns and `date`. Raises PipelineError if there is no archive."""
    schema = StructType([*full_schema(include_headers=True), StructField("date", DateType())])
    files = archived_files(archive)
    if not files:
        return spark.createDataFrame([], schema)
    # With this schema, Spark does not infer a number for a topic named 2024.
    return spark.read.schema(schema).option("basePath", str(archive)).parquet(*map(str, files))


def average_bytes(files: list[Path]) -> int:
    """Return the mean size of the archive's records before compression, from the files' footers; at least 1 byte."""
    groups = [
        metadata.row_group(index)
        for metadata in map(pq.read_metadata, files)
        for index in range(metadata.num_row_groups)
    ]
    rows = int(sum(group.num_rows for group in groups))
    octets = int(sum(group.total_byte_size for group in groups))
    return max(1, octets // max(1, rows))


def read_notes(archive: Path) -> dict[str, TopicNote]:
    """Return the notes by topic; empty if there is no archive, or if the archive is too old to have notes.

    Raises PipelineError for a damaged file.
    """
    path = archive / TOPICS
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
        return {
            topic: TopicNote(int(one["partitions"]), {str(k): str(v) for k, v in one["overrides"].items()})
            for topic, one in content.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(
            f"{path}: not a list of topics: {error!r}; to continue without it, remove the file"
        ) from None


def write_notes(archive: Path, notes: Mapping[str, TopicNote]) -> None:
    """Merge `notes` into the file atomically; concurrent jobs wait for each other. Raises OSError, PipelineError."""
    with (archive / LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = {
            topic: {"partitions": note.partitions, "overrides": dict(note.overrides)}
            for topic, note in sorted({**read_notes(archive), **notes}.items())
        }
        write_atomically(NativeFileSystem(), archive / TOPICS, json.dumps(content, indent=1).encode() + b"\n")
