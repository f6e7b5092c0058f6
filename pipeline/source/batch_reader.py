"""The reader of a batch query, as Spark sees it: planned in one process of the driver, read in others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from topicfs.pipeline.source.query.narrowing import EVERYTHING
from topicfs.pipeline.source.query.options import SourceOptions
from topicfs.pipeline.source.query.schema import arrow_schema
from topicfs.pipeline.source.slices import Task
from topicfs.pipeline.source.topic_source import TopicSource, read_task
from topicfs.pipeline.spark_errors import reported


class TaskPartition(InputPartition):
    """A task as one of Spark's input partitions."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)


class BatchReader(DataSourceReader):
    """Reads from one set of offsets to another."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._narrowing = EVERYTHING

    @reported
    def partitions(self) -> Sequence[InputPartition]:
        with closing(TopicSource(self._options)) as source:
            return [TaskPartition(task) for task in source.tasks(source.batch_ranges(self._narrowing))]

    @reported
    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark makes one partition without a task where there is nothing to read, and Spark 4.1 passes None.
        task = getattr(partition, "value", None)
        if task is not None:
            yield from read_task(task, options=self._options, schema=self._schema)


class FilteringBatchReader(BatchReader):
    """The same where Spark hands filters down; elsewhere it refuses readers that could take them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        from topicfs.pipeline.source.query.filters import narrow

        self._narrowing = narrow(filters)
        return filters
