"""The rows of an archive as `archive` makes it, and its notes on the topics.

    ARCHIVE/_topics.json    {"orders": {"partitions": 4, "overrides": {"cleanup.policy": "compact"}}}
    ARCHIVE/_topics.lock    locked by the job that changes the notes

Which files count is in `pipeline.archiving.listed`.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StructField, StructType

from topicfs.pipeline.archiving.files import archived_files
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.source.query.schema import full_schema
from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk.native import NativeFileSystem

TOPICS = "_topics.json"
LOCK = "_topics.lock"


class TopicNote(NamedTuple):
    """An archive's note on a topic."""

    partitions: int
    overrides: Mapping[str, str]


def archived_rows(spark: SparkSession, archive: Path) -> DataFrame:
    """Return every archived record, with Kafka's columns and `date` (PipelineError where there is no archive)."""
    schema = StructType([*full_schema(include_headers=True), StructField("date", DateType())])
    files = archived_files(archive)
    if not files:
        return spark.createDataFrame([], schema)
    # A schema of our own: Spark would take a topic named 2024 for a number.
    return spark.read.schema(schema).option("basePath", str(archive)).parquet(*map(str, files))


def average_bytes(files: list[Path]) -> int:
    """Return the mean size of a record in the archive before compression, by the files' footers; at least 1."""
    groups = [
        metadata.row_group(index)
        for metadata in map(pq.read_metadata, files)
        for index in range(metadata.num_row_groups)
    ]
    rows = int(sum(group.num_rows for group in groups))
    octets = int(sum(group.total_byte_size for group in groups))
    return max(1, octets // max(1, rows))


def read_notes(archive: Path) -> dict[str, TopicNote]:
    """Return the notes by topic; none where there is no archive, or an old one (PipelineError for a damaged file)."""
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
        raise PipelineError(f"{path}: no list of topics: {error!r}; remove it to go on without") from None


def write_notes(archive: Path, notes: Mapping[str, TopicNote]) -> None:
    """Add to what is noted, atomically; jobs that write at once wait for each other (OSError, PipelineError)."""
    with (archive / LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = {
            topic: {"partitions": note.partitions, "overrides": dict(note.overrides)}
            for topic, note in sorted({**read_notes(archive), **notes}.items())
        }
        write_atomically(NativeFileSystem(), archive / TOPICS, json.dumps(content, indent=1).encode() + b"\n")
