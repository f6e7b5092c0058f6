"""Rows written to the offsets that they have: tasks stage, the owner of the data directories puts them in place.

For Spark this is a format of its own. Its tasks stage, and its commit only lists the staged files: the job requests the
commit itself, for it needs the result.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from topicfs.pipeline.sink.commit_request import CommitRequest, staging_area
from topicfs.pipeline.sink.offset_preserving_write import KeepingEncoder, TopicForm
from topicfs.storage.codec.headers import Codec
from topicfs.storage.disk.names import WriteId
from topicfs.storage.model import TopicPartition
from topicfs.storage.staging.placement import Placement
from topicfs.storage.staging.staged_file import StagedFile, StagedFileWriter

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "topicfs_placed"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
TASK_RECORDS = 250_000
"""About so many are sorted and staged by one task."""


class PlacedWrite(NamedTuple):
    """The data directories of a write, and the form of each topic's batches."""

    directories: tuple[Path, ...]
    forms: Mapping[str, TopicForm]
    timeout_s: float
    """Longest wait until the owner has put it in place."""


class Written(NamedTuple):
    """The result of a write for a partition."""

    last: int
    """Offset."""
    records: int


def write_placed(
    rows: DataFrame, write: PlacedWrite, placement: Placement, *, records: float
) -> dict[TopicPartition, Written]:
    """Put about so many rows in place: all of them, or none with an error (WriteRefusedError, CommitTimeoutError, …)."""
    name = WriteId(str(uuid4()))
    tasks = max(1, math.ceil(records / TASK_RECORDS))
    place = ["topic", "partition", "offset"]
    rows.sparkSession.dataSource.register(PlacedSource)
    sorted_rows = rows.select(*COLUMNS).repartitionByRange(tasks, *place).sortWithinPartitions(*place)
    with tempfile.TemporaryDirectory(prefix="topicfs-restore-") as folder:
        report = Path(folder) / "staged.json"
        try:
            sorted_rows.write.format(FORMAT).mode("append").options(**_options(name, write, report)).save()
        except BaseException:
            with suppress(OSError):
                staging_area(write.directories).discard_staged(name)
            raise
        staged = [TaskReport.from_json(one) for one in json.loads(report.read_text())]
    files = [one.file for one in staged]
    CommitRequest(write.directories, name, files, placement).commit(write.timeout_s)
    return _sum(one.written for one in staged)


def make_topics(write: PlacedWrite, placement: Placement) -> None:
    """Make topics that get no records (WriteRefusedError, CommitTimeoutError, …)."""
    CommitRequest(write.directories, WriteId(str(uuid4())), [], placement).commit(write.timeout_s)


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """A task's report of what it staged."""

    task: int
    file: StagedFile
    written: Mapping[TopicPartition, Written]

    def as_json(self) -> list[object]:
        written = [[*partition, *one] for partition, one in self.written.items()]
        return [self.task, list(self.file), written]

    @classmethod
    def from_json(cls, plain: Sequence[object]) -> TaskReport:
        task, file, written = plain
        assert isinstance(task, int)
        assert isinstance(file, list)
        assert isinstance(written, list)
        by_partition = {TopicPartition(one[0], one[1]): Written(one[2], one[3]) for one in written}
        return cls(task, StagedFile(*file), by_partition)


class PlacedSource(DataSource):
    """The format, as Spark sees it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> PlacedWriter:
        del schema, overwrite
        # Spark hands options on with their names in lower case.
        directories = tuple(Path(one) for one in json.loads(self.options["directories"]))
        forms = {
            topic: TopicForm(limit, Codec(codec), level)
            for topic, (limit, codec, level) in json.loads(self.options["forms"]).items()
        }
        return PlacedWriter(WriteId(self.options["write"]), directories, forms, Path(self.options["report"]))


class PlacedWriter(DataSourceArrowWriter):
    """The writer: stages in the tasks, and lists at the end what they staged."""

    def __init__(
        self, name: WriteId, directories: tuple[Path, ...], forms: Mapping[str, TopicForm], report: Path
    ) -> None:
        self._name = name
        self._directories = directories
        self._forms = forms
        self._report = report

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode a task's rows into a file of its own; on disk when this returns."""
        context = TaskContext.get()
        assert context is not None, "only tasks write"
        task = context.partitionId()
        area = staging_area(self._directories)
        encoder = KeepingEncoder(self._forms)
        writer: StagedFileWriter | None = None
        written: dict[TopicPartition, Written] = {}
        try:
            for rows in iterator:
                for kept in encoder.encode(rows):
                    writer = writer or area.stage(self._name, task)
                    writer.append(kept.partition, kept.batch)
                    before = written.get(kept.partition, Written(0, 0))
                    written[kept.partition] = Written(kept.last_offset, before.records + kept.records)
            return WriterCommitMessage() if writer is None else TaskReport(task, writer.finish(), written)
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """List the staged files for the job, in the order of the tasks, which is that of the offsets."""
        staged = sorted((one for one in messages if isinstance(one, TaskReport)), key=lambda one: one.task)
        self._report.write_text(json.dumps([one.as_json() for one in staged]))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave what was staged to the job, which abandons all of the write."""


def _options(name: WriteId, write: PlacedWrite, report: Path) -> dict[str, str]:
    forms = {
        topic: (form.max_batch_bytes, int(form.codec), form.compression_level)
        for topic, form in write.forms.items()
    }
    return {
        "write": name.query,
        "directories": json.dumps([str(one) for one in write.directories]),
        "forms": json.dumps(forms),
        "report": str(report),
    }


def _sum(written: Iterable[Mapping[TopicPartition, Written]]) -> dict[TopicPartition, Written]:
    total: dict[TopicPartition, Written] = {}
    for one in written:
        for partition, (last, records) in one.items():
            before = total.get(partition, Written(0, 0))
            total[partition] = Written(max(before.last, last), before.records + records)
    return total
