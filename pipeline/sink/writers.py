"""Spark's writers of the sink: they stage batches in the tasks, and request the commit in the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from topicfs.pipeline.errors import InvalidOptionError, PipelineError
from topicfs.pipeline.places.paths import with_replica_hint
from topicfs.pipeline.sink.commit_request import CommitRequest, stage
from topicfs.pipeline.sink.layout import Layout, read_layout
from topicfs.pipeline.sink.options import SinkOptions, check_columns, parse_sink_options
from topicfs.pipeline.spark_errors import reported
from topicfs.storage.disk.names import WriteId
from topicfs.storage.disk.native import system_clock
from topicfs.storage.staging.manifest import Content
from topicfs.storage.staging.staged_file import StagedFile

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties of a streaming query's tasks: QUERY_ID has the query's id, BATCH_ID the micro-batch's number."""


@dataclass(frozen=True)
class TaskStaged(WriterCommitMessage):
    write: WriteId
    task: int
    staged: StagedFile | None
    """The file that the task staged; None if the task had no rows."""
    content: Content | None
    """Content of the task's rows; None for a write without a name."""


@dataclass(frozen=True)
class Target:
    options: SinkOptions
    layout: Layout

    @property
    def topic_id(self) -> str:
        """ID of the topic to write to; empty if each row names its topic."""
        topic = self.options.topic
        return "" if topic is None else self.layout.topic(topic).topic_id or ""

    def stage(self, write: WriteId, rows: Iterator[pa.RecordBatch]) -> TaskStaged:
        """Encode a task's rows into a separate file, which is on disk when the call returns."""
        from topicfs.pipeline.sink.rows import RowEncoder

        task, named = task_context().partitionId(), write.batch is not None
        encoder = RowEncoder(self.layout, self.options.topic, now_ms=system_clock, named=named)
        encoded = (one for batch in rows for one in encoder.encode(batch))
        staged = stage(self.options.directories, write, task, encoded)
        return TaskStaged(write, task, staged, encoder.content)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        for request in self._requests(messages):
            request.commit(self.options.commit_timeout_seconds)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        for request in self._requests(messages):
            request.abort()

    def _requests(self, messages: list[WriterCommitMessage | None]) -> Iterator[CommitRequest]:
        """Yield the request to commit the write that the tasks report in `messages`; nothing if `messages` is empty."""
        brought = sorted((one for one in messages if isinstance(one, TaskStaged)), key=lambda one: one.task)
        if len({one.write for one in brought}) > 1:
            raise PipelineError(f"tasks of different writes in one commit: {brought}")
        if brought:
            files = [one.staged for one in brought if one.staged is not None]
            contents = [one.content for one in brought if one.content is not None]
            content = reduce(Content.plus, contents) if contents else None
            request = CommitRequest(self.options.directories, brought[0].write, files, content=content)
            request.left_out = self.options.left_out
            request.is_version = self.options.name is not None
            request.must_have_same_rows = self.options.must_have_same_rows
            yield request


class TopicWriter(DataSourceArrowWriter):
    """Writes either all records or none. A write with a name happens once, however often it is repeated."""

    def __init__(self, target: Target) -> None:
        self._target = target
        name = target.options.name
        self._write = WriteId(str(uuid4())) if name is None else WriteId(*name, target.topic_id)

    @reported
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskStaged:
        return self._target.stage(self._write, iterator)

    @reported
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._target.commit(messages)

    @reported
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._target.abort(messages)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch of a streaming query once."""

    def __init__(self, target: Target) -> None:
        if target.options.name is not None:
            raise InvalidOptionError(
                "txnAppId: a streaming query names its writes itself; give a name to writes within foreachBatch"
            )
        self.target = target

    @reported
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskStaged:
        """Stage a task's rows under the query's id and the micro-batch's number."""
        context = task_context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if not query or batch is None:
            raise PipelineError(f"Spark gives this task neither {QUERY_ID} nor {BATCH_ID}")
        return self.target.stage(WriteId(query, int(batch), self.target.topic_id), iterator)

    @reported
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 (Spark's)
        """Request the commit of the staged files, unless the micro-batch is already committed."""
        self.target.commit(messages)

    @reported
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 (Spark's)
        """Remove the staged files, unless the micro-batch may have been committed."""
        self.target.abort(messages)


def target_of(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Target:
    """Return the target of a write from its options. Raises InvalidOptionError, PipelineError, StorageError."""
    if overwrite:
        raise InvalidOptionError("a topic is only ever appended to: use mode append")
    with with_replica_hint():
        options = parse_sink_options(given)
        check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options)
        layout = read_layout(options.directories)
    if options.topic is not None:
        layout.topic(options.topic)
    return Target(options, layout)


def task_context() -> TaskContext:
    """Return Spark's context of the running task."""
    context = TaskContext.get()
    assert context is not None, "only tasks write"
    return context
