"""Every checksum, offset and index entry of whole data directories, checked by many tasks: one row a segment.

What is wrong beside the segments (checkpoints, metadata) has rows of its own, with `segment` null, where there is any:
all rows together have the findings of `topicfs check`. Nothing is changed and nothing locked, so a living owner is not
disturbed; what it has not finished yet is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from topicfs.pipeline.places.paths import data_directories
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.tasks.task_sizing import TASK_BYTES, pack
from topicfs.pipeline.tasks.task_source import in_tasks
from topicfs.pipeline.verification import (
    CheckedSegment,
    DirectoryVerification,
    PlainFinding,
    VerificationRow,
    check_segment,
    require_files,
)
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.inspect.check.segment import SegmentWork

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
"""The result; see `pipeline.verification.Row`. A timestamp is milliseconds, for damage may say any: it need be no date."""
_CHECKED = pa.schema(
    [
        ("number", pa.int64()),
        *((name, pa.int64()) for name in _NUMBERS),
        ("codecs", pa.list_(pa.string())),
        ("wrong", _WRONG),
        ("end_offset", pa.int64()),
    ]
)
"""Rows of the tasks: `number` is the segment's; a segment that went away is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Options of a verification."""

    place: SparkPlace
    """Data directories."""
    task_bytes: int = TASK_BYTES
    """Bytes of log a task, where there are as many; segments are not divided."""


class _TaskInput(NamedTuple):
    """Segments that one task checks; `first` is the number of the first."""

    first: int
    work: Sequence[SegmentWork]


def verify(spark: SparkSession, options: VerifyOptions) -> DataFrame:
    """Check everything, now: one row a segment, by directory, topic, partition and base offset.

    PipelineError where the place is a cluster, or a directory is no data directory.
    """
    directories = data_directories(require_files(options.place).path or "")
    verification = DirectoryVerification(directories, NativeFileSystem(read_only=True))
    work = verification.work
    tasks = pack([one.log_bytes for one in work], task_bytes=options.task_bytes)
    inputs = [_TaskInput(task.start, work[task.start : task.stop]) for task in tasks]
    checked: list[CheckedSegment | None] = [None] * len(work)
    found = in_tasks(spark, _check, inputs, schema=from_arrow_schema(_CHECKED))
    for number, *rest, wrong, end_offset in found.collect():
        checked[number] = CheckedSegment(*rest, [PlainFinding(*one) for one in wrong], end_offset)  # type: ignore[call-arg] # the columns are its fields
    return spark.createDataFrame(_table(verification.rows(checked)), from_arrow_schema(_ROW))


def _check(task: _TaskInput) -> Iterator[Any]:
    """Check a task's segments; runs in Spark's workers."""
    files = NativeFileSystem(read_only=True)
    for number, work in enumerate(task.work, task.first):
        found = check_segment(work, files)
        if found is not None:
            row = {"number": number, **found._asdict(), "wrong": _structs(found.wrong)}
            yield pa.RecordBatch.from_pylist([row], _CHECKED)


def _table(rows: Iterable[VerificationRow]) -> Any:
    return pa.Table.from_pylist([{**row._asdict(), "wrong": _structs(row.wrong)} for row in rows], _ROW)


def _structs(wrong: Iterable[PlainFinding]) -> list[dict[str, Any]]:
    return [one._asdict() for one in wrong]
