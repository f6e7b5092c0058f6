"""A driver of its own process, to be killed: streams the lines of text files into a topic, one file a micro-batch.

    python -m tests.pipeline.streaming_driver INPUT DATA CHECKPOINT [flaky]

With `flaky` the first attempt of every task of partition 0 fails after all of its rows were written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import pipeline
from pipeline.data_source import TopicfsDataSource
from pipeline.sink.writers import TaskStaged, TopicStreamWriter, stream_writer


class FailingWriter(TopicStreamWriter):
    """Writes everything, then fails the first time."""

    def write(self, iterator: Iterator[Any]) -> TaskStaged:
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            raise RuntimeError("fails after writing, as planned")
        return message


class FailingSource(TopicfsDataSource):
    """`format("flaky")`."""

    @classmethod
    def name(cls) -> str:
        return "flaky"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FailingWriter:  # noqa: N802
        return FailingWriter(stream_writer(self.options, schema, overwrite=overwrite).target)


def main(source: str, data: str, checkpoint: str, flaky: str = "") -> None:
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    pipeline.register(spark)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(source)
    rows = lines.selectExpr("value AS key", "value").repartition(2)
    spark.dataSource.register(FailingSource)
    query = (
        rows.writeStream.format("flaky" if flaky else "topicfs")
        .option("path", data)
        .option("topic", "lines")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
