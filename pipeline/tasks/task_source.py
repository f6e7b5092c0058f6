"""Two data sources: each task of the first applies a function to an input, and the tasks of the second write rows.

Inputs and results are any values that can be pickled. The jobs use the data source API because a function over a
DataFrame would need pandas, which is not a dependency.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any, TypeVar
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from topicfs.pipeline.spark_errors import reported

TaskInput = TypeVar("TaskInput")
TaskResult = TypeVar("TaskResult")

_NAME = "topicfs_tasks"
_registering = Lock()
"""Held from the registration of a source until the source is used, so that no other registration replaces it."""


def in_tasks(
    spark: SparkSession, work: Callable[[TaskInput], Iterator[TaskResult]], inputs: Sequence[TaskInput]
) -> list[TaskResult]:
    """Call the module-level function `work` on each input in Spark's workers; return what it yields (blocking)."""

    class TaskReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(task_input) for task_input in inputs]

        @reported
        def read(self, partition: InputPartition) -> Iterator[Any]:
            # If there is no input, Spark makes one partition without a value; Spark 4.1 passes None.
            task_input = getattr(partition, "value", None)
            if task_input is not None:
                yield from ((pickle.dumps(one),) for one in work(task_input))

    class TaskSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return _NAME

        def schema(self) -> StructType:
            return StructType([StructField("result", BinaryType())])

        def reader(self, schema: StructType) -> DataSourceReader:
            del schema
            return TaskReader()

    with _registering:
        spark.dataSource.register(TaskSource)
        rows = spark.read.format(_NAME).load()
    return [pickle.loads(row.result) for row in rows.collect()]


def write_in_tasks(rows: DataFrame, writer: DataSourceArrowWriter) -> None:
    """Write rows with `writer`, which Spark sends to the tasks."""
    sink_name = f"{_NAME}_{uuid4().hex}"

    class TaskSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return sink_name

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
            del schema, overwrite
            return writer

    rows.sparkSession.dataSource.register(TaskSink)
    rows.write.format(sink_name).mode("append").save()
