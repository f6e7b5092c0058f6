"""Spark's readers of a query: one for batch queries, and one for streaming queries.

One process plans (for a streaming query, this process lives as long as the query); other processes read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from topicfs.pipeline.errors import InvalidOptionError, PipelineError
from topicfs.pipeline.source.query.narrowing import EVERYTHING
from topicfs.pipeline.source.query.offsets import (
    StreamOffset,
    StreamState,
    decode_stream_offset,
    encode_stream_offset,
)
from topicfs.pipeline.source.query.options import SourceOptions
from topicfs.pipeline.source.query.schema import arrow_schema
from topicfs.pipeline.source.stream_progress import StreamProgress
from topicfs.pipeline.source.topic_source import TopicSource, read_task
from topicfs.pipeline.spark_errors import reported


class BatchReader(DataSourceReader):
    """Reads a batch query's ranges of offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._narrowing = EVERYTHING

    @reported
    def partitions(self) -> Sequence[InputPartition]:
        with closing(TopicSource(self._options)) as source:
            return [InputPartition(task) for task in source.tasks(source.batch_ranges(self._narrowing))]

    @reported
    def read(self, partition: InputPartition) -> Iterator[Any]:
        # If there is nothing to read, Spark makes one partition without a task; Spark 4.1 passes None.
        task = getattr(partition, "value", None)
        if task is not None:
            yield from read_task(task, options=self._options, schema=self._schema)


class FilteringBatchReader(BatchReader):
    """A BatchReader that supports filter pushdown. If pushdown is off, Spark rejects such readers."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        from topicfs.pipeline.source.query.filters import narrow

        self._narrowing = narrow(filters)
        return filters


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:  # Spark 4.1 does not have these classes.
    ReadAllAvailable = ReadLimit = ReadMaxRows = None  # type: ignore[misc, assignment]
    SupportsTriggerAvailableNow = object  # type: ignore[misc, assignment]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query. Each of its offsets is the next offset to read."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._progress: StreamProgress | None = None
        self._known: Mapping[str, Any] = {}
        """The end of the last batch that this reader planned. Spark 4.1 does not pass this end to the reader."""
        if ReadMaxRows is None and options.max_offsets_per_trigger is not None:
            raise InvalidOptionError("maxOffsetsPerTrigger: needs Spark 4.2 or later")

    def _stream_progress(self) -> StreamProgress:
        """Return the progress.

        It is created on first use, after Spark has copied this reader to the process that plans.
        """
        if self._progress is None:
            self._progress = StreamProgress(TopicSource(self._options))
        return self._progress

    @reported
    def initialOffset(self) -> dict[str, Any]:
        self._known = encode_stream_offset(self._stream_progress().begin())
        return dict(self._known)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @reported
    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> StreamOffset:
        most, now_ms = getattr(limit, "max_rows", None), time.monotonic_ns() // 1_000_000
        known = decode_stream_offset(self._known if start is None else start)
        end = encode_stream_offset(self._stream_progress().advance(known, most=most, now_ms=now_ms))
        self._known = end
        return end

    @reported
    def prepareForTriggerAvailableNow(self) -> None:
        self._stream_progress().stop_at_latest()

    @reported
    def reportLatestOffset(self) -> StreamOffset:
        return encode_stream_offset(StreamState(self._stream_progress().latest, {}))

    @reported
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        self._known = end
        tasks = self._stream_progress().tasks(decode_stream_offset(start), decode_stream_offset(end))
        return [InputPartition(task) for task in tasks]

    @reported
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from read_task(partition.value, options=self._options, schema=self._schema)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Replaces a reader with wrong options: Spark's first call raises the error, so Spark reports it as the cause."""

    def __init__(self, error: PipelineError) -> None:
        self._error = error

    @reported
    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse
    getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse
