"""A data source whose tasks each do one portion of some work: a DataFrame of their results.

A portion is any value that can be pickled; the work on it yields Arrow batches. The data source API is used because a
function over a DataFrame would need pandas, which nothing else here does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

Portion = TypeVar("Portion")

_NAME = "topicfs_portions"
_registering = Lock()
"""Held from a registration to its use, so that no other comes between."""


def in_tasks(
    spark: SparkSession,
    work: Callable[[Portion], Iterator[Any]],
    portions: Sequence[Portion],
    *,
    schema: StructType,
) -> DataFrame:
    """Return the rows that `work`, a function of a module, yields for the portions; done when the DataFrame is evaluated."""

    class PortionReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(portion) for portion in portions]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            # Spark makes one partition without a value where there is no portion.
            if partition.value is not None:
                yield from work(partition.value)

    class Portions(DataSource):
        @classmethod
        def name(cls) -> str:
            return _NAME

        def schema(self) -> StructType:
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            del schema
            return PortionReader()

    with _registering:
        spark.dataSource.register(Portions)
        return spark.read.format(_NAME).load()
