"""A driver that tests kill: streams lines of text files into a topic, one file per micro-batch.

    python -m tests.pipeline.streaming_driver INPUT DATA CHECKPOINT [--to-the-end] [--flaky FILE]

The driver runs until it is killed, or with --to-the-end until it has read every file. With --flaky the first attempt
of every task of partition 0 fails after it has written all of its rows, and creates FILE.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.types import StructType

from tests.pipeline.conftest import start_session
from topicfs.pipeline.data_source import TopicfsDataSource
from topicfs.pipeline.sink.writers import TaskStaged, TopicStreamWriter, target_of


class FailingWriter(TopicStreamWriter):
    """Writes all rows of a task, then fails in the task's first attempt."""

    def __init__(self, writer: TopicStreamWriter, witness: str) -> None:
        super().__init__(writer.target)
        self._witness = witness

    def write(self, iterator: Iterator[Any]) -> TaskStaged:
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            Path(self._witness).touch()
            raise RuntimeError("fails after writing, as planned")
        return message


class FailingSource(TopicfsDataSource):
    """The format `flaky`, which writes with a FailingWriter."""

    @classmethod
    def name(cls) -> str:
        return "flaky"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FailingWriter:
        options = dict(self.options)
        witness = options.pop("witness")
        return FailingWriter(TopicStreamWriter(target_of(options, schema, overwrite=overwrite)), witness)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("data")
    parser.add_argument("checkpoint")
    parser.add_argument("--to-the-end", action="store_true")
    parser.add_argument("--flaky")
    asked = parser.parse_args()
    spark = start_session("local[2,3]", {})
    spark.dataSource.register(FailingSource)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(asked.source)
    rows = lines.selectExpr("value AS key", "value").repartition(2)
    writer = rows.writeStream.format("flaky" if asked.flaky else "topicfs")
    if asked.flaky:
        writer = writer.option("witness", asked.flaky)
    if asked.to_the_end:
        writer = writer.trigger(availableNow=True)
    query = (
        writer.option("path", asked.data)
        .option("topic", "lines")
        .option("checkpointLocation", asked.checkpoint)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
