"""Work divided into portions, each done by a Spark task of its own: a DataFrame of what they gave.

A portion is any value that can be pickled; what is done with it gives Arrow batches. It goes by the data source API, as
the function of a DataFrame would need pandas, which nothing else here does.
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
"""From one registration to its use no other may come."""


def in_tasks(
    spark: SparkSession,
    work: Callable[[Portion], Iterator[Any]],
    portions: Sequence[Portion],
    *,
    schema: StructType,
) -> DataFrame:
    """What `work`, a function of a module, gives of each portion; done when the result is asked for."""

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
