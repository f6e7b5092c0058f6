"""Runs the same query with `format("kafka")` on a broker and with `format("topicfs")` on that broker's files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as spark_functions

from topicfs.pipeline.source.query.options import SourceOptions, parse_source_options
from topicfs.pipeline.source.slices import Task
from topicfs.pipeline.source.stream_progress import StreamProgress
from topicfs.pipeline.source.topic_source import TopicSource, read_task
from topicfs.storage.errors import StorageError

SHARED = {"kafka.group.id": "readers"}
"""With this option the connector keeps its consumers open for the next query. topicfs ignores the option."""
IMPATIENT = {
    "kafkaConsumer.pollTimeoutMs": "1500",
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "10",
}
"""Options that make the connector give up early. Only queries that must fail get them, because other queries may be
slow.
"""

OFFSETS_ALONE = pa.schema([pa.field("offset", pa.int64())])


class Both(NamedTuple):
    """A session, a broker, and the broker's log directory. Every option except `path` goes to both formats."""

    spark: Any
    server: str
    log_dir: Path

    def _where(self) -> dict[str, dict[str, str]]:
        shared = {"kafka.bootstrap.servers": self.server} | SHARED
        return {"kafka": shared, "topicfs": shared | {"path": str(self.log_dir)}}

    def batch(self, kind: str, options: Mapping[str, str]) -> Any:
        return self.spark.read.format(kind).options(**self._where()[kind] | dict(options)).load()

    def stream(self, kind: str, options: Mapping[str, str]) -> Any:
        return self.spark.readStream.format(kind).options(**self._where()[kind] | dict(options)).load()

    def batches(self, kind: str, cases: list[dict[str, str]]) -> Any:
        """Return one frame with the rows of all `cases`; a column has the number of each row's case."""
        return _together(self.batch(kind, options) for options in cases)

    def streams(
        self, kind: str, cases: list[dict[str, str]], checkpoint: Path
    ) -> dict[int, list[list[tuple[Any, ...]]]]:
        """Return the rows of each case by micro-batch, read by one query that ends when it has read all cases."""
        found: dict[int, list[list[tuple[Any, ...]]]] = {}

        def take(frame: Any, _: int) -> None:
            batch: dict[int, list[tuple[Any, ...]]] = {}
            for row in frame.collect():
                batch.setdefault(row.case, []).append(tuple(map(_plain, row)))
            for case, rows in batch.items():
                found.setdefault(case, []).append(sorted(rows, key=repr))

        frame = _together(self.stream(kind, options) for options in cases)
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()
        return found

    def connectors_error(self, options: Mapping[str, str], checkpoint: Path | None = None) -> str:
        """Return the connector's error for a query, or an empty text if the query succeeds.

        With `checkpoint` the query is a stream.
        """
        options = IMPATIENT | dict(options)
        try:
            if checkpoint is None:
                self.batch("kafka", options).collect()
            else:
                writer = self.stream("kafka", options).writeStream.format("noop")
                query = (
                    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
                )
                query.awaitTermination()
        except (PySparkException, Py4JError) as error:
            return str(error)
        return ""

    def our_tasks(self, options: Mapping[str, str]) -> list[Task]:
        """Return the tasks that `format("topicfs")` plans. They are planned in this process, not through Spark."""
        source = TopicSource(self._parsed(options, streaming=False))
        try:
            return source.tasks(source.batch_ranges())
        finally:
            source.close()

    def our_offsets(self, options: Mapping[str, str]) -> list[tuple[str, int, int]]:
        """Return topic, partition and offset of each record that topicfs's tasks read.

        The tasks run in this process.
        """
        parsed = self._parsed(options, streaming=False)
        return [
            (*task.range.partition, offset)
            for task in self.our_tasks(options)
            for batch in read_task(task, options=parsed, schema=OFFSETS_ALONE)
            for offset in batch.column("offset").to_pylist()
        ]

    def _parsed(self, options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        return parse_source_options(self._where()["topicfs"] | dict(options), streaming=streaming)

    def our_error(self, options: Mapping[str, str], *, streaming: bool = False) -> str:
        """Return topicfs's error from planning the read. The read is planned in this process, not through Spark."""
        try:
            source = TopicSource(self._parsed(options, streaming=streaming))
            try:
                if streaming:
                    progress = StreamProgress(source)
                    progress.stop_at_latest()
                    start = progress.begin()
                    progress.tasks(start, progress.advance(start, most=None, now_ms=0))
                else:
                    source.tasks(source.batch_ranges())
            finally:
                source.close()
        except StorageError as error:
            return str(error)
        return ""


def of_orders(*numbers: int, topic: str = "orders") -> str:
    """Return JSON that maps partition 0 of `topic` to the first of `numbers`, partition 1 to the second, and so on."""
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


def _together(frames: Any) -> Any:
    """Return one frame with the rows of all `frames`.

    The frames are joined in pairs, because Spark is slow if each frame is added to all earlier ones.
    """
    left = [frame.withColumn("case", spark_functions.lit(case)) for case, frame in enumerate(frames)]
    while len(left) > 1:
        pairs = [left[first : first + 2] for first in range(0, len(left), 2)]
        left = [pair[0] if len(pair) == 1 else pair[0].unionByName(pair[1]) for pair in pairs]
    return left[0]


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [tuple(map(_plain, one)) for one in value]
    return value
