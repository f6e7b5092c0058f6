"""Writes rows at their own offsets: tasks stage the rows, and the owner of the data directories appends them.

Spark runs the writer's `commit` in another process, so `commit` lists the staged files in a JSON file for the job.
The job then requests the commit of the write, and counts the records.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from topicfs.pipeline.sink.commit_request import CommitRequest, stage, staging_area
from topicfs.pipeline.sink.layout import TopicLayout
from topicfs.pipeline.sink.offset_preserving_write import OffsetPreservingEncoder
from topicfs.pipeline.sink.writers import task_context
from topicfs.pipeline.tasks.task_source import write_in_tasks
from topicfs.storage.disk.names import WriteId
from topicfs.storage.model import TopicPartition
from topicfs.storage.staging.manifest import Placement
from topicfs.storage.staging.staged_file import StagedFile

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
TASK_RECORDS = 250_000
"""Approximate number of records that one task sorts and stages."""


class PlacedWrite(NamedTuple):
    """The data directories of a write, and the layout of each topic."""

    directories: tuple[Path, ...]
    layouts: Mapping[str, TopicLayout]
    timeout_seconds: float
    """Longest time to wait until the owner claims the write."""


class Written(NamedTuple):
    last: int
    """The last offset that was written."""
    records: int


def write_placed(
    rows: DataFrame, write: PlacedWrite, placement: Placement, *, records: float
) -> dict[TopicPartition, Written]:
    """Write rows at their offsets, all or none; `records` is about their number. Raises like `CommitRequest.commit`."""
    name = WriteId(str(uuid4()))
    tasks = max(1, math.ceil(records / TASK_RECORDS))
    place = ["topic", "partition", "offset"]
    sorted_rows = rows.select(*COLUMNS).repartitionByRange(tasks, *place).sortWithinPartitions(*place)
    with tempfile.TemporaryDirectory(prefix="topicfs-restore-") as folder:
        report = Path(folder) / "staged.json"
        try:
            write_in_tasks(sorted_rows, PlacedWriter(name, write, report))
        except BaseException:
            with suppress(OSError):
                staging_area(write.directories).discard_staged(name)
            raise
        staged = json.loads(report.read_text())
    files = [StagedFile(**task["file"]) for task in staged]
    CommitRequest(write.directories, name, files, placement).commit(write.timeout_seconds)
    total: dict[TopicPartition, Written] = {}
    for task in staged:
        for topic, number, last, count in task["written"]:
            partition = TopicPartition(topic, number)
            total[partition] = Written(last, total.get(partition, Written(0, 0)).records + count)
    return total


def make_topics(write: PlacedWrite, placement: Placement) -> None:
    """Create topics that get no records. Raises the errors of `write_placed`."""
    CommitRequest(write.directories, WriteId(str(uuid4())), [], placement).commit(write.timeout_seconds)


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """A task's report about the file that it staged."""

    task: int
    file: StagedFile
    written: Mapping[TopicPartition, Written]


class PlacedWriter(DataSourceArrowWriter):
    """Stages rows in the tasks, and lists the staged files at the end."""

    def __init__(self, name: WriteId, write: PlacedWrite, report: Path) -> None:
        self._name = name
        self._to = write
        self._report = report

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode a task's rows into a separate file, which is on disk when the call returns."""
        encoder, written = OffsetPreservingEncoder(self._to.layouts), dict[TopicPartition, Written]()

        def encoded() -> Iterator[tuple[TopicPartition, bytearray]]:
            for rows in iterator:
                for partition, batch, last, records in encoder.encode(rows):
                    yield partition, batch
                    before = written.get(partition, Written(0, 0))
                    written[partition] = Written(last, before.records + records)

        task = task_context().partitionId()
        file = stage(self._to.directories, self._name, task, encoded())
        return WriterCommitMessage() if file is None else TaskReport(task, file, written)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """List the staged files for the job, ordered by task and therefore by offset."""
        staged = sorted((one for one in messages if isinstance(one, TaskReport)), key=lambda one: one.task)
        report = [
            {
                "file": one.file._asdict(),
                "written": [(*partition, *one.written[partition]) for partition in one.written],
            }
            for one in staged
        ]
        self._report.write_text(json.dumps(report))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the job discards all staged files."""
