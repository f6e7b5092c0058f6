"""Checks every checksum, offset and index entry of whole data directories, in many tasks: one row per segment.

Problems outside the segments (in checkpoints, metadata) have separate rows, with `segment` null. All rows together
have the findings of `topicfs check`. The check changes and locks nothing, so it does not disturb a running owner, and
it skips data that the owner has not finished writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from topicfs.inspection.check.segment import CheckedSegment, SegmentWork, check_segment
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.tasks.task_sizing import TASK_BYTES, pack
from topicfs.pipeline.tasks.task_source import in_tasks
from topicfs.pipeline.verification import DirectoryVerification, require_files
from topicfs.storage.disk.native import NativeFileSystem

_WRONG = pa.list_(pa.struct([("file", pa.string()), ("position", pa.int64()), ("cause", pa.string())]))
_NUMBERS = ("bytes", "batches", "records", "first_offset", "last_offset", "largest_timestamp")
_ROW = pa.schema(
    [
        ("directory", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("segment", pa.int64()),
        *((name, pa.int64()) for name in _NUMBERS),
        ("codecs", pa.list_(pa.string())),
        ("wrong", _WRONG),
    ]
)
"""Schema of `pipeline.verification.VerificationRow`. Timestamps are numbers, as damage may yield invalid dates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    place: SparkPlace
    """The data directories to check."""
    task_bytes: int = TASK_BYTES
    """Maximum log bytes of a task. A larger segment gets a task of its own.

    If there would be very many tasks, tasks are larger.
    """


def verify(spark: SparkSession, options: VerifyOptions) -> DataFrame:
    """Check all directories; return one row per segment, sorted by directory, topic, partition and base offset.

    Raises PipelineError if the place is a cluster, or a directory is not a data directory.
    """
    directories = require_files(options.place).directories
    verification = DirectoryVerification(directories, NativeFileSystem(read_only=True))
    work = verification.work
    tasks = pack([one.log_bytes for one in work], task_bytes=options.task_bytes)
    inputs = [[(number, work[number]) for number in task] for task in tasks]
    found = dict(in_tasks(spark, _check, inputs))
    rows = verification.rows([found[number] for number in range(len(work))])
    shown = [
        {**row._asdict(), "wrong": [{**one._asdict(), "file": str(one.file)} for one in row.wrong]}
        for row in rows
    ]
    return spark.createDataFrame(pa.Table.from_pylist(shown, _ROW), from_arrow_schema(_ROW))


def _check(task: Sequence[tuple[int, SegmentWork]]) -> Iterator[tuple[int, CheckedSegment | None]]:
    """Check the segments of a task; yield the number of each segment with its result. Runs in Spark's workers."""
    files = NativeFileSystem(read_only=True)
    yield from ((number, check_segment(work, files)) for number, work in task)
